"""What ties a collective (`channel.Receiver`) to its connections, one hold per neighbour."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.pacing import FEWEST, Meter
from ictp2p.bulk.users import Frame
from ictp2p.collectives.channel import CallsDiffer, Receiver
from ictp2p.errors import ConnectionLost, IctError, RemoteProtocolError, printable
from ictp2p.types import PeerId
from ictp2p.wire import MALFORMED

if TYPE_CHECKING:
    from ictp2p.bulk.stripes import Stripe

INTERIM = 5.0
"""Seconds of a link at work after which it is reported how fast it is, while the collective goes on: the peers may have
to plan anew. Less would count slow start for much; and estimates take a sample of this length for a changed link."""
LITTLE = 64 * 1024
"""Bytes of which a connection that holds less holds as good as nothing."""
ANYBODY = PeerId("")
"""Who begins what we have given up because calls differ: its neighbours there need not be ours."""
DIFFER_SECONDS = 2.0
"""For which we wait to hear what a neighbour calls that calls something else; it may have ended."""
MAX_ABORT = 8 * 1024
MOST_WORDS = 512
"""Characters of why a collective was given up that travel, and that are shown of what came."""
ABORT_SECONDS = 1.0
"""That a connection has to send what it still holds of an aborted collective."""
ABORT_SHARE = 3
"""Of the stall deadline the third part that it has, if that is more, for an attempt of a round, if it gets on. For the
whole of it the others wait for us to begin the next attempt, and then leave us out."""


class Aborted(msgspec.Struct, frozen=True, array_like=True):
    """The body of an `ABORT` frame."""

    reason: str
    suspects: tuple[str, ...]
    call: str = ""
    """What the sender calls, where participants call different things."""


def read_aborted(body: memoryview) -> Aborted:
    """Read why a neighbour gave up.

    Raises:
        RemoteProtocolError: it is too long or malformed.
    """
    if len(body) > MAX_ABORT:
        raise RemoteProtocolError(f"abort of {len(body)} bytes exceeds {MAX_ABORT}")
    try:
        return msgspec.msgpack.decode(body, type=Aborted)
    except MALFORMED as error:
        raise RemoteProtocolError(f"abort does not decode: {error}") from error


class Measured(Protocol):
    """Told of what was measured: on which connection, under which tag."""

    def __call__(
        self, connection: BulkConnection, tag: bytes, size: int, seconds: float, starved: bool, *, ended: float
    ) -> None:
        """As `Bulk.measured`."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a collective is, to all who take part in it."""

    words: str = ""
    """What is called; nothing if nobody says."""
    checksum: int = 0
    """Of the words."""
    neighbours: Collection[PeerId] = ()
    """All of ours in it."""

    @classmethod
    def of(cls, words: str, neighbours: Collection[PeerId]) -> Call:
        """Make one of its words."""
        return cls(words, zlib.crc32(words.encode()), neighbours) if words else UNSAID


UNSAID = Call()


class Hold:
    """A collective's use of one connection (`users.User`).

    A chunk that does not fit fails this collective and no other: both ends may have been called with different sizes,
    and what else runs over the connection has nothing to do with that. Nor has it with what breaks here, for want of
    memory say, nor has the neighbour: the collective ends with that error, and the others hear who gave up.
    """

    def __init__(
        self,
        receiver: Receiver,
        peer: PeerId,
        tag: bytes,
        connection: BulkConnection,
        clock: Callable[[], float],
        measured: Measured,
        call: Call = UNSAID,
    ) -> None:
        self.peer = peer
        self.call = call
        self.connection = connection
        """Where we send."""
        self.inbound: BulkConnection | None = None
        """Where the peer said that it began: the same connection, unless both sides dialed at once."""
        self.heard: set[BulkConnection] = set()
        """Where else chunks have come: the peer has stripes of its own."""
        self.stripes: Sequence[Stripe] = ()
        """Where we send as well."""
        self.striped = False
        """Whether it may send over whichever there are."""
        self.meter = Meter()
        self.tag = tag
        self._receiver = receiver
        self._clock = clock
        self._measured = measured
        self._refused = False
        """A chunk did not fit, or we broke: what still comes is for nobody."""
        self._misfit: tuple[Header, RemoteProtocolError] | None = None
        """Of a chunk that is being read: why it does not fit."""
        self._differing: asyncio.TimerHandle | None = None
        """For the time in which we wait to hear what the peer calls."""

    @property
    def connections(self) -> list[BulkConnection]:
        """Where we send, the first one first."""
        return [self.connection, *[stripe.connection for stripe in self.stripes]] if self.stripes else [self.connection]

    def kick(self) -> None:
        """Let all connections pull, whichever holds less first: what there is may be less than all could take.

        Of those that hold next to nothing the first one is asked first, so that what is small goes over it alone.
        """
        if not self.stripes:
            self.connection.kick(self)
            return
        pulling: list[tuple[BulkConnection, Hold | Stripe]] = [(self.connection, self)]
        pulling += [(stripe.connection, stripe) for stripe in self.stripes]
        for connection, user in sorted(pulling, key=lambda each: each[0].pending // LITTLE):
            connection.kick(user)

    def begun(self, connection: BulkConnection, checksum: int, *, again: int = 0) -> None:
        """The peer takes part, and sends on `connection`; it had to drop the first `again` chunks that we sent.

        `checksum`: of what it calls. If we call something else we tell it, and expect to be told.
        """
        self.inbound = connection
        if checksum != self.call.checksum:
            self.differ(self.peer, connection)
            return
        if connection is not self.connection:
            connection.heed(self)
        self.connection.wake()  # while we waited for the peer it has rested again
        self._receiver.begun(self.peer, again)

    def catch_up(self, partial: bool, share: int, chunk: int, body: bytes | memoryview) -> None:
        """Take a chunk that came before we had begun, or along with the word that the peer has. It is not measured."""
        if self._refused:
            return
        try:
            place = self._receiver.destination(self.peer, partial, share, chunk, len(body))
            if isinstance(place, memoryview):
                place[:] = body
                body = place
            self._receiver.arrived(self.peer, partial, share, chunk, memoryview(body))
        except RemoteProtocolError as error:
            self._refuse(error)
        except Exception as error:
            self._break(error)

    def next_frame(self) -> Frame | None:
        """Pull the next chunk."""
        try:
            out = self._receiver.next_frame(self.peer)
        except Exception as error:
            self._break(error)
            return None
        if out is None:
            return None
        kind = Kind.PARTIAL if out.partial else Kind.RESULT
        return Frame(kind, self.tag, out.share, out.chunk, out.views, out.stable, out.size, out.make, self._break)

    def place(self, header: Header) -> memoryview | list[memoryview] | None:
        """Ask the collective where a chunk goes.

        What does not fit is refused once it is whole: nobody has vouched for a header whose seal has yet to be opened.
        """
        if header.kind not in (Kind.PARTIAL, Kind.RESULT) or self._refused:
            return None
        partial = header.kind is Kind.PARTIAL
        try:
            chunk = self.peer, partial, header.first, header.second, header.length
            return self._receiver.destination(*chunk, passing=header.shared)
        except RemoteProtocolError as error:
            self._misfit = header, error
        except Exception as error:
            self._break(error)
        return None

    def take(self, header: Header, body: memoryview) -> None:
        """Hand a chunk to the collective."""
        if header.kind is Kind.WHOLE:
            self.inbound = self.connection
            if header.second != self.call.checksum:
                self.differ(self.peer, self.connection)
                return
            self._receiver.begun(self.peer, header.first)
            self.catch_up(True, 0, 0, body)
            return
        if header.kind not in (Kind.PARTIAL, Kind.RESULT) or not header.length:
            raise RemoteProtocolError(f"{header.kind.name} of {header.length} bytes under a collective's tag")
        if self._refused:
            return
        if self._misfit is not None and self._misfit[0] is header:
            self._refuse(self._misfit[1])
            return
        self.meter.add(header.length, header.starved, self._clock())
        if self.meter.busy_seconds >= INTERIM:
            self.report()
        try:
            self._receiver.arrived(self.peer, header.kind is Kind.PARTIAL, header.first, header.second, body)
        except RemoteProtocolError as error:
            self._refuse(error)
        except Exception as error:
            self._break(error)

    def report(self) -> None:
        """Tell what was measured since the last time, and measure anew."""
        if self.meter.frames < FEWEST:
            return
        ended, sample, self.meter = self.meter.last, self.meter.sample(), self.meter.again()
        if sample is not None:
            self._measured(self.connection, self.tag, *sample, ended=ended)

    def expecting(self) -> bool:
        """The peer owes us chunks."""
        return self._receiver.waiting_on(self.peer)

    def needs(self, connection: BulkConnection, *, whole: bool) -> bool:
        """Say whether we need one that has ended, over which we do not send; `whole`: all that was sent there is here.

        With a stripe of the peer chunks may be lost that it takes for sent: it may have ended, and not say so.
        """
        return self.inbound is connection or (not whole and connection in self.heard and self.expecting())

    def lost(self, error: IctError) -> None:
        """The connection has gone."""
        self._receiver.lost(self.peer, str(error), ())

    def goes_on(self, others: Sequence[BulkConnection]) -> bool:
        """Go on with `others`, if we have nothing left for the peer, which has closed one, and all but wait for it."""
        if self._receiver.owing_to(self.peer) or not self._receiver.waiting_on(self.peer):
            return False
        self.inbound = others[0]
        for each in others:
            each.heed(self)
        return True

    def _refuse(self, error: RemoteProtocolError) -> None:
        self._refused = True
        self._receiver.lost(self.peer, str(error).removeprefix(f"{self.peer} "), ())

    def _break(self, error: Exception) -> None:
        self._refused = True
        self._receiver.broke(error)

    def end(self) -> None:
        """The collective has ended: nothing is waited for."""
        if self._differing is not None:
            self._differing.cancel()

    def differ(self, peer: PeerId, connection: BulkConnection) -> None:
        """`peer` calls something else under our tag: tell it what we call, and expect to be told."""
        body = msgspec.msgpack.encode(Aborted("calls differ", (), self.call.words))
        connection.send(Kind.ABORT, self.tag, body=body)
        if not self._refused:
            self._refused = True
            error = CallsDiffer(f"{peer} calls something other than {self.call.words}", [peer])
            self._differing = asyncio.get_running_loop().call_later(DIFFER_SECONDS, self._receiver.broke, error)

    def differs(self, peer: PeerId, why: Aborted, me: PeerId) -> None:
        """`peer` gave up since calls differ: its own from ours, or somebody's from those of both of us.

        In its call it may have had other words for us, of a part that it had yet to begin. Then whom it suspects tells:
        it suspects us, `me`, if it is ours that differs.
        """
        if why.call == self.call.words or not {*why.suspects} <= {me}:
            self._break(CallsDiffer(f"{peer}: {printable(why.reason)}", [PeerId(s) for s in why.suspects]))
        else:
            self._break(CallsDiffer(f"{peer} calls {printable(why.call[:MOST_WORDS])}, not {self.call.words}", [peer]))

    def aborted(self, why: Aborted, me: PeerId) -> None:
        """The peer gave up; `me`: who we are."""
        if why.call:
            self.differs(self.peer, why, me)
            return
        self._receiver.lost(
            self.peer, f"gave up: {printable(why.reason)}"[:MOST_WORDS], tuple(PeerId(s) for s in why.suspects)
        )


class Attached:
    """All holds of one collective (`channel.Attachment`)."""

    def __init__(
        self,
        holds: Sequence[Hold],
        release: Callable[[Hold], None],
        given_up: Callable[[PeerId, bytes, bytes], None],
        stall: float,
    ) -> None:
        self._holds = {hold.peer: hold for hold in holds}
        self._release = release
        self._given_up = given_up
        self._stall = stall

    def kick(self, peer: PeerId) -> None:
        """Let the connection to `peer` pull."""
        self._holds[peer].kick()

    def ahead(self, peer: PeerId) -> int | None:
        """Say how much on the way to `peer` keeps the link busy."""
        return self._holds[peer].connection.ahead()

    def early(self, peer: PeerId) -> float:
        """Say for how long chunks should go to `peer` before it has begun (see `channel.Attachment`)."""
        return self._holds[peer].connection.early()

    def received(self, peer: PeerId) -> int:
        """Count what `peer` has brought over the connections to it that we use."""
        return sum(connection.received for connection in self._holds[peer].connections)

    def connections(self, peer: PeerId) -> int:
        """Count those that carry chunks to `peer`."""
        return len(self._holds[peer].connections)

    async def flushed(self, timeout: float) -> None:
        """Wait until the kernel has taken all that the neighbours need from us (see `channel.Attachment`)."""
        connections = [each for hold in self._holds.values() for each in hold.connections if each.pending]
        if connections:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(connection.drained() for connection in connections))

    def detach(self) -> None:
        """Let go of all connections."""
        for hold in self._holds.values():
            self._release(hold)

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        """Tell the neighbours, let go, and have nothing of the collective's memory left in a transport.

        In clear, what a transport still holds are the caller's tensors. A second is given to send them; a connection
        that needs longer is dropped, or a torn contribution could leave it after the caller has gone on. In a round it
        is waited for while it gets on: an attempt that was given up for being slow is followed by another over the same
        slow line, which would be lost with it. What others have given it since is theirs.
        """
        for hold in self._holds.values():
            body = msgspec.msgpack.encode(
                Aborted(reason[:MOST_WORDS], tuple(suspects), hold.call.words if differ else "")
            )
            hold.connection.send(Kind.ABORT, hold.tag, body=body)
            self._given_up(hold.peer, hold.tag, body)
            if differ:
                self._given_up(ANYBODY, hold.tag, body)
        connections = [each for hold in self._holds.values() for each in hold.connections]
        self.detach()
        holding = {connection: connection.written for connection in connections if connection.holds_memory()}
        try:
            turns = self._turns()
            await asyncio.gather(*(_sent(connection, ours, turns) for connection, ours in holding.items()))
        finally:
            for connection, ours in holding.items():
                if connection.flushed < ours:
                    connection.fail(ConnectionLost("did not take the rest of an aborted collective"))

    def _turns(self) -> int:
        """For how many times `ABORT_SECONDS` what gets on is waited for: once, where no other attempt follows."""
        if any(hold.call is not UNSAID for hold in self._holds.values()):
            return 1
        return max(1, int(self._stall / ABORT_SHARE / ABORT_SECONDS))


async def _sent(connection: BulkConnection, ours: int, turns: int) -> None:
    """Wait until a connection has sent so many bytes in all, for so many times `ABORT_SECONDS` while it gets on.

    That is seen from what arrives: the kernel takes more only once it has much room, which a slow line may take longer
    to make (as in `liveness`). At 10 Mbit/s it was seen to take nothing for 1.2 s, and the other end to say every fifth
    of a second at the latest that more was there.
    """
    for _ in range(turns):
        before = connection.acknowledged
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await connection.drained()
        if connection.flushed >= ours or connection.acknowledged <= before:
            return
