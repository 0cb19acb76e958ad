"""One peer's warm connections, and every way to make one.

A connection is made in the first way that works: dial the peer; ask it over the control plane to dial us; go through a
relay; each begun a little after the one before (`ways`). Both ends then agree on fresh keys, whichever way the bytes
take (see `frames`). A relay does the same on behalf of others, so a path may take several relays.

If both ends dial at once there are two connections, and both stay: each side sends on the one it prefers (the one that
the lower id dialed), and whatever arrives is told apart by its tag, not by its connection. No race has to be resolved.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from ictp2p.bulk import tuning
from ictp2p.bulk.ciphers import UNKNOWN, cheapest, measured
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import MAX_HOPS, Header, Hello, Purpose, transcript
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.refusals import refusal
from ictp2p.bulk.relay import Relay
from ictp2p.bulk.shared import Rings
from ictp2p.bulk.users import User
from ictp2p.bulk.ways import first_way
from ictp2p.errors import (
    ConfigError,
    ConnectionLost,
    HandshakeFailed,
    IctError,
    PeerClosed,
    RemoteProtocolError,
    Unreachable,
)
from ictp2p.places import Places, network_of
from ictp2p.types import PeerId

KeyAgreement: TypeAlias = Callable[[PeerId, bytes], tuple[bytes, bytes]]
"""Given a peer and a context that both ends share and never repeat: our sending and our receiving key, 16 bytes each.
Raises `HandshakeFailed` for a peer whose public key is not known."""

Dial: TypeAlias = Callable[[PeerId, float], Awaitable[asyncio.Transport]]
"""Connects to a peer's listener within a timeout in seconds, past the preamble; nothing behind it has been read.
Raises a `NetworkError`."""

AskDial: TypeAlias = Callable[[PeerId, bytes], None]
"""Asks a peer, over the control plane, to call `answer_ticket` with our id and this ticket. Best effort.
Raises a `NetworkError` where that would be in vain, and the next way is tried at once."""

Relays: TypeAlias = Callable[[PeerId], Sequence[PeerId]]
"""Names the peers that may lead to a peer, best first."""


MOST_OF_ONE = 40
"""Connections that one peer may keep open to us: as many as it may send over (`stripes.MOST`), as many as we may have
asked it for, because only it can dial, and some that ended without our noticing."""

_MOST_LATE = 256
"""Tickets that are remembered once nobody waits for what answers them."""


class Tenant(Protocol):
    """What uses the connections: `Bulk`."""

    def user(self, connection: BulkConnection, header: Header) -> User | None:
        """Say who takes a frame; None: nobody."""
        ...

    def opened(self, connection: BulkConnection) -> None:
        """A connection is ready."""
        ...

    def lost(self, connection: BulkConnection, reason: IctError, *, whole: bool) -> None:
        """A connection that was ready has ended; `whole`: the other end closed it, and all it sent there is here."""
        ...


class Pool:
    """All bulk connections of one peer (`connection.Owner`). Arguments as `Bulk`'s."""

    def __init__(
        self,
        me: PeerId,
        tenant: Tenant,
        keys: KeyAgreement,
        dial: Dial,
        profile: BulkProfile,
        ask_dial: AskDial | None,
        relays: Relays,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        membership: Membership,
    ) -> None:
        self.me = me
        self._tenant = tenant
        self.user = tenant.user
        """As `users.Owner`."""
        self._keys = keys
        self._dial = dial
        self._profile = profile
        self._ask_dial = ask_dial
        self._relays = relays
        self._clock = clock
        self._random_bytes = random_bytes
        self._membership = membership
        self._rings = Rings(random_bytes, profile.rings) if profile.share_memory else None
        self._closed = False
        self._ready: dict[PeerId, list[BulkConnection]] = {}
        self._arrivals: dict[PeerId, list[asyncio.Event]] = {}
        self._opening: dict[PeerId, asyncio.Task[BulkConnection]] = {}
        self._late: deque[bytes] = deque(maxlen=_MOST_LATE)
        """Tickets with which we asked for one more connection, and for which nobody waits any longer."""
        self._half_open: dict[BulkConnection, asyncio.TimerHandle] = {}
        self._places: Places[BulkConnection] = Places(profile.half_open)
        """Of these, for those that were accepted."""
        self._greeting: dict[BulkConnection, asyncio.Future[None]] = {}
        self._relay = Relay(dial, ask_dial, relays, profile, random_bytes, membership)

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._ready.values())

    def accept(self, transport: asyncio.Transport) -> None:
        """Take over a connection that a peer dialed, past its preamble."""
        if self._closed:
            transport.abort()
            return
        connection = self._take_over(transport, None)
        gone = self._places.enter(connection, network_of(transport))
        if gone is not None:
            gone.fail(HandshakeFailed(f"{self._profile.half_open} connections have yet to prove who they are"))

    def among(self, peer: PeerId) -> tuple[BulkConnection, ...]:
        """Give the connections to `peer` that are ready, the preferred one first."""
        return tuple(self._ready.get(peer, ()))

    def warm(self, peer: PeerId) -> BulkConnection | None:
        """Give the preferred one of them, if there is any."""
        ready = self._ready.get(peer)
        return ready[0] if ready else None

    async def connection(self, peer: PeerId, timeout: float, *, patient: bool = False) -> BulkConnection:
        """Give a warm connection to `peer`, or make one within `timeout` seconds.

        Args:
            peer: whom to connect to; not ourselves.
            timeout: seconds.
            patient: leave it to the peer to dial first if its id is lower, for it wants the same.

        Raises:
            NetworkError: no way led to the peer; the message names each and how it failed.
            PeerClosed: this peer was closed.
        """
        if peer == self.me:
            raise ConfigError(f"{peer} cannot have a bulk connection to itself")
        try:
            async with asyncio.timeout(timeout):
                if patient and self.me > peer and not self.warm(peer):
                    await self._arrival(peer, min(self._profile.patience, timeout / 2))
                return self.warm(peer) or await self._opened(peer)
        except TimeoutError:
            raise Unreachable(f"no bulk connection to {peer} within {timeout:g} s") from None

    async def another(self, peer: PeerId) -> BulkConnection:
        """Make one more connection to `peer`, beside those that there are, and over no relay.

        It is ours alone: what the peer makes meanwhile for itself it may end, whatever we send over it.

        Raises:
            NetworkError: neither of us can dial the other.
        """
        ways: list[Callable[[], Coroutine[Any, Any, BulkConnection]]] = [partial(self._open_direct, peer)]
        if self._ask_dial is not None:
            ways.append(partial(self._open_asked, peer))
        return await first_way(ways, self._profile.patience, self._end_spare)

    async def answer_ticket(self, peer: PeerId, ticket: bytes) -> None:
        """Dial `peer`, which asked for it with `ticket`.

        Raises:
            NetworkError: it cannot be dialed from here either.
            PeerClosed: this peer was closed.
        """
        if len(ticket) != 16:
            raise RemoteProtocolError(f"ticket of {len(ticket)} bytes from {peer}, expected 16")
        hello = self._hello(Purpose.TICKET, peer, ticket=ticket)
        connection = self._take_over(await self._dial(peer, self._profile.handshake), hello)
        connection.say(hello)

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        reason = PeerClosed(f"{self.me} was closed")
        for connection in tuple(self._half_open):
            connection.fail(reason)
        tasks = tuple(self._opening.values())
        for task in tasks:
            task.cancel()
        ready = [connection for kept in self._ready.values() for connection in kept]
        await asyncio.gather(*tasks, *(c.close(reason) for c in ready), return_exceptions=True)
        await self._relay.close()

    # What connections ask (`connection.Owner`).

    def greeted(self, connection: BulkConnection, hello: Hello) -> None:
        """Answer a hello, take an answer, or leave it to the relay."""
        said = connection.hello
        if hello.purpose is Purpose.REFUSAL and said is not None:
            reason = hello.nonce.rstrip().decode("ascii", "replace")
            raise HandshakeFailed(f"{said.target} refused: {reason}")
        if hello.purpose is Purpose.ANSWER and said is not None:
            self._answered(connection, said, hello)
        elif hello.purpose is Purpose.RELAY and hello.target != self.me and said is None:
            self._settled(connection)
            self._relay.join(connection, hello)
        elif hello.purpose is Purpose.TICKET and self._relay.take(connection, hello.ticket):
            self._settled(connection)
        elif hello.target == self.me and (said is None or hello.purpose is Purpose.RELAY):
            self._answer(connection, hello)
        else:
            raise HandshakeFailed(f"hello {hello.purpose.name} from {hello.source} to {hello.target} at {self.me}")

    def confirmed(self, connection: BulkConnection) -> None:
        """Keep a connection whose other end holds the keys."""
        peer = connection.peer
        assert peer is not None
        self._settled(connection)
        connection.pace(self._profile.rate)
        kept = self._ready.setdefault(peer, [])
        kept.append(connection)
        kept.sort(key=lambda each: each.dialed != (self.me < peer))
        self._tenant.opened(connection)
        waiting = self._greeting.pop(connection, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        for arrived in self._arrivals.get(peer, ()):
            arrived.set()
        if connection.ticket in self._late:
            self._late.remove(connection.ticket)
            self._end_spare(connection)
        accepted = [each for each in kept if not each.dialed]  # the oldest first
        if len(accepted) > MOST_OF_ONE:
            accepted[0].fail(ConnectionLost(f"{peer} has opened {MOST_OF_ONE} others since"))

    def closed(self, connection: BulkConnection, error: IctError | None) -> None:
        """Forget a connection, and tell everyone who waits for it or uses it."""
        self._settled(connection)
        reason = error or ConnectionLost("closed by the other side")
        waiting = self._greeting.pop(connection, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(reason)
        peer = connection.peer
        if peer is not None and connection in (kept := self._ready.get(peer, [])):
            kept.remove(connection)
            if not kept:  # who has no disk is another peer after each start, and a mesh runs for months
                del self._ready[peer]
            self._tenant.lost(connection, reason, whole=error is None)

    # Ways to a peer.

    async def _opened(self, peer: PeerId) -> BulkConnection:
        """Wait for the one attempt to reach `peer`; who gives up waiting does not end it for others."""
        if self._closed:
            raise PeerClosed(f"{self.me} was closed")
        task = self._opening.get(peer)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(peer))
            self._opening[peer] = task
            task.add_done_callback(lambda done: self._forget(peer, done))
        try:
            return await asyncio.shield(task)
        finally:
            del task  # it knows its error, and that this frame

    def _forget(self, peer: PeerId, task: asyncio.Task[BulkConnection]) -> None:
        self._opening.pop(peer, None)
        if not task.cancelled():
            task.exception()  # whoever still waits has it; if nobody does, it is no news

    async def _open(self, peer: PeerId) -> BulkConnection:
        ways: list[Callable[[], Coroutine[Any, Any, BulkConnection]]] = [lambda: self._open_direct(peer)]
        if self._ask_dial is not None:
            ways.append(lambda: self._open_by_ticket(peer))
        relays = (relay for relay in self._relays(peer) if relay not in (peer, self.me))
        ways += [partial(self._open_through, relay, peer) for relay in relays]
        try:
            return await first_way(ways, self._profile.patience, lambda spare: None)
        except Unreachable as error:
            if warm := self.warm(peer):
                return warm
            raise Unreachable(f"no bulk connection to {peer}: {error}") from error

    async def _open_direct(self, peer: PeerId) -> BulkConnection:
        return await self._greet(await self._dial(peer, self._profile.handshake), self._hello(Purpose.DIRECT, peer))

    async def _open_by_ticket(self, peer: PeerId) -> BulkConnection:
        assert self._ask_dial is not None
        self._ask_dial(peer, self._random_bytes(16))
        await self._arrival(peer, self._profile.handshake)
        warm = self.warm(peer)
        if warm is None:
            raise Unreachable(f"{peer} did not dial us within {self._profile.handshake:g} s")
        return warm

    async def _open_asked(self, peer: PeerId) -> BulkConnection:
        """As `_open_by_ticket`, but take none that does not answer our ticket."""
        assert self._ask_dial is not None
        ticket, made = self._random_bytes(16), None
        self._ask_dial(peer, ticket)
        try:
            async with asyncio.timeout(self._profile.handshake):
                while made is None:
                    await self._arrival(peer, self._profile.handshake)
                    made = next((each for each in self.among(peer) if each.ticket == ticket), None)
            return made
        except TimeoutError:
            raise Unreachable(f"{peer} did not dial us once more within {self._profile.handshake:g} s") from None
        finally:
            if made is None:
                self._late.append(ticket)

    def _end_spare(self, connection: BulkConnection) -> None:
        """End one for which nobody waits any more; but both ends may have begun to send on what comes first."""
        if connection.peer is not None and self.warm(connection.peer) is not connection:
            connection.hang_up(ConnectionLost("no longer wanted"))

    async def _open_through(self, relay: PeerId, peer: PeerId) -> BulkConnection:
        transport = await self._dial(relay, self._profile.handshake)
        return await self._greet(transport, self._membership.proven(self._hello(Purpose.RELAY, peer)))

    # Handshakes.

    def _hello(self, purpose: Purpose, peer: PeerId, *, ticket: bytes = bytes(16)) -> Hello:
        hops = MAX_HOPS if purpose is Purpose.RELAY else 0
        costs = measured() if self._profile.sealed else UNKNOWN
        return Hello(purpose, self.me, peer, self._random_bytes(32), ticket, self._profile.sealed, hops, costs)

    def _take_over(self, transport: asyncio.Transport, hello: Hello | None) -> BulkConnection:
        if self._closed:  # while it was dialed: nobody would end it
            transport.abort()
            raise PeerClosed(f"{self.me} was closed")
        profile = self._profile
        connection = BulkConnection(self, self._clock, profile.stall, profile.high_water, hello, self._rings)
        tuning.suit(transport)
        transport.pause_reading()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        relayed = hello is not None and hello.purpose is Purpose.RELAY  # the relay has a handshake of its own to make
        seconds = profile.handshake * (2 if relayed else 1)
        late = HandshakeFailed(f"no hello and keys within {seconds:g} s")
        self._half_open[connection] = asyncio.get_running_loop().call_later(seconds, connection.fail, late)
        transport.resume_reading()
        return connection

    async def _greet(self, transport: asyncio.Transport, hello: Hello) -> BulkConnection:
        connection = self._take_over(transport, hello)
        self._greeting[connection] = ready = asyncio.get_running_loop().create_future()
        connection.say(hello)
        try:
            await ready
        except asyncio.CancelledError:
            connection.fail(ConnectionLost("no longer wanted"))
            raise
        return connection

    def _answered(self, connection: BulkConnection, said: Hello, hello: Hello) -> None:
        if (hello.source, hello.target) != (said.target, self.me):
            raise HandshakeFailed(f"{hello.source} answered for {said.target}")
        if hello.sealed != said.sealed:
            raise HandshakeFailed(f"{hello.source} has sealing {hello.sealed}, this peer {said.sealed}")
        keys = self._keys(hello.source, transcript(said, hello))
        cipher = cheapest(said.costs, hello.costs)
        connection.secure(hello.source, *keys, cipher, seal_bodies=self._profile.sealed)

    def _answer(self, connection: BulkConnection, hello: Hello) -> None:
        own = self._hello(Purpose.ANSWER, hello.source)
        try:
            if hello.sealed != own.sealed:
                raise HandshakeFailed("one side seals, one does not")
            keys = self._keys(hello.source, transcript(hello, own))
        except (HandshakeFailed, RemoteProtocolError) as error:
            connection.say(refusal(hello, str(error)))
            connection.hang_up(error)
            return
        connection.dialed, connection.ticket = False, hello.ticket
        connection.relayed = hello.purpose is Purpose.RELAY
        connection.say(own)
        connection.secure(hello.source, *keys, cheapest(hello.costs, own.costs), seal_bodies=own.sealed)

    def _settled(self, connection: BulkConnection) -> None:
        self._places.leave(connection)
        timer = self._half_open.pop(connection, None)
        if timer is not None:
            timer.cancel()

    async def _arrival(self, peer: PeerId, seconds: float) -> None:
        """Wait until a connection to `peer` is ready, whoever dialed it, or the time is over."""
        arrived, waiting = asyncio.Event(), self._arrivals.setdefault(peer, [])
        waiting.append(arrived)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await arrived.wait()
        finally:  # nothing is kept of a peer that never came
            waiting.remove(arrived)
            if not waiting:
                del self._arrivals[peer]
