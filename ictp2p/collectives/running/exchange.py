"""Which chunk may be sent when: the collective as a pure machine, one per participant.

It knows a plan, who we are, and what has arrived. It says what may leave (`next_send`, pulled whenever the
connection to that participant takes more) and which chunks the root may finish. It moves no bytes.

**Why nothing can deadlock.** All chunks of a share leave in ascending order along each edge of its trees. They may
overtake each other where several connections carry them; what has come too early waits in its place, and counts once
all before it are there. So counters, and what is beyond them, are the whole state. Three facts:

1. *Results never wait.* A result lands in the output itself and so needs no room that could be missing.
2. *A contribution always finds room.* A participant may be at most `window` chunks of a share ahead of the
   results that it holds of that share. Holding the result of chunk c proves that our parent has used up our
   partial of c, so the parent never holds more than `window` of our chunks and keeps that room aside for this
   edge alone. The window follows from the plan, which both ends agreed on. It is never shared between shares or
   senders: that is what could deadlock (one sender's later chunks would take the room that another's earlier chunk
   needs). No credit message is needed.
3. *Nothing not ready is ever queued.* `next_send` picks among chunks that are complete here, so a connection's
   queue holds nothing that waits for something else, and a reader never has to stop reading.

Take the first unfinished chunk of any share. Its leaves hold all earlier results once these are delivered, so
their window is open; by induction up the tree each inner participant gets all its children's partials, whose
room is reserved; the root finishes; the result descends by (1). The first unfinished chunk always advances.

**Why all shares end at one time**, as the planner reckoned. Among several chunks that may go to one participant that
goes first of whose share the least part has gone. By the number of the chunk alone short shares would be done early,
and the links that only they use would lie idle while the long ones go on. Contributions have a head start
of as much as a share may be ahead: the last result waits for the last contribution to it, and if both left at the end a
line would lie idle for as long as these are on their way.

Chunks for different participants share our line too, and a line divides itself evenly among connections, not by what
they have to carry. So none runs ahead of the one that is furthest behind by more than a part of itself (`lane.LEAD`):
whoever is ahead waits, and whoever is behind has its part of the line. It is no new way to wait for each other:
a chunk that is held back waits for one of which less has gone, here; that one for one of the same share at another
participant, of which no more has gone; and so on, until the least of all, which waits for nobody: what has a head
start before it is no more than so many chunks.

What has come a long way lags by as many of its chunks as it took hops, and whoever waited for that would leave lines
idle while it is on its way. So a lead is as long as that at least (`lane`).

**Starting.** Nothing is sent to a participant that has not said that it began this very round (`begun`): its
buffers are there, and frames of another attempt cannot be mistaken for ours. But some chunks may go to each ahead of
that (`next_early`), for which the other end keeps room or asks again: that saves the round trip to begin with.
"""

from __future__ import annotations

from collections import Counter

from ictp2p.collectives.channel import DIFFER
from ictp2p.collectives.plan import NO_PARENT, Plan
from ictp2p.collectives.running.lane import EACH, Lane, Piece, lanes
from ictp2p.collectives.running.windows import MIN_WINDOW
from ictp2p.errors import RemoteProtocolError

_STEP = 0.25
"""Part of a lead that must be free before those who were held back are told: else they would be for every chunk."""


class Exchange:
    """One participant's side of one collective.

    Args:
        plan: a validated plan.
        me: our index in it.
        partial_bytes: the most bytes that a partial chunk takes; all participants must give the same.
        reduce: False for a broadcast: the roots hold the results from the start.
    """

    def __init__(self, plan: Plan, me: int, partial_bytes: int, *, reduce: bool = True) -> None:
        self.me = me
        self._plan = plan
        self._reduce = reduce
        self._begun: set[int] = set()
        self._early: Counter[int] = Counter()
        """How many chunks went to whom before it had begun."""
        self._lanes = lanes(plan, me, partial_bytes, reduce=reduce)
        self.neighbours: tuple[int, ...] = tuple(sorted({n for lane in self._lanes for n in lane.neighbours}))
        """The participants that we exchange anything with."""
        self._towards = self._flows()
        self._left = sum(lane.owed for lane in self._lanes)
        self._shortest_lead = min((lane.lead for lane in self._lanes), default=1.0)
        self._behind = 0.0
        """What had gone of the share that was furthest behind here, as a part, when that was looked at last."""
        self._held: set[int] = set()
        """Whom nothing is sent to until others have caught up."""
        self._release_at = 1.0
        """What must have gone of every share, as a part, for them to be sent to again."""
        self._caught_up = False
        """Whether something has gone since of what was furthest behind."""

    def begun(self, peer: int) -> None:
        """Note that `peer` has begun this round: from now on it may be sent to."""
        self._begun.add(peer)

    def limit(self, peer: int, chunks: int) -> None:
        """Let our partials of each share run ahead towards `peer` by at most `chunks`, at least two.

        A choice of the sender alone: more than keeps the link busy only falls out of the caches before it is used.
        Where the plan gives room, a link further up is long: then what keeps the next one busy is not enough.
        """
        for lane in self._lanes:
            if lane.reduce_parent == peer and not lane.share.room:
                lane.window = min(lane.window, max(MIN_WINDOW, chunks))

    def spread(self, peer: int, connections: int) -> None:
        """Let shares that go to `peer` run so far ahead of others that each of these connections has something to send.

        Where losses slow each of them down (`bulk.headroom`), a chunk is on its way for longer than a lead lasts.
        """
        for lane in self._lanes:
            if peer == lane.reduce_parent or peer in lane.followers:
                lane.lead = max(lane.lead, EACH * connections / max(1, lane.chunks) if connections > 1 else 0.0)
        self._shortest_lead = min((lane.lead for lane in self._lanes), default=1.0)

    def expect(self, peer: int, piece: Piece) -> None:
        """Check that `piece` is one that `peer` may send now, before its bytes are taken.

        Raises:
            RemoteProtocolError: it is not, and why.
        """
        if not 0 <= piece.share < len(self._lanes):
            raise RemoteProtocolError(f"participant {peer} sent share {piece.share} of {len(self._lanes)}")
        lane = self._lanes[piece.share]
        wanted = lane.wanted(peer, partial=piece.partial)
        if wanted != piece.chunk or wanted >= lane.chunks:
            self._expect_beyond(lane, peer, piece, wanted)
        if piece.partial and piece.chunk >= lane.used + lane.room:
            raise RemoteProtocolError(f"participant {peer} sent {piece} beyond its window of {lane.room} chunks")

    def _expect_beyond(self, lane: Lane, peer: int, piece: Piece, wanted: int | None) -> None:
        """Check what is not the very next one: it may have overtaken that, but not have been here before."""
        seen = lane.beyond.get((peer, piece.partial), ())
        if wanted is None or not wanted < piece.chunk < lane.chunks or piece.chunk in seen:
            due = "nothing" if wanted is None else f"chunk {wanted} of {lane.chunks}"
            raise RemoteProtocolError(f"participant {peer} sent {piece}, expected {due}{DIFFER}")

    def arrived(self, peer: int, piece: Piece) -> list[Piece]:
        """Note a whole chunk from `peer`; give the chunks that we, as their root, have to finish now, in order."""
        self.expect(peer, piece)
        lane = self._lanes[piece.share]
        if not piece.partial:
            lane.done = lane.count(peer, piece, lane.done)
            self._left -= 1
            return []
        lane.arrived[peer] = lane.count(peer, piece, lane.arrived[peer])
        lane.ready = min(lane.arrived.values())
        return self._finish(piece.share) if lane.reduce_parent == NO_PARENT else []

    def alone(self) -> list[Piece]:
        """Give the chunks that nobody else contributes to: all of them, when we are the only participant."""
        if not self._reduce:
            return []
        lonely = [n for n, lane in enumerate(self._lanes) if lane.reduce_parent == NO_PARENT and not lane.children]
        return [piece for number in lonely for piece in self._finish(number)]

    def next_send(self, peer: int) -> Piece | None:
        """Take the next chunk that may go to `peer` now. The caller sends it: it is not offered again."""
        if peer not in self._begun:
            return None
        return self._next(peer)

    def next_early(self, peer: int, chunks: int) -> Piece | None:
        """Take the next chunk for a participant that has not begun; `chunks` of them at most."""
        if peer in self._begun or self._early[peer] >= chunks:
            return None
        piece = self._next(peer)
        if piece is not None:
            self._early[peer] += 1
        return piece

    def planned(self, peer: int) -> int:
        """Count the chunks that the plan has from us for `peer`."""
        return sum(self._lanes[number].chunks for _, number in self._towards[peer])

    def longest(self, peer: int) -> int:
        """Give the elements of the longest chunk for `peer`."""
        return max((self._lanes[number].longest(self._plan.chunk) for _, number in self._towards[peer]), default=0)

    def _next(self, peer: int) -> Piece | None:
        best = self._best(peer)
        if best is None:
            return None
        chunk, partial, number = best
        lane = self._lanes[number]
        self._caught_up = self._caught_up or chunk / lane.chunks < self._release_at  # rounded as `_gone` is
        self._left -= 1
        if partial:
            lane.sent += 1
        else:
            lane.passed[peer] += 1
        return Piece(partial, number, chunk)

    def released(self) -> tuple[int, ...]:
        """After a send: name those who were held back and may be sent to again, because others have caught up."""
        if not (self._held and self._caught_up):
            return ()
        self._caught_up, self._behind = False, self._least_gone()
        if self._behind < self._release_at:
            return ()
        free, self._held, self._release_at = tuple(sorted(self._held)), set(), 1.0
        return free

    def _is_ahead(self, part: float) -> bool:
        """Whether there is a share of which not even this part has gone."""
        if part > self._behind:
            self._behind = self._least_gone()
        return part > self._behind

    def _least_gone(self) -> float:
        parts = (self._gone(peer, *flow) for peer, flows in self._towards.items() for flow in flows)
        return min(parts, default=1.0)

    def _gone(self, peer: int, partial: bool, number: int) -> float:
        lane = self._lanes[number]
        return (lane.sent if partial else lane.passed[peer]) / lane.chunks

    def _best(self, peer: int) -> tuple[int, bool, int] | None:
        """Find (chunk, partial, share) of what should go next.

        None as well if even that of which the least has gone is so far ahead that `peer` is to wait: then `released`
        names it.
        """
        best = self._first(peer, head_start=True)
        if best is not None and self._too_far(best):
            best = self._first(peer, head_start=False)
            if best is not None and self._too_far(best):
                self._held.add(peer)
                self._release_at = min(self._release_at, self._behind + _STEP * self._shortest_lead)
                return None
        return best

    def _first(self, peer: int, *, head_start: bool) -> tuple[int, bool, int] | None:
        """Find (chunk, partial, share) of which the least has gone; of equals the first, which is a contribution."""
        best, least = None, float("inf")
        for partial, number in self._towards[peer]:
            lane = self._lanes[number]
            if partial:
                chunk, end = lane.sent, min(lane.ready, lane.done + lane.window)
                part = chunk / lane.chunks - lane.lead * head_start
            else:
                chunk, end = lane.passed[peer], lane.done
                part = chunk / lane.chunks
            if chunk < end and part < least:
                best, least = (chunk, partial, number), part
        return best

    def _too_far(self, best: tuple[int, bool, int]) -> bool:
        chunk, _, number = best
        lane = self._lanes[number]
        return self._is_ahead(chunk / lane.chunks - lane.lead)

    def contributors(self, share: int) -> tuple[int, ...]:
        """List whose partials are added at this participant for `share`, without our own, ascending."""
        return self._lanes[share].children

    def copies(self, share: int) -> int:
        """Count the participants that we send each result of `share` to."""
        return len(self._lanes[share].followers)

    def is_leaf(self, share: int, node: int) -> bool:
        """Say whether `node` contributes to `share` only what is its own: then it sends it as it is."""
        lane = self._lanes[share]
        return not lane.children if node == self.me else node in lane.leaves

    def downstream(self, piece: Piece) -> tuple[int, ...]:
        """Name whom a chunk that has just arrived may let us send to.

        A result goes on to our followers and opens the window to our parent. A partial is added up for our parent; at
        the root it is a result for our followers if it was the last one missing. A parent that has all of our partials
        waits for nothing.
        """
        lane = self._lanes[piece.share]
        if lane.reduce_parent == NO_PARENT:
            return lane.followers if not piece.partial or lane.done > piece.chunk else ()
        upwards = (lane.reduce_parent,) if lane.sent < lane.chunks else ()
        return upwards if piece.partial else (*upwards, *lane.followers)

    def waiting_on(self) -> frozenset[int]:
        """Name the participants from which something is still to come."""
        return frozenset(
            peer
            for lane in self._lanes
            for peer, partial in [*((c, True) for c in lane.children), (lane.broadcast_parent, False)]
            if peer != NO_PARENT and (lane.wanted(peer, partial=partial) or 0) < lane.chunks
        )

    def owes(self, peer: int) -> bool:
        """Say whether anything is still to go to `peer`."""
        return any(
            (lane.sent if partial else lane.passed[peer]) < lane.chunks
            for partial, number in self._towards.get(peer, ())
            for lane in [self._lanes[number]]
        )

    def silent(self) -> tuple[int, ...]:
        """Name the neighbours that have not begun."""
        return tuple(n for n in self.neighbours if n not in self._begun)

    @property
    def finished(self) -> bool:
        """Every result is here, and everything that others need from us has been taken by `next_send`."""
        return self._left == 0

    def _flows(self) -> dict[int, list[tuple[bool, int]]]:
        """List for each neighbour (partial, share) of what goes to it: contributions first, in the order of shares."""
        flows: dict[int, list[tuple[bool, int]]] = {neighbour: [] for neighbour in self.neighbours}
        lanes = [(number, lane) for number, lane in enumerate(self._lanes) if lane.chunks]
        for number, lane in lanes:
            if lane.reduce_parent != NO_PARENT:
                flows[lane.reduce_parent].append((True, number))
        for number, lane in lanes:
            for follower in lane.followers:
                flows[follower].append((False, number))
        return flows

    def _finish(self, number: int) -> list[Piece]:
        lane = self._lanes[number]
        first, lane.done = lane.done, lane.ready
        self._left -= lane.done - first
        return [Piece(False, number, chunk) for chunk in range(first, lane.done)]
