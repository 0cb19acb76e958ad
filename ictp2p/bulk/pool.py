"""One peer's warm connections: which there are, who may still become one, and who waits for one.

How one is made is `reaching`, what both ends say to each other then `handshake`. Whoever dials us comes in by the same
door, and has so long to prove who it is. A relay's connections, and those that are made for it, pass through here too,
as far as their hellos.

If both ends dial at once there are two connections, and both stay: each side sends on the one it prefers (the one that
the lower id dialed), and whatever arrives is told apart by its tag, not by its connection. No race has to be resolved.
Those that one end has beside that, for itself, are nobody's first one (`reaching`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Protocol

from ictp2p.bulk import tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Hello, Purpose
from ictp2p.bulk.handshake import Handshake
from ictp2p.bulk.keys import KeyAgreement
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.reaching import AskDial, Dial, Reaching, Relays
from ictp2p.bulk.relay import Relay
from ictp2p.bulk.shared import Rings
from ictp2p.bulk.splice import Shrink
from ictp2p.bulk.upgrades import Upgrades
from ictp2p.bulk.users import User
from ictp2p.concurrency.closing import close_all
from ictp2p.edge.places import Places, network_of
from ictp2p.errors import (
    ConfigError,
    ConnectionLost,
    HandshakeFailed,
    IctError,
    PeerClosed,
    Unreachable,
    printable,
)
from ictp2p.types import PeerId

MOST_OF_ONE = 40
"""Connections that one peer may keep open to us, be it that it asked us to dial: as many as it may send over
(`stripes.MOST`), as many as we may have asked it for, because only it can dial, and some that ended without our
noticing."""

_PARTED = 1024
"""Peers to whom there is no connection any more: how many are remembered."""
_LOOKS = 3
"""Turns of the event loop for what has arrived already, before a handshake counts as late."""


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
    """All bulk connections of one peer (`users.Owner`). Arguments as `Bulk`'s."""

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
        shrink: Shrink,
        unlike: Callable[[PeerId], None],
    ) -> None:
        self.me = me
        self._tenant = tenant
        self._shrink = shrink
        self.user = tenant.user
        """As `users.Owner`."""
        self._profile = profile
        self._clock = clock
        self._rings = Rings(random_bytes, profile.rings) if profile.share_memory else None
        self._closed = False
        self._ready: dict[PeerId, list[BulkConnection]] = {}
        self._arrivals: dict[PeerId, list[asyncio.Event]] = {}
        self._parted: dict[PeerId, None] = {}
        """Peers whose last connection has ended: they may be no more, and dial nobody. The newest last."""
        self._opening: dict[PeerId, asyncio.Task[BulkConnection]] = {}
        self._half_open: dict[BulkConnection, asyncio.TimerHandle] = {}
        self._places: Places[BulkConnection] = Places(profile.half_open)
        """Of these, for those that were accepted."""
        self._greeting: dict[BulkConnection, asyncio.Future[None]] = {}
        handshake = self._handshake = Handshake(me, keys, profile.sealed, random_bytes, unlike)
        self._reaching = Reaching(self, handshake, dial, profile, ask_dial, relays, random_bytes, membership, shrink)
        self._relay = Relay(dial, ask_dial, relays, profile, random_bytes, membership, shrink)
        self._upgrades = Upgrades(self._reaching.dialed, clock, profile.stall)

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
        """Give the preferred one of them, the first, if there is any that is for both ends."""
        ready = self._ready.get(peer)
        return ready[0] if ready and not ready[0].beside else None

    def begin_on(self, peer: PeerId) -> BulkConnection | None:
        """As `warm`, for who is about to begin something there: over a relay a way is looked for (`upgrades`)."""
        warm = self.warm(peer)
        if warm is not None:
            self._upgrades.used(warm)
        return warm

    async def connection(self, peer: PeerId, timeout: float, *, patient: bool = False) -> BulkConnection:
        """Give a warm connection to `peer`, or make one within `timeout` seconds.

        Args:
            peer: whom to connect to; not ourselves.
            timeout: seconds.
            patient: leave it to the peer to dial first if its id is lower, for it wants the same; unless there was a
                connection before, whose end may have been the peer's.

        Raises:
            NetworkError: no way led to the peer; the message names each and how it failed.
            PeerClosed: this peer was closed.
        """
        if peer == self.me:
            raise ConfigError(f"{peer} cannot have a bulk connection to itself")
        try:
            async with asyncio.timeout(timeout):
                if patient and self.me > peer and not self.warm(peer) and peer not in self._parted:
                    await self.arrival(peer, min(self._profile.patience, timeout / 2))
                return self.begin_on(peer) or await self._opened(peer)
        except TimeoutError:
            if warm := self.warm(peer):  # it came in while we dialed in vain
                return warm
            raise Unreachable(f"no bulk connection to {peer} within {timeout:g} s") from None

    async def another(self, peer: PeerId) -> BulkConnection:
        """Make one more connection to `peer`; raises as `Reaching.another`."""
        return await self._reaching.another(peer)

    async def answer_ticket(self, peer: PeerId, ticket: bytes) -> None:
        """Dial `peer`, which asked for it with `ticket`; raises as `Reaching.answer`."""
        await self._reaching.answer(peer, ticket)

    def distrust(self, peer: PeerId, why: str, *, young: bool = False) -> None:
        """Give up the direct connections to `peer` that nobody uses: what comes next finds no dead one, but dials.

        Those in use have less time to show that they are alive (`hasten`).

        One that was made since the silence or the stall began shows that the way is open again, and stays, unless
        `young` ones are meant as well: those to a process that has ended lead to nobody, however new they are.
        """
        self.hasten(peer)
        before = math.inf if young else self._clock() - self._profile.stall
        for connection in self.among(peer):
            if connection.idle and connection.ready_at <= before and not connection.relayed:
                connection.fail(ConnectionLost(why))

    def hasten(self, peer: PeerId) -> None:
        """Give the direct connections to `peer` that are in use less time to show that it is alive.

        The others stay as they are: what is idle here may be in use there.
        """
        for connection in self.among(peer):
            if not connection.idle and not connection.relayed:
                connection.distrust()

    def doubt(self, peer: PeerId) -> None:
        """Give up the connections to `peer` that nobody uses any more, and that brought nothing when they were used.

        What was to run over them has failed, perhaps before they could count as stalled, and what comes next would find
        them again, each time. Where a relay stands still, its kernel takes what we send, and they never stall.
        """
        for connection in self.among(peer):
            if connection.idle and connection.silence >= self._profile.stall / 2:
                connection.fail(ConnectionLost(f"{peer} had nothing to say for {connection.silence:.0f} s"))

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        reason = PeerClosed(f"{self.me} was closed")
        for connection in tuple(self._half_open):
            connection.fail(reason)
        opening = tuple(self._opening.values())
        for task in opening:
            task.cancel()
        ready = [connection for kept in self._ready.values() for connection in kept]

        async def in_order() -> None:
            ends = (connection.close(reason) for connection in ready)
            await asyncio.gather(*opening, *ends, return_exceptions=True)

        def at_once() -> None:
            for connection in ready:
                connection.transport.abort()  # nothing new to those that have gone

        await close_all(self._upgrades.close, in_order, self._relay.close, at_once)

    # What connections ask (`users.Owner`).

    def greeted(self, connection: BulkConnection, hello: Hello) -> None:
        """Answer a hello, take an answer, or leave it to the relay."""
        said = connection.hello
        if hello.purpose is Purpose.REFUSAL and said is not None:
            reason = printable(hello.nonce.rstrip().decode("ascii", "replace"))
            raise HandshakeFailed(f"{said.target} refused: {reason}")
        if hello.purpose is Purpose.ANSWER and said is not None:
            self._handshake.answered(connection, said, hello)
        elif hello.purpose is Purpose.RELAY and hello.target != self.me and said is None:
            self._settled(connection)
            self._relay.join(connection, hello)
        elif hello.purpose is Purpose.TICKET and self._relay.take(connection, hello.ticket):
            self._settled(connection)
        elif hello.target == self.me and (said is None or hello.purpose is Purpose.RELAY):
            self._handshake.answer(connection, hello, beside=self._reaching.one_more(hello.ticket))
        else:
            raise HandshakeFailed(f"hello {hello.purpose.name} from {hello.source} to {hello.target} at {self.me}")

    def confirmed(self, connection: BulkConnection) -> None:
        """Keep a connection whose other end holds the keys."""
        peer = connection.peer
        assert peer is not None
        self._settled(connection)
        connection.ready_at = self._clock()
        connection.pace(self._profile.rate)
        if not connection.beside:
            self._parted.pop(peer, None)
        kept = self._ready.setdefault(peer, [])
        kept.append(connection)
        self._upgrades.ready(connection, kept)
        kept.sort(key=lambda each: (each.beside, each.superseded, each.dialed != (self.me < peer)))
        self._tenant.opened(connection)
        waiting = self._greeting.pop(connection, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        for arrived in self._arrivals.get(peer, ()):
            arrived.set()
        self._reaching.came(connection)
        wanted = [each for each in kept if each.wanted_there]
        if len(wanted) > MOST_OF_ONE:
            oldest = min(wanted, key=lambda each: each.ready_at)  # not the first one, which may be the newest
            oldest.fail(ConnectionLost(f"{peer} has opened {MOST_OF_ONE} others since"))

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
            self._upgrades.lost(kept)
            if not kept:  # who has no disk is another peer after each start, and a mesh runs for months
                del self._ready[peer]
            if not self.warm(peer):
                self._note_parted(peer)
            self._tenant.lost(connection, reason, whole=error is None)
            if error is not None and connection.standing:
                self._shrink(connection.host)
                self.distrust(peer, f"another connection: {reason}")

    # What ways to a peer ask (`reaching`).

    def begin(self, transport: asyncio.Transport, hello: Hello) -> BulkConnection:
        """Say `hello` on a connection that was dialed, which has to prove who it is before it counts.

        Raises:
            PeerClosed: this peer was closed meanwhile.
        """
        connection = self._take_over(transport, hello)
        connection.say(hello)
        return connection

    async def greet(self, transport: asyncio.Transport, hello: Hello, within: float | None = None) -> BulkConnection:
        """As `begin`, and give it once both ends hold its keys.

        Who gives up waiting leaves it to itself once our proof has left, if it is for both ends: the other end may have
        begun on it.

        Raises:
            IctError: why it ended before.
            TimeoutError: they did not `within` so many seconds; it has been ended.
        """
        connection, loop = self._take_over(transport, hello), asyncio.get_running_loop()
        self._greeting[connection] = ready = loop.create_future()
        timer = None if within is None else loop.call_later(within, _give_up, ready)
        connection.say(hello)
        try:
            await ready
        except TimeoutError:
            connection.fail(ConnectionLost("no longer wanted"))
            raise
        except asyncio.CancelledError:
            if connection.beside or connection.peer is None:
                connection.fail(ConnectionLost("no longer wanted"))
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return connection

    async def arrival(self, peer: PeerId, seconds: float) -> None:
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

    async def _opened(self, peer: PeerId) -> BulkConnection:
        """Wait for the one attempt to reach `peer`; who gives up waiting does not end it for others."""
        if self._closed:
            raise PeerClosed(f"{self.me} was closed")
        task = self._opening.get(peer)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._reaching.first(peer))
            self._opening[peer] = task
            task.add_done_callback(lambda done: self._forget(peer, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling() or not task.cancelled():
                raise
            raise PeerClosed(f"{self.me} was closed") from None  # else who waits would seem to have been cancelled
        finally:
            del task  # it knows its error, and that this frame

    def _forget(self, peer: PeerId, task: asyncio.Task[BulkConnection]) -> None:
        self._opening.pop(peer, None)
        if not task.cancelled():
            task.exception()  # whoever still waits has it; if nobody does, it is no news

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
        self._half_open[connection] = asyncio.get_running_loop().call_later(seconds, self._fail_late, connection, late)
        transport.resume_reading()
        return connection

    def _fail_late(self, connection: BulkConnection, reason: IctError) -> None:
        if connection.peer is not None:  # hellos came through, and what is larger did not
            self._shrink(connection.host)
        connection.fail(reason)

    def _note_parted(self, peer: PeerId) -> None:
        self._parted[peer] = None
        if len(self._parted) > _PARTED:
            del self._parted[next(iter(self._parted))]

    def _settled(self, connection: BulkConnection) -> None:
        self._places.leave(connection)
        timer = self._half_open.pop(connection, None)
        if timer is not None:
            timer.cancel()


def _give_up(ready: asyncio.Future[None], looks: int = _LOOKS) -> None:
    """End a wait, unless it was over before we came to it: the other end may use the connection already.

    After we were busy asyncio's own loop reads once from each socket before the timers that are due, and a handshake
    takes two reads, for nothing behind a hello may be read with it.
    """
    if ready.done():
        return
    if looks:
        asyncio.get_running_loop().call_soon(_give_up, ready, looks - 1)
    else:
        ready.set_exception(TimeoutError())
