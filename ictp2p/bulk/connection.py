"""One bulk connection: who uses it, whose frame leaves next, how it begins and how it ends.

Frames are *pulled*. While the transport takes more, the connection asks its users in turn for their next frame; nothing
is queued that is not ready, and at most one frame lies beyond the transport's high-water mark. Who had none is asked
again once it says that it may have one (`kick`): thousands may share a connection, and most of them wait.

`inbound` reads, `outbound` writes; `liveness` watches over the other end, `throttle` says when we must not send yet,
`backlog` how much the transport may hold, and `sharing` has bodies go through memory where both ends are on one host.
Those that know the connection do so until it ends, and not longer: in a cycle its buffers, of up to a chunk each, would
stay until the garbage collector comes.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ictp2p.bulk import kernel, resting, shared, tuning
from ictp2p.bulk.account import Account, account
from ictp2p.bulk.backlog import Backlog
from ictp2p.bulk.ciphers import Cipher
from ictp2p.bulk.frames import NO_TAG, Header, Hello, Kind, Purpose
from ictp2p.bulk.inbound import Inbound
from ictp2p.bulk.keys import Agreed
from ictp2p.bulk.limit import TENSORS, Ceiling
from ictp2p.bulk.liveness import Liveness
from ictp2p.bulk.outbound import SMALL, Outbound
from ictp2p.bulk.renewal import Renewal
from ictp2p.bulk.seal import Seal
from ictp2p.bulk.sharing import Sharing
from ictp2p.bulk.throttle import Throttle
from ictp2p.bulk.users import Frame, Owner, User
from ictp2p.bulk.wakeups import Wakeups
from ictp2p.collectives.running.windows import AHEAD_BYTES
from ictp2p.errors import ConnectionLost, IctError
from ictp2p.types import shown_address

if TYPE_CHECKING:
    from ictp2p.types import PeerId

CLOSE_SECONDS = 1.0
SEALS = 256
"""Bytes, more than sealing adds to a frame: a transport that holds more than these and the frame held some before."""
LONG_WAY = 0.2
"""Seconds that a round trip is taken for where it is not known: between continents, and over relays."""
AHEAD_RATE = 10e9
"""Bytes on their way per second of round trip: eight hops at 10 Gbit/s, so that only short round trips are limited."""

MOST_WAITING = 1 << 16
"""Small frames that wait to be sent, sixteen times what `desk` remembers of a peer that is ahead: who asks and does not
read makes us keep no more. They are counted, not weighed, since none that answers another is above a KiB
(`streams.MOST_REASON`): 64 MiB and the frames themselves. Longer ones, of up to 64 KiB, are of what we ask or begin
ourselves, one for each call that waits, and end with it when the peer stalls."""


class BulkConnection(Inbound):
    """One connection.

    Args:
        owner: who is told what becomes of it.
        clock: monotonic seconds.
        stall: deadline in seconds, as `BulkProfile.stall`.
        high_water: bytes, as `BulkProfile.high_water`.
        hello: what we say first, if we dialed.
        rings: makes memory to share with the other end; None: share none, and take none.
    """

    def __init__(
        self,
        owner: Owner,
        clock: Callable[[], float],
        stall: float,
        high_water: int,
        hello: Hello | None,
        rings: shared.Rings | None = None,
    ) -> None:
        super().__init__()
        self.peer: PeerId | None = None
        """Who is at the other end, once it has said so; proven when the owner is told `confirmed`."""
        self.hello = hello
        self.dialed = hello is not None
        self.relayed = hello is not None and hello.purpose is Purpose.RELAY
        """Our kernel sees only the way to the relay."""
        self.beside = hello is not None and hello.beside
        """One end has it beside a first one, for itself, and may end it at any time: neither takes it for the first."""
        self.superseded = False
        """It is relayed, and a direct one has become ready since (`upgrades`)."""
        self.ready_at = math.inf
        """When both ends had proven who they are."""
        self.ticket = b""
        """With which the other end dialed us, if we had asked it to."""
        self.transport: asyncio.Transport
        self.host: str
        """The numeric address of the other end, or of what stands before it."""
        self._check: Callable[[bytes], None]
        """Whether what the other end proves is that it is `peer`."""
        self.sharing: Sharing
        """Takes what the other end says of memory in common."""
        self.backlog: Backlog
        """How much the transport holds."""
        self._outbound: Outbound
        self._liveness: Liveness
        self._throttle: Throttle
        self._renewal: Renewal
        self._owner = owner
        self._clock = clock
        self._stall = stall
        self._high_water = high_water
        self._rings = rings
        self._users: dict[User, None] = {}
        self._willing: OrderedDict[User, None] = OrderedDict()
        """Who may have something to send, in turn."""
        self._control: deque[Frame] = deque()
        self._paused = False
        self._pumping = False
        self._wrote_at = -resting.REST
        """When we last had something to send."""
        self._gone = asyncio.Event()

    # What its users do.

    def join(self, user: User, *, kick: bool = True) -> None:
        """Let `user` send, at once unless it has nothing yet, and watch over what it expects."""
        self._users[user] = None
        if not self._liveness.awake:
            self._liveness.begin()
        if kick:
            self.kick(user)

    def kick(self, user: User) -> None:
        """Ask `user`, which had nothing to send, for a frame again; nothing happens if it has left."""
        if user in self._users:
            self._willing[user] = None
            self.pump()

    def heed(self, user: User) -> None:
        """Watch over what `user` expects here, though it sends on another connection: both ends had dialed at once.

        Each end then hears from the other on both connections, and takes it for dead on neither.
        """
        self._liveness.heeding[user] = None
        self._liveness.begin()

    def speak(self, tag: bytes) -> None:
        """Say in pauses that we are here, until `hush`: the other end waits under `tag`. That is no use of it here."""
        self._liveness.speaking[tag] = None
        if not self._liveness.awake:
            self._liveness.begin()

    def hush(self, tag: bytes) -> None:
        """Take `speak` back."""
        self._liveness.speaking.pop(tag, None)

    def leave(self, user: User, tag: bytes) -> None:
        """Forget `user`; whatever arrives under `tag` touches its memory no more, not even a body half read."""
        self._users.pop(user, None)
        self._liveness.heeding.pop(user, None)
        self._willing.pop(user, None)
        self._forget(user, tag)

    def send(self, kind: Kind, tag: bytes = NO_TAG, first: int = 0, second: int = 0, body: bytes = b"") -> None:
        """Send a small frame ahead of all that users have to send; of one that has ended nothing leaves."""
        if self.closed:
            return
        if self._confirmed and not (self._control or self._paused or self._pumping):
            self._write_now(kind, tag, first, second, body)
            if not self._control:
                return
        else:
            self._control.append(Frame(kind, tag, first, second, (body,)))
        self.pump()
        if len(self._control) > MOST_WAITING:
            self.fail(ConnectionLost(f"left {MOST_WAITING} answers of ours unread"))

    def wake(self) -> int:
        """Prepare for what is sent next, if we have rested; give the bytes that this should have (`resting`)."""
        if self.closed or self._clock() < self._wrote_at + resting.REST:
            return 0
        least = resting.wake(self.transport)
        if least:
            self._renewal.woken(self._clock())
        return max(least, resting.RELAYED) if self.relayed else least

    def pace(self, rate: float | None) -> None:
        """Send at most `rate` bytes/s from now on; None: as fast as it goes."""
        self._throttle.pace(rate)

    def keep_under(self, ceiling: Ceiling) -> None:
        """Send tensors only as `ceiling` admits them from now on."""
        self._throttle.ceiling = ceiling

    def ahead(self) -> int | None:
        """Give the bytes on their way that keep this connection busy; None: not known, as much as may be."""
        seconds = None if self.relayed or self.closed else kernel.round_trip(self.transport)
        return None if seconds is None else AHEAD_BYTES + int(AHEAD_RATE * seconds)

    def early(self) -> float:
        """Give the seconds that the other end's word may take, a round trip; 0 over a short way: it is soon here."""
        seconds = None if self.relayed or self.closed else kernel.round_trip(self.transport)
        return LONG_WAY if seconds is None else seconds if seconds > tuning.NEARBY else 0.0

    def distrust(self) -> None:
        """Have less patience with the other end: see `Liveness.distrust`."""
        self._liveness.distrust()

    @property
    def standing(self) -> bool:
        """Whether nothing had moved for a while, although something was due, at the last look (before it ended)."""
        return self._liveness.standing

    @property
    def silence(self) -> float:
        """Seconds in which nothing came while it was used, up to the last look (see `liveness`)."""
        return self._liveness.silence

    @property
    def account(self) -> Account | None:
        """What the kernel has counted of it so far, if it counts."""
        return None if self.closed else account(self.transport)

    @property
    def written(self) -> int:
        """Bytes given to the transport so far."""
        return self._outbound.written

    @property
    def flushed(self) -> int:
        """Bytes that have left for the kernel so far."""
        return self._outbound.written if self.closed else self._outbound.flushed

    @property
    def acknowledged(self) -> int:
        """Of these, bytes that the other end's kernel has acknowledged, or of which ours says nothing."""
        return self.flushed - (0 if self.closed else kernel.unacknowledged(self.transport))

    @property
    def wanted_there(self) -> bool:
        """Whether it is the other end that wanted it: it dialed, or had asked us to."""
        return not self.dialed or (self.hello is not None and self.hello.purpose is Purpose.TICKET)

    @property
    def idle(self) -> bool:
        """Whether nobody uses it."""
        return not self._users

    @property
    def pending(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self.closed else self._outbound.pending

    def holds_memory(self) -> bool:
        """Say whether the transport still refers to memory of a user."""
        return not self.closed and self._outbound.holds_memory()

    async def drained(self) -> None:
        """Wait until the kernel has taken everything written so far."""
        if not self.closed:
            await self._outbound.drained()

    def pump(self) -> None:
        """Write frames while the transport takes them and there are any."""
        if self._pumping:
            return
        self._pumping = True
        try:
            # What is small waits for nothing but the transport.
            while not (self._paused or self.closed) and (self._control or not self._throttle.holds_back()):
                frame = self._next_frame()
                if frame is None:
                    self._outbound.starve()
                    break
                self._write(frame)
        except IctError as error:
            self.fail(error)
        finally:
            self._pumping = False

    def _write_now(self, kind: Kind, tag: bytes, first: int, second: int, body: bytes) -> None:
        """Write what nothing stands before, as `pump` would; what follows it at once does not begin anew."""
        try:
            if len(body) <= SMALL:
                size = self._outbound.write_small(kind, tag, first, second, body)
            else:
                size = self._outbound.write(Frame(kind, tag, first, second, (body,)))
        except Exception as error:
            self.fail(ConnectionLost(f"could not send {kind.name}: {error!r}"))
        else:
            self._wrote(kind, size)

    def _write(self, frame: Frame) -> None:
        try:
            size = self._outbound.write(frame)
        except Exception as error:
            if frame.broke is None:
                raise ConnectionLost(f"could not send {frame.kind.name}: {error!r}") from error
            frame.broke(error)
            return
        self._wrote(frame.kind, size)

    def _wrote(self, kind: Kind, size: int) -> None:
        before, self._wrote_at = self._wrote_at, self._clock()
        if self._wrote_at < before + resting.REST or self._outbound.pending > size + SEALS:  # slow, not at rest
            self._renewal.sent(self._wrote_at)
        throttle, sharing = self._throttle, self.sharing
        if throttle.bucket is not None:
            throttle.bucket.spend(size)
        if throttle.ceiling is not None and kind in TENSORS:
            throttle.ceiling.spend(size)
        if size >= shared.LEAST and sharing.may_offer and (frame := sharing.offer()) is not None:
            self._control.append(frame)

    # Handshake.

    def say(self, hello: Hello) -> None:
        """Send a hello, in clear."""
        self._outbound.put(hello.pack())

    def secure(self, peer: PeerId, keys: Agreed, cipher: Cipher, *, seal_bodies: bool) -> None:
        """Seal from here on, and prove to the other end that we can, and that large packets get there (`reaching`)."""
        self.peer, self._check = peer, keys.check
        self._outbound.secure(keys.sending, cipher, bodies=seal_bodies)
        self._inbound = Seal(keys.receiving, cipher)
        proof = keys.proof.ljust(kernel.segment(self.transport), b"\0")
        self._outbound.write(Frame(Kind.CONFIRM, NO_TAG, 0, 0, (proof,)), sealed=True)
        self._seal_bodies = seal_bodies

    def fail(self, error: IctError) -> None:
        """Drop the connection because of `error`."""
        if not self.closed:
            self._close(error)
            tuning.reset(self.transport)

    def hang_up(self, error: IctError) -> None:
        """Drop the connection because of `error`, after what has been written."""
        if not self.closed:
            self.transport.close()
            self._close(error)

    async def close(self, reason: IctError) -> None:
        """Let everything written arrive, then end the connection, within a second.

        Only our direction is closed at first: a socket that is closed with unread bytes resets the connection, and the
        other end would lose what it has not read yet.
        """
        if self.closed:
            return
        self._close(reason)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            self.transport.abort()

    def release(self) -> asyncio.Transport:
        """Give the transport away, before any frame; this object is done."""
        self.closed = True
        self._end_parts()
        return self.transport

    # What asyncio does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on `transport`."""
        self.transport = cast("asyncio.Transport", transport)
        self.host = shown_address(transport.get_extra_info("peername")).host
        self._wakeups = Wakeups(self.transport)
        self._outbound = Outbound(self.transport, self._high_water)
        self.backlog = Backlog(self.transport, self._outbound, self._high_water)
        self._renewal = Renewal(self.transport, self._clock())
        self._throttle = Throttle(self, self._outbound, self._renewal, self._clock)
        halves = self._outbound, self._wakeups
        self._liveness = Liveness(self, *halves, self._renewal, self._users, self._stall, self._clock)
        self.sharing = Sharing(self, self._outbound, self._rings)

    def eof_received(self) -> None:
        """Close when the other end has."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone. Whoever ends it by itself does so between two frames."""
        self._gone.set()
        if self.closed:
            return
        torn = self._header is not None or self._have
        why = f"reset: {exc}" if exc else "closed in the middle of a frame" if torn else None
        self._close(ConnectionLost(f"connection {why}") if why else None)

    def pause_writing(self) -> None:
        """The transport holds enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """The transport wants more."""
        self._paused = False
        self._outbound.resumed()
        self.pump()

    # What reading asks.

    def _hello_came(self, hello: Hello) -> None:
        self._owner.greeted(self, hello)

    def _confirmation_came(self, proof: bytes) -> None:
        self._check(proof)
        self._owner.confirmed(self)

    def _taker(self, header: Header) -> User | None:
        return self._owner.user(self, header)

    def _freed(self, position: int) -> None:
        self.send(Kind.FREED, second=position)

    def _uses(self, user: User) -> bool:
        return user in self._users

    # Writing.

    def _next_frame(self) -> Frame | None:
        if not self._confirmed:
            return None
        if self._control:
            return self._control.popleft()
        while self._willing:
            user, _ = self._willing.popitem(last=False)
            frame = user.next_frame()
            if frame is not None:
                if user in self._users:
                    self._willing[user] = None
                return frame
        return None

    # Ending.

    def _close(self, error: IctError | None) -> None:
        self.closed = True
        self._end_parts()
        self._users.clear()
        self._willing.clear()
        self._let_go()
        self._outbound.release()
        self._wakeups.end()
        self.ring = None
        self._owner.closed(self, error)

    def _end_parts(self) -> None:
        self.backlog.end()
        self._throttle.end()
        self._liveness.end()
        self.sharing.end()
