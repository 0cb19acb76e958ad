"""A collective's chunks, in every course that they can take: nothing stands still, and each contribution counts once.

Plans of two to four participants and a few chunks. Chunks overtake each other at will, as over several connections, and
a connection that got nothing when it asked for more asks again only when it is told to. So a course that comes to its
end before all is done is a deadlock, or a word that was not said.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest

from ictp2p.collectives.plan import BROADCAST, Plan, Share, check
from ictp2p.collectives.planning.schedules import ring, star
from ictp2p.collectives.planning.schedules.trees import Tree, downward
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.lane import Piece
from ictp2p.machine import Effects, Message, Notice, Send
from tests.properties.exhaustive import Explorer
from tests.properties.worlds import Act, Move

PARTIAL_BYTES = 4


class Chunk(Message, tag=1, frozen=True, array_like=True):
    piece: Piece
    content: tuple[tuple[int, int], ...]
    """Whose contributions are in it, and how often."""


class Participant:
    """One side of a collective, and what is in its memory."""

    def __init__(self, plan: Plan, me: int, connections: int, begun: bool) -> None:
        self.me = me
        self.exchange = Exchange(plan, me, PARTIAL_BYTES, reduce=plan.kind != BROADCAST)
        self.asleep: set[int] = set()
        """Whose connections got nothing when they asked, and were not told to ask again."""
        self.staged: dict[tuple[int, int, int], Counter[int]] = {}
        self.results: dict[tuple[int, int], Counter[int]] = {}
        for peer in self.exchange.neighbours:
            self.exchange.spread(peer, connections)
            self.exchange.limit(peer, 2)
            if begun:
                self.exchange.begun(peer)
        self._finish(self.exchange.alone())
        if plan.kind == BROADCAST:
            mine = [(number, share) for number, share in enumerate(plan.shares) if share.root == me]
            self.results = {(n, chunk): Counter([me]) for n, share in mine for chunk in range(share.chunks(plan.chunk))}

    def receive(self, sender: str, chunk: Chunk, now: float) -> Effects:
        peer, piece = int(sender), chunk.piece
        if piece.partial:
            self.staged[piece.share, peer, piece.chunk] = Counter(dict(chunk.content))
        else:
            self.results[piece.share, piece.chunk] = Counter(dict(chunk.content))
        self._finish(self.exchange.arrived(peer, piece))
        self.asleep -= {*self.exchange.downstream(piece)}
        return []

    def begin(self, peer: int) -> Effects | None:
        """Hear that one has begun."""
        if peer not in self.exchange.silent():
            return None
        self.exchange.begun(peer)
        self.asleep.discard(peer)
        return []

    def send(self, peer: int) -> Effects | None:
        if peer in self.asleep or peer in self.exchange.silent() or peer not in self.exchange.neighbours:
            return None
        piece = self.exchange.next_send(peer)
        if piece is None:
            self.asleep.add(peer)
            return []
        content = self._sum(piece) if piece.partial else self.results[piece.share, piece.chunk]
        self.asleep -= {*self.exchange.released()}
        return [Send(str(peer), Chunk(piece, tuple(sorted(content.items()))))]

    def _finish(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.results[piece.share, piece.chunk] = self._sum(piece)

    def _sum(self, piece: Piece) -> Counter[int]:
        total = Counter([self.me])
        for child in self.exchange.contributors(piece.share):
            total += self.staged.pop((piece.share, child, piece.chunk))
        return total

    def next_timeout(self) -> float | None:
        return None


class Collective:
    """A plan, carried out."""

    again = False
    deaths = 0
    mortal = ()

    def __init__(self, plan: Plan, connections: int = 1, begun: bool = True) -> None:
        assert check(plan, plan.participants, plan.elements) is None
        size = len(plan.participants)
        self.plan = plan
        self.peers = [str(n) for n in range(size)]
        self._connections = connections
        self._begun = begun
        pairs = [(me, peer) for me in range(size) for peer in range(size) if me != peer]
        self.moves = [Move(f"sends to {peer}", me, _sending(peer), math.inf) for me, peer in pairs]
        self.moves += [Move(f"hears of {peer}", me, _hearing(peer)) for me, peer in pairs if not begun]

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> Participant:
        return Participant(self.plan, who, self._connections, self._begun)

    def done(self, machine: Participant) -> bool:
        return False

    def view(self, machine: Participant) -> tuple[bool, dict[tuple[int, int], Counter[int]], int]:
        return machine.exchange.finished, machine.results, len(machine.staged)

    def fact(self, notice: Notice) -> None:
        return None

    def check(self, views: Sequence[tuple[bool, dict[tuple[int, int], Counter[int]], int]], facts: object) -> None:
        everybody = Counter(range(len(self.peers)))
        for _, results, _ in views:
            for (share, _), content in results.items():
                once = everybody if self.plan.kind != BROADCAST else Counter([self.plan.shares[share].root])
                assert content == once, f"a result of share {share} is of {content}"

    def end(self, views: Sequence[tuple[bool, dict[tuple[int, int], Counter[int]], int]]) -> None:
        chunks = sum(share.chunks(self.plan.chunk) for share in self.plan.shares)
        for who, (finished, results, staged) in enumerate(views):
            assert finished, f"{who} stands still with {sorted(results)}"
            assert len(results) == chunks
            assert not staged


def _sending(peer: int) -> Act:
    return lambda machine, now: machine.send(peer)


def _hearing(peer: int) -> Act:
    return lambda machine, now: machine.begin(peer)


def plan(trees: Sequence[Tree], chunks: Sequence[int], room: int, seconds: float = 0.0, kind: str = "tree") -> Plan:
    """Cut a vector into shares of so many chunks of an element each."""
    size = len(trees[0].reduce_parents)
    spans = pairwise(accumulate(chunks, initial=0))
    shares = tuple(Share(*span, *tree, room * PARTIAL_BYTES) for span, tree in zip(spans, trees, strict=True))
    return Plan(kind, tuple(f"{n:032x}" for n in range(size)), shares, 1, seconds, 0.0)


LONG = 3600.0
"""Seconds of a plan in which shares may be ahead of others by few chunks alone."""
_CHAINS = ring.trees(range(3))
WORLDS = {
    "two, over two connections": Collective(plan(star.trees(2), [3, 3], room=2), connections=2),
    "two that begin": Collective(plan(star.trees(2), [2, 2], room=2), begun=False),
    "three stars": Collective(plan(star.trees(3), [1, 1, 1], room=1)),
    "one star": Collective(plan(star.trees(3)[:1], [3], room=2)),
    "a star of four": Collective(plan(star.trees(4)[:1], [2], room=1)),
    "a chain": Collective(plan(_CHAINS[:1], [4], room=2)),
    "three chains": Collective(plan(_CHAINS, [1, 1, 1], room=1)),
    "a chain of four": Collective(plan(ring.trees(range(4))[:1], [3], room=1)),
    "a broadcast that holds back": Collective(
        plan([downward(star.trees(3)[0])], [4], room=1, seconds=LONG, kind=BROADCAST), begun=False
    ),
}


@pytest.mark.parametrize("name", WORLDS)
def test_every_course_ends_with_each_contribution_counted_once(name: str) -> None:
    world = WORLDS[name]
    Explorer(world, most=100_000, end=world.end).run()
