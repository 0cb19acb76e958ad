"""`Bulk`: what runs over one peer's bulk connections, by tag. Collectives attach, requests fetch, probes measure.

A tag belongs to one user here and one there. Frames of a tag that nobody has here are read and dropped: that is the
fence between attempts. Whoever has one is told when a connection of its own has gone.

What each of the three needs beside that is elsewhere: `attaching` for collectives, `probing`, and `streams` for what
is fetched and served.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ictp2p.bulk.attaching import Attaching
from ictp2p.bulk.collective import ANYBODY, Aborted, Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.desk import KINDS, Desk
from ictp2p.bulk.frames import Header, Kind, pack_measured
from ictp2p.bulk.inbound import CHUNKS
from ictp2p.bulk.keys import KeyAgreement
from ictp2p.bulk.lanes import Lanes
from ictp2p.bulk.limit import Ceiling
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.probing import Probing
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.reaching import AskDial, Dial, Relays
from ictp2p.bulk.splice import Shrink
from ictp2p.bulk.streams import MAX_REQUEST, Fetch, Handler, Probe, ProbeResult, Request, Service
from ictp2p.bulk.users import User
from ictp2p.collectives.channel import Attachment, Receiver, Slots
from ictp2p.collectives.running.windows import STAGING_BYTES
from ictp2p.concurrency.closing import close_all
from ictp2p.concurrency.tasks import Tasks
from ictp2p.errors import ConfigError, ConnectionLost, IctError
from ictp2p.types import Direction, PeerId, Transfer

OnTransfer: TypeAlias = Callable[[PeerId, Transfer], None]
"""Told of each transfer that has ended, and whom it was to or from."""


class Bulk:
    """All that one peer does over bulk connections. Implements `channel.Links`.

    Args:
        me: our id.
        keys: agrees on a connection's keys.
        dial: connects to a peer.
        profile: numbers.
        ask_dial: asks a peer to dial us; None: never ask.
        relays: names ways around; None: none.
        on_transfer: told every measurement.
        clock: monotonic seconds.
        random_bytes: gives nonces and tickets.
        membership: what all members of the mesh know and nobody else, at most 64 bytes: relays serve whoever proves to
            know it. Empty: nobody.
        shrink: told of hosts that may have lost large packets of ours.
        unlike: told of peers that dial us and seal where we do not, or the other way round.
    """

    def __init__(
        self,
        me: PeerId,
        keys: KeyAgreement,
        dial: Dial,
        *,
        profile: BulkProfile | None = None,
        ask_dial: AskDial | None = None,
        relays: Relays | None = None,
        on_transfer: OnTransfer | None = None,
        clock: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = os.urandom,
        membership: bytes = b"",
        shrink: Shrink = lambda host: None,
        unlike: Callable[[PeerId], None] = lambda peer: None,
    ) -> None:
        self.me = me
        self.profile = profile or BulkProfile()
        self.slots = Slots(STAGING_BYTES, self.profile.room)
        self._on_transfer = on_transfer
        self._clock = clock
        self._users: dict[tuple[PeerId, bytes], tuple[User, tuple[BulkConnection, ...]]] = {}
        """Whose a tag is, and the connections that it sends over."""
        self._desks: dict[BulkConnection, Desk] = {}
        self._ceiling = Ceiling(self.profile.ceiling, clock) if self.profile.ceiling else None
        self._services: dict[str, Service] = {}
        self._counter = 0
        self._session = random_bytes(8)
        ways: Relays = relays or (lambda _: ())
        members = Membership(membership)
        asks = dial, self.profile, ask_dial, ways, clock, random_bytes, members
        self._pool = Pool(me, self, keys, *asks, shrink, unlike)
        self.probing = Probing(self, self._pool, self._new_tag, clock)
        self.attaching = Attaching(self, self._pool, self._users, self._desks, clock)
        self._tasks = Tasks()
        self.lanes = Lanes(self._pool, self.probing.stripes, self.profile.stripes)

    def __repr__(self) -> str:
        return f"<Bulk {self.me[:8]} connections={self.connections} users={len(self._users)}>"

    @property
    def connections(self) -> int:
        """How many are open and ready, to all peers."""
        return len(self._pool)

    def accept(self, transport: asyncio.Transport) -> None:
        """Take over a connection that a peer dialed, past its preamble."""
        self._pool.accept(transport)

    async def connection(self, peer: PeerId, timeout: float) -> BulkConnection:
        """Give a warm connection to `peer`, or make one; raises as `Pool.connection`."""
        return await self._pool.connection(peer, timeout)

    def received(self, peer: PeerId) -> int:
        """Count the bytes that the connection on which `peer` is asked has brought, of whatever is under way there."""
        first = self._pool.warm(peer)
        return 0 if first is None else first.received

    async def answer_ticket(self, peer: PeerId, ticket: bytes) -> None:
        """Dial `peer`, which asked for it with `ticket`; raises as `Pool.answer_ticket`."""
        await self._pool.answer_ticket(peer, ticket)

    async def close(self) -> None:
        """End all connections and everything that runs over them; what was written still leaves, within a second."""
        await close_all(self._tasks.end, self._pool.close)

    def serve(self, kind: str, handler: Handler, limit: int | None = None) -> None:
        """Answer requests of `kind` with `handler` from now on; so many at a time of each connection, or `served`."""
        self._services[kind] = Service(handler, limit or self.profile.served)

    def collectives(self) -> list[tuple[PeerId, bytes]]:
        """Peers and tags of what is attached: no other frame reaches a collective."""
        return [key for key, (user, _) in self._users.items() if isinstance(user, Hold)]

    def attach(
        self,
        tag: bytes,
        receiver: Receiver,
        peers: Sequence[PeerId],
        *,
        timeout: float,
        rates: Sequence[float | None] | None = None,
        whole: bytes | None = None,
        call: str = "",
        beside: Collection[PeerId] = (),
    ) -> Coroutine[Any, Any, Attachment]:
        """Connect a collective to its neighbours (see `channel.Links`)."""
        return self.attaching.attach(
            tag, receiver, peers, timeout=timeout, rates=rates, whole=whole, call=call, beside=beside
        )

    def first_begun(self, tags: Mapping[PeerId, bytes]) -> Coroutine[Any, Any, PeerId]:
        """Wait until one of these peers has begun the collective that its tag names, and say which."""
        return self.attaching.first_begun(tags)

    def refuse(self, peer: PeerId, tag: bytes, reason: str) -> None:
        """Tell `peer` that we will have no part in a collective that we have not begun; forget what it said of it."""
        self.attaching.refuse(peer, tag, reason)

    def forgo(self, tag: bytes, call: str, peer: PeerId = ANYBODY) -> None:
        """Have no part in a collective that moves nothing here; whoever begins it with us is told what we call."""
        self.attaching.forgo(tag, Aborted("calls differ", (), call), peer)

    def give_up(self, tag: bytes, reason: str, suspects: Sequence[PeerId] = ()) -> None:
        """Have no part any more in a collective, whether we had begun it or not; whoever begins it with us is told."""
        self.attaching.give_up(tag, reason, suspects)

    async def request(
        self,
        peer: PeerId,
        kind: str,
        payload: bytes,
        destination: bytearray | memoryview,
        *,
        timeout: float,
        progress: Callable[[int], None] | None = None,
        over: BulkConnection | None = None,
        receipt: bool = False,
    ) -> int:
        """Ask `peer` for what its handler of `kind` yields, into `destination`; give the bytes received.

        Args:
            peer: whom to ask.
            kind: names the handler.
            payload: for the handler, less than 64 KiB.
            destination: writable and contiguous; a longer reply is an error, a shorter one is not.
            timeout: seconds for all of it. A peer that stalls is given up earlier.
            progress: told how many bytes are there, after each chunk.
            over: the connection to use; None for the first one.
            receipt: say that all of it is here, for which the handler waits (`streams.RECEIPT`). Where this raises, or
                is cancelled, that was not said.

        Raises:
            StateError: the handler failed, or there is none.
            NetworkError: no connection, it was lost, or the time is over.
        """
        body = msgspec.msgpack.encode(Request(kind, payload))
        if len(body) > MAX_REQUEST:
            raise ConfigError(f"request {kind!r} of {len(body)} bytes exceeds {MAX_REQUEST}")
        tag, fetch = self._new_tag(), Fetch(memoryview(destination).cast("B"), progress, self._clock)
        connection: BulkConnection | None = None
        settled = False
        try:
            async with asyncio.timeout(timeout):
                connection = over or await self._pool.connection(peer, timeout)
                self.join(peer, tag, fetch, connection)
                connection.send(Kind.REQUEST, tag, body=body)
                size = await fetch.result
            settled = True
        except TimeoutError:
            raise ConnectionLost(f"{peer} did not finish {kind!r} within {timeout:g} s") from None
        finally:
            self.part(peer, tag, fetch)
            if connection is not None and receipt:
                connection.send(Kind.RECEIPT if settled else Kind.CANCEL, tag)
            elif connection is not None and not fetch.ended:
                connection.send(Kind.CANCEL, tag)
            meter = fetch.meter
            del fetch  # it knows its error, and that this frame, with a destination that may be large
        if sample := meter.sample():
            self.measured(connection, tag, *sample)
        return size

    async def probe(self, peer: PeerId, size: int, *, timeout: float) -> ProbeResult:
        """Send up to `size` meaningless bytes to `peer`, for `BulkProfile.probe` seconds, and give what it measured.

        Raises:
            ConfigError: no such size.
            NetworkError: no connection, it was lost, or the time is over.
        """
        result = await self.probing.probe(peer, size, timeout)
        if result.size:  # else it was no longer wanted before it was its turn, or before its second frame
            self._report(peer, "out", result.size, result.seconds, result.limited, ended=result.told, probe=True)
        return result

    def distrust(self, peer: PeerId, *, restarted: bool = False) -> None:
        """Give up the direct connections to `peer` that nobody uses: nothing was heard of it for long, or it restarted.

        Its line may be cut, or its host have lost its power. Who needs it next would find a warm connection, wait until
        that has stalled, and only then look for a way; so it is given a new one, over others where it must be. What is
        under way may be heard of still, and has its own watch for stalls.
        """
        why = f"{peer} has restarted" if restarted else f"{peer} has fallen silent"
        self._pool.distrust(peer, why, young=restarted)

    def hasten(self, peer: PeerId) -> None:
        """What is under way with `peer`, which may be dead, ends soon if nothing is seen of it: see `Pool.hasten`."""
        self._pool.hasten(peer)

    def doubt(self, peer: PeerId) -> None:
        """What was to run with `peer` has failed: see `Pool.doubt`."""
        self._pool.doubt(peer)

    def stop_probes(self) -> None:
        """End all probes that are under way from here: the links are needed."""
        self.probing.stop()

    # What the pool asks (`pool.Tenant`).

    def user(self, connection: BulkConnection, header: Header) -> User | None:
        """Find who takes a frame; what opens something goes to the desk."""
        assert connection.peer is not None
        found, _ = self._users.get((connection.peer, header.tag), (None, None))
        if header.kind in KINDS and not isinstance(found, Probe):
            if header.kind is Kind.WHOLE and isinstance(found, Hold) and found.connection is connection:
                return found
            return self._desks.get(connection)
        if found is None and header.kind in CHUNKS:
            desk = self._desks.get(connection)
            return desk if desk is not None and desk.begun(header.tag) else None
        if isinstance(found, Hold) and found.inbound is not connection:
            found.heard.add(connection)
        return found

    def opened(self, connection: BulkConnection) -> None:
        """Put up a desk for a new connection."""
        self._desks[connection] = Desk(self, connection, self._services)
        self.attaching.opened(connection)
        self.probing.opened(connection)
        if self._ceiling is not None:
            connection.keep_under(self._ceiling)

    def lost(self, connection: BulkConnection, reason: IctError, *, whole: bool) -> None:
        """Tell everyone who used a connection that it has gone.

        But who needs nothing from us any more may close one connection while what it sent over others is on its way.
        """
        peer = connection.peer
        self._desks.pop(connection).lost(reason)
        self.attaching.lost(connection)
        self.probing.lost(connection)
        error = ConnectionLost(f"connection to {peer} lost: {reason}")
        assert peer is not None
        others = self._pool.among(peer)
        for key, (user, used) in [found for found in self._users.items() if found[0][0] == peer]:
            if connection not in used and not (isinstance(user, Hold) and user.needs(connection, whole=whole)):
                continue
            if whole and others and isinstance(user, Hold) and user.goes_on(others):
                self._users[key] = user, others
            else:
                user.lost(error)

    # What desks ask.

    def told(self, connection: BulkConnection, size: int, seconds: float, starved: bool) -> None:
        """The receiver of something that we sent has measured it."""
        assert connection.peer is not None
        self._report(connection.peer, "out", size, seconds, starved)
        if not self.profile.stripes or self._ceiling is not None:
            return
        first = self._pool.warm(connection.peer)
        if first is not None and self.probing.stripes.lacking(first):
            self._tasks.spawn(self.attaching.widen(first))

    def measured(
        self,
        connection: BulkConnection,
        tag: bytes,
        size: int,
        seconds: float,
        starved: bool,
        *,
        ended: float | None = None,
        probe: bool = False,
    ) -> None:
        """We have measured something that we received, or a probe: report it, and tell the sender.

        `ended`: when its last byte came, if that was not just now.
        """
        assert connection.peer is not None
        connection.send(Kind.MEASURED, tag, body=pack_measured(size, seconds, starved))
        self._report(connection.peer, "in", size, seconds, starved, ended=ended, probe=probe)

    def join(
        self, peer: PeerId, tag: bytes, user: User, connection: BulkConnection, *more: BulkConnection, kick: bool = True
    ) -> None:
        """Let `user` send on `connection`, and on `more`, and take what arrives from `peer` under `tag`.

        `kick` as there.
        """
        if connection.closed:
            user.lost(ConnectionLost(f"connection to {peer} was closed"))
            return
        self._users[peer, tag] = user, (connection, *more)
        for each in (connection, *more):
            each.join(user, kick=kick)

    def part(self, peer: PeerId, tag: bytes, user: User, *, ended: bool = False) -> None:
        """Forget `user`; nothing of it is touched any more. `ended`: it was a collective, which desks know."""
        if self._users.get((peer, tag), (None,))[0] is user:
            del self._users[peer, tag]
        for connection in self._pool.among(peer):
            connection.leave(user, tag)
            if ended:
                self._desks[connection].forget(tag)

    def _report(
        self,
        peer: PeerId,
        direction: Direction,
        size: int,
        seconds: float,
        limited: bool,
        *,
        ended: float | None = None,
        probe: bool = False,
    ) -> None:
        if self._on_transfer is not None:
            heard = self._clock() if ended is None else ended
            self._on_transfer(peer, Transfer(direction, size, seconds, limited, heard, probe))

    def _new_tag(self) -> bytes:
        self._counter += 1
        return self._session + self._counter.to_bytes(8, "big")
