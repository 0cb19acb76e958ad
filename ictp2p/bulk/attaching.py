"""Collectives on the connections of one peer: how they begin together, share a connection, and let go of it.

Neighbours do not begin at the same moment. A collective is sent little before it has attached, which each end tells
the other (`Kind.BEGIN`), so little of it can come in vain. Who is early is remembered, and the chunks that it may have
sent along are kept (`desk`, `early`); who comes later catches up with all that, on whichever connection it was said. A
neighbour that has given up is heard of in the same way: it would have failed us an instant ago. What it said went with
its connection, if that has ended since; so whoever gave up says it again to those who begin later (`_GIVEN_UP`).

Several collectives may be on one connection, each at the rate that its plan gives it, and what they may send together
is the sum. One that has no rate goes over all connections that gain by it (`stripes`), also over those that are made
while it is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ictp2p.bulk.collective import ANYBODY, MOST_WORDS, Aborted, Attached, Call, Hold
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.desk import Desk
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.stripes import Stripe
from ictp2p.bulk.users import User
from ictp2p.collectives.channel import Attachment, ParticipantLost, Receiver
from ictp2p.errors import ConfigError, NetworkError, PeerClosed
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from ictp2p.bulk.hub import Bulk

_GIVEN_UP = 1024
"""Collectives that were given up, for each neighbour that had a part in one: how many are remembered."""
Users: TypeAlias = MutableMapping[tuple[PeerId, bytes], tuple[User, tuple[BulkConnection, ...]]]
"""Whose a tag is, and the connections that it sends over."""


class Attaching:
    """One peer's collectives.

    Args:
        bulk: whose they are.
        pool: its connections.
        users: of all its tags.
        desks: of its connections, which know what came before we had begun.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        bulk: Bulk,
        pool: Pool,
        users: Users,
        desks: Mapping[BulkConnection, Desk],
        clock: Callable[[], float],
    ) -> None:
        self._bulk = bulk
        self._pool = pool
        self._users = users
        self._desks = desks
        self._clock = clock
        self._rates: dict[BulkConnection, dict[Hold, float]] = {}
        """Of each connection, the rates of those on it that have one."""
        self._awaited: dict[tuple[PeerId, bytes], asyncio.Future[PeerId]] = {}
        self._given_up: OrderedDict[tuple[PeerId, bytes], bytes] = OrderedDict()
        """What neighbours were told as we gave a collective up: of the last ones."""
        self._called: dict[bytes, dict[Hold, None]] = {}
        """By its tag, the holds of each collective that is under way and says what is called."""

    async def attach(
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
    ) -> Attachment:
        """Connect a collective to its neighbours (see `channel.Links`)."""
        if not self._users.keys().isdisjoint([(peer, tag) for peer in peers]):
            raise ConfigError("a collective with this tag is already running here")
        results: Sequence[BulkConnection | BaseException | None] = [self._pool.begin_on(peer) for peer in peers]
        if None in results:
            results = await asyncio.gather(
                *(self._pool.connection(peer, timeout, patient=True) for peer in peers), return_exceptions=True
            )
        ready = {p: c for p, c in zip(peers, results, strict=True) if isinstance(c, BulkConnection) and not c.closed}
        said = Call.of(call, (*peers, *beside))
        holds = [
            Hold(receiver, p, tag, connection, self._clock, self._bulk.measured, said)
            for p, connection in ready.items()
        ]
        attached = Attached(holds, self._release, self._note, self._bulk.profile.stall)
        paces = dict(zip(peers, rates, strict=True)) if rates else {}
        for hold in holds:
            self._hold(hold, paces.get(hold.peer), whole)
        if call and holds:
            self._tell_strangers(holds[0])
        if len(ready) < len(peers):
            missing = {p: c for p, c in zip(peers, results, strict=True) if p not in ready}
            for peer in missing:
                self._note(peer, tag, msgspec.msgpack.encode(Aborted("not reached", (peer,))))
            raise await _without(missing, attached)  # which no frame knows by name: it knows them, and the tensors
        return attached

    async def first_begun(self, tags: Mapping[PeerId, bytes]) -> PeerId:
        """Wait until one of these peers has begun the collective that its tag names, and say which."""
        for peer, tag in tags.items():
            if any(self._desks[connection].begun(tag) for connection in self._pool.among(peer)):
                return peer
        waiter: asyncio.Future[PeerId] = asyncio.get_running_loop().create_future()
        self._awaited.update(dict.fromkeys(tags.items(), waiter))
        try:
            return await waiter
        finally:
            for pair in tags.items():
                self._awaited.pop(pair, None)

    def refuse(self, peer: PeerId, tag: bytes, reason: str) -> None:
        """Tell `peer` that we will have no part in a collective that we have not begun; forget what it said of it."""
        body = msgspec.msgpack.encode(Aborted(reason, ()))
        for each in self._pool.among(peer):
            self._desks[each].forget(tag)
            self._desks[each].early.forget(tag)
        self._note(peer, tag, body)
        if (connection := self._pool.warm(peer)) is not None:
            connection.send(Kind.ABORT, tag, body=body)

    def forgo(self, tag: bytes, why: Aborted, peer: PeerId) -> None:
        """A collective that has not begun here is over: who begins it with us is told `why`.

        `peer`: with whom it would be, or `ANYBODY`.
        """
        body = msgspec.msgpack.encode(why)
        self._note(peer, tag, body)
        for connection, desk in self._desks.items():
            if peer in (ANYBODY, connection.peer) and desk.begun(tag):
                desk.forget(tag)
                desk.early.forget(tag)
                connection.send(Kind.ABORT, tag, body=body)

    def give_up(self, tag: bytes, reason: str, suspects: Sequence[PeerId]) -> None:
        """A collective is over here, perhaps before it began: who begins it with us is told, unless we know why."""
        if (ANYBODY, tag) not in self._given_up:
            self.forgo(tag, Aborted(reason[:MOST_WORDS], tuple(suspects)), ANYBODY)

    def _note(self, peer: PeerId, tag: bytes, why: bytes) -> None:
        """A collective was given up here, of which the neighbour may have heard nothing."""
        self._given_up[peer, tag] = why
        if len(self._given_up) > _GIVEN_UP:
            self._given_up.popitem(last=False)

    def opened(self, connection: BulkConnection) -> None:
        """A connection is ready."""
        self._rates[connection] = {}

    def lost(self, connection: BulkConnection) -> None:
        """A connection has gone."""
        del self._rates[connection]

    async def widen(self, first: BulkConnection) -> None:
        """Make more connections, and let what is under way use them, unless it goes on without the first one."""
        with contextlib.suppress(PeerClosed):  # we are going: nobody waits for them
            await self._bulk.probing.stripes.double(first)
        if first.closed:
            return
        for hold, _ in tuple(self._users.values()):
            if isinstance(hold, Hold) and hold.connection is first and hold.striped:
                self._stripe(hold)
                hold.kick()

    # What desks say.

    def begun(self, connection: BulkConnection, tag: bytes, checksum: int, *, again: int) -> None:
        """A peer takes part in a collective; the first `again` chunks that came early it has not kept.

        `checksum`: of what it calls.
        """
        assert connection.peer is not None
        waiter = self._awaited.get((connection.peer, tag))
        if waiter is not None and not waiter.done():
            waiter.set_result(connection.peer)
        hold = self._holding(connection, tag)
        if hold is not None:
            hold.begun(connection, checksum, again=again)
        elif (why := self._given_up.get((connection.peer, tag)) or self._given_up.get((ANYBODY, tag))) is not None:
            self._desks[connection].forget(tag)
            connection.send(Kind.ABORT, tag, body=why)
        elif (ours := self._calling(tag)) is not None and connection.peer not in ours.call.neighbours:
            ours.differ(connection.peer, connection)

    def catch_up(self, connection: BulkConnection, header: Header, body: memoryview) -> bool:
        """Hand over a chunk that began to arrive before we had begun; False if we have not begun yet."""
        hold = self._holding(connection, header.tag)
        if hold is not None:
            hold.catch_up(header.kind is Kind.PARTIAL, header.first, header.second, body)
        return hold is not None

    def aborted(self, connection: BulkConnection, tag: bytes, why: Aborted) -> None:
        """A peer has given a collective up."""
        hold = self._holding(connection, tag)
        if hold is not None:
            hold.aborted(why, self._pool.me)
            return
        peer, ours = connection.peer, self._calling(tag) if why.call else None
        if peer is not None and ours is not None and peer not in ours.call.neighbours:
            ours.differs(peer, why, self._pool.me)  # a neighbour says so of a part that is over here, or yet to begin

    # One neighbour.

    def _calling(self, tag: bytes) -> Hold | None:
        """Any hold of a collective that is under way here, and says what is called."""
        return next(iter(self._called.get(tag, ())), None)

    def _holding(self, connection: BulkConnection, tag: bytes) -> Hold | None:
        assert connection.peer is not None
        user, _ = self._users.get((connection.peer, tag), (None, None))
        return user if isinstance(user, Hold) else None

    def _hold(self, hold: Hold, rate: float | None, whole: bytes | None) -> None:
        """Attach one neighbour, and catch up with what it has already said, on whichever connection."""
        peer, tag, connection, most = hold.peer, hold.tag, hold.connection, self._bulk.profile.ceiling
        if hold.call.words:
            self._called.setdefault(tag, {})[hold] = None
        if rate is not None or most is not None:
            self._pace(hold, most if rate is None or (most is not None and most < rate) else rate)
        ready = self._pool.among(peer)
        again = sum(self._desks[each].early.dropped(tag) for each in ready)
        rested = connection.wake()
        if whole is None:
            # before any chunk: see `EarlyChunks`
            connection.send(Kind.BEGIN, tag, first=again, second=hold.call.checksum, body=bytes(rested))
        else:
            if rested > len(whole):
                connection.send(Kind.ALIVE, body=bytes(rested))
            connection.send(Kind.WHOLE, tag, first=again, second=hold.call.checksum, body=whole)
        self._bulk.join(peer, tag, hold, connection, kick=whole is None)
        if rate is None and most is None and whole is None:
            self._stripe(hold)
        for each in ready:
            desk = self._desks.get(each)
            if desk is not None and desk.knows(tag):
                self._catch_up(hold, each, desk)

    def _tell_strangers(self, ours: Hold) -> None:
        """Tell those who take us for a neighbour in this collective, and are none of ours: they call another one."""
        begun = [(each.peer, each) for each, desk in self._desks.items() if desk.begun(ours.tag)]
        for peer, connection in begun:
            if peer is not None and peer not in ours.call.neighbours:
                ours.differ(peer, connection)

    def _stripe(self, hold: Hold) -> None:
        """Let chunks go over all connections that gain by it."""
        hold.striped, used = True, hold.connections
        more = [Stripe(hold, each) for each in self._bulk.probing.stripes.beside(hold.connection) if each not in used]
        hold.stripes = [*hold.stripes, *more]
        for stripe in more:
            if rested := stripe.connection.wake():
                stripe.connection.send(Kind.ALIVE, body=bytes(rested))
            stripe.connection.join(stripe, kick=False)
        for each in hold.connections if hold.stripes else ():
            each.backlog.refill()
        self._users[hold.peer, hold.tag] = hold, tuple(hold.connections)

    def _catch_up(self, hold: Hold, connection: BulkConnection, desk: Desk) -> None:
        """Tell a collective what its neighbour has said of it before; if it gave up, no more than that.

        What it sent before may be all that we need. But it has failed there, and would have failed here an instant ago.
        """
        early = desk.early.take(hold.tag)
        if (why := desk.aborted(hold.tag)) is not None:
            hold.aborted(why, self._pool.me)
            return
        if desk.begun(hold.tag):
            hold.begun(connection, desk.called(hold.tag))
        for header, body in early:
            hold.catch_up(header.kind is Kind.PARTIAL, header.first, header.second, body)

    def _release(self, hold: Hold) -> None:
        if hold in self._rates.get(hold.connection, ()):
            self._pace(hold, None)
        hold.end()
        if hold in (calling := self._called.get(hold.tag, {})):
            del calling[hold]
            if not calling:
                del self._called[hold.tag]
        for stripe in hold.stripes:
            stripe.connection.leave(stripe, hold.tag)
        hold.stripes = ()  # in a cycle its tensors would stay until the garbage collector comes
        self._bulk.part(hold.peer, hold.tag, hold, ended=True)
        hold.report()

    def _pace(self, hold: Hold, rate: float | None) -> None:
        """Let a connection send what those on it may together: `hold` at `rate`, or, with None, any rate or no more."""
        rates = self._rates.get(hold.connection)  # None: it has gone
        if rates is None or (rates.pop(hold, None) is None and rate is None):
            return
        if rate is not None:
            rates[hold] = rate
        limits = (sum(rates.values()) or None, self._bulk.profile.rate, self._bulk.profile.ceiling if rates else None)
        hold.connection.pace(min((limit for limit in limits if limit is not None), default=None))


async def _without(missing: Mapping[PeerId, object], attached: Attached) -> BaseException:
    """Give a collective up that does not reach all of its neighbours; gives the error to raise."""
    reasons = {p: "its connection ended meanwhile" if isinstance(c, BulkConnection) else c for p, c in missing.items()}
    text = "; ".join(f"{peer}: {reason}" for peer, reason in reasons.items())
    lost = ParticipantLost(f"not reached: {text}", list(missing))
    await attached.abort(str(lost), lost.suspects)
    for error in missing.values():
        if isinstance(error, BaseException) and not isinstance(error, NetworkError | PeerClosed):
            return error
    return lost
