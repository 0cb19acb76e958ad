"""Where the shares of a collective stand, seen from one participant, and how far one may be ahead of the others.

Why it may not be far is said in `exchange`: lines divide themselves evenly, and not by what they have to carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ictp2p.collectives.plan import NO_PARENT, Plan, Share
from ictp2p.collectives.running.windows import MIN_WINDOW, even_windows

LEAD = 1 / 32
"""Part of itself by which a share may be ahead of another: what it takes of a line is lacking there at the end."""
LEAD_SECONDS = 0.5
"""But as much of it as this carries: nobody should wait for the first round trip of a long way and its full queues. Two
clusters 100 ms apart filled 0.80 of their line with half of this, 0.89 with this or twice as much, in one run each."""
QUEUED = 1.5
"""Times the way that was planned which a chunk takes through full queues."""
EACH = 4
"""Chunks by which a share may be ahead in any case, for each of several connections."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One chunk of one share on its way: up the reduce tree (`partial`) or down with the result."""

    partial: bool
    share: int
    chunk: int

    def __str__(self) -> str:
        return f"{'contribution' if self.partial else 'result'} {self.chunk} of share {self.share}"


@dataclass(slots=True)
class Lane:
    """Where one share stands, seen from one participant. All counts are of chunks, in ascending order."""

    share: Share
    chunks: int
    reduce_parent: int
    broadcast_parent: int
    children: tuple[int, ...]
    leaves: frozenset[int]
    """The children that have none of their own."""
    followers: tuple[int, ...]
    window: int
    """How far our partials may run ahead of our results."""
    room: int
    """How many partials of one child we hold at most."""
    lead: float
    """How far it may be ahead of the share that is furthest behind here, as a part of itself."""
    arrived: dict[int, int] = field(default_factory=dict)
    beyond: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    """Chunks that have come before others of lower numbers, by the participant and whether they are partials."""
    ready: int = 0
    """How many chunks hold everything that is to be added here: the least of `arrived`, or all where nothing is."""
    sent: int = 0
    done: int = 0
    passed: dict[int, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Partials of each child that have been added up: by the root at once, elsewhere when the sum is sent."""
        return self.done if self.reduce_parent == NO_PARENT else self.sent

    @property
    def neighbours(self) -> set[int]:
        """Who exchanges anything of this share with us."""
        ends = {*self.children, *self.followers, self.reduce_parent, self.broadcast_parent} if self.chunks else set()
        return ends - {NO_PARENT}

    @property
    def owed(self) -> int:
        """What this share still asks of us: a result to get or make, a partial and copies to pass on."""
        return self.chunks * (1 + (self.reduce_parent != NO_PARENT) + len(self.followers)) - self.done

    def wanted(self, peer: int, *, partial: bool) -> int | None:
        """Give the chunk that should come next from `peer`; None: nothing of that kind comes from there."""
        if partial:
            return self.arrived.get(peer)
        return self.done if self.broadcast_parent == peer else None

    def count(self, peer: int, piece: Piece, here: int) -> int:
        """Give how many chunks are here without a gap, which were `here`, now that `piece` has come from `peer` too."""
        if piece.chunk != here:
            self.beyond.setdefault((peer, piece.partial), set()).add(piece.chunk)
            return here
        here, beyond = here + 1, self.beyond.get((peer, piece.partial))
        while beyond and here in beyond:
            beyond.remove(here)
            here += 1
        return here

    def longest(self, chunk: int) -> int:
        """Give the elements of the longest chunk, where `chunk` is the most."""
        return min(chunk, self.share.stop - self.share.start)


def lanes(plan: Plan, me: int, partial_bytes: int, *, reduce: bool) -> list[Lane]:
    """Give each share of a plan as it stands before anything has moved; for the arguments see `exchange.Exchange`."""
    even, lag = even_windows(plan, partial_bytes), _lag(plan)
    rooms = [max(1, share.room // max(1, partial_bytes)) for share in plan.shares]
    return [
        _lane(share, me, [room] * len(even) if share.room else even, plan, lag, reduce)
        for share, room in zip(plan.shares, rooms, strict=True)
    ]


def _lane(share: Share, me: int, room: list[int], plan: Plan, lag: float, reduce: bool) -> Lane:
    parents = share.reduce_parents if reduce else (NO_PARENT,) * len(share.reduce_parents)
    children, followers = _below(parents, me), _below(share.broadcast_parents, me)
    chunks = share.chunks(plan.chunk)
    return Lane(
        lead=max(LEAD, LEAD_SECONDS / max(plan.seconds, LEAD_SECONDS), MIN_WINDOW / max(1, chunks), lag),
        share=share,
        chunks=chunks,
        reduce_parent=parents[me],
        broadcast_parent=share.broadcast_parents[me],
        children=children,
        leaves=frozenset(child for child in children if child not in share.reduce_parents),
        followers=followers,
        window=room[parents[me]] if parents[me] != NO_PARENT else 0,
        room=room[me],
        arrived=dict.fromkeys(children, 0),
        ready=0 if children else chunks,
        done=chunks if not reduce and share.root == me else 0,
        passed=dict.fromkeys(followers, 0),
    )


def _below(parents: tuple[int, ...], node: int) -> tuple[int, ...]:
    """List the children of a node: most nodes of most trees have none, which is quickly seen."""
    return tuple(n for n, parent in enumerate(parents) if parent == node) if node in parents else ()


def _lag(plan: Plan) -> float:
    """Give the part of a share of usual length that is on its longest way at once, or as many chunks as that has hops.

    None of what is over in `LEAD_SECONDS`: there a lead is a whole share in any case.
    """
    if plan.seconds <= LEAD_SECONDS:
        return 0.0
    if plan.seconds <= (1 + QUEUED) * plan.way:
        return 1.0
    hops = max((_hops(s.reduce_parents) + _hops(s.broadcast_parents) for s in plan.shares), default=0)
    chunks = hops * len(plan.shares) / max(1, sum(share.chunks(plan.chunk) for share in plan.shares))
    return min(1.0, max(chunks, QUEUED * plan.way / (plan.seconds - plan.way)))


def _hops(parents: tuple[int, ...]) -> int:
    """Count the hops of the longest way to the root of one tree."""
    ways: dict[int, int] = {NO_PARENT: -1}
    for node in range(len(parents)):
        path = []
        while node not in ways:
            path.append(node)
            node = parents[node]
        ways |= {one: above for above, one in enumerate(reversed(path), ways[node] + 1)}
    return max(ways.values(), default=0)
