"""Sessions joined by wires, as connections join them: who begins, pulls or hears next is drawn by whoever calls.

A participant takes part from when it *attaches*: it says to its neighbours that it has begun, and takes what was said
to it before. Of chunks that came before, some are dropped, and are asked for again. When a session has ended its
collective returns: what comes for it then is nobody's, and nothing leaves any more.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from ictp2p.collectives.channel import Outgoing, Receiver, Slots
from ictp2p.collectives.plan import BROADCAST, REDUCE, Plan
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.fitting import placed, scaled
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.session import Progress, Session
from ictp2p.collectives.running.sums import Adder
from ictp2p.types import PeerId

Key: TypeAlias = tuple[bool, int, int]
"""Which chunk: a contribution or not, of which share, its number."""


class Chunk(NamedTuple):
    """A chunk on its way."""

    partial: bool
    share: int
    index: int
    body: bytes

    @property
    def key(self) -> Key:
        return self[:3]


Said: TypeAlias = "Chunk | int"
"""A chunk; or that a participant has begun, and how many of the chunks that it was sent before it wants again."""


class CountedSlots(Slots):
    """Knows what it has lent."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.lent = 0

    def borrow(self, size: int) -> bytearray:
        self.lent += 1
        return super().borrow(size)

    def give_back(self, slot: bytearray) -> None:
        self.lent -= 1
        super().give_back(slot)


class Cords:
    """One participant's connections (`channel.Attachment`), as far as a session asks anything of them."""

    def __init__(self, far: int | None = None, early: float = 0.0) -> None:
        self.far, self.early_for = far, early
        self.kicked: set[PeerId] = set()

    def kick(self, peer: PeerId) -> None:
        self.kicked.add(peer)

    def ahead(self, peer: PeerId) -> int | None:
        return self.far

    def received(self, peer: PeerId) -> int:
        return 0

    def early(self, peer: PeerId) -> float:
        return self.early_for

    def connections(self, peer: PeerId) -> int:
        return 1

    async def flushed(self, timeout: float) -> None:
        """Nothing is queued."""

    def detach(self) -> None:
        """Nothing is held."""

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        """Nobody is told."""


def opened(
    plan: Plan,
    me: int,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    progress: Progress | None = None,
    slots: Slots | None = None,
) -> Session:
    """A session for a plan of any kind, as `execute` makes it. A broadcast's outputs are its inputs."""
    source, slots = Flat(inputs), slots or CountedSlots()
    if plan.kind == BROADCAST:
        copied = Exchange(plan, me, plan.chunk * source.itemsize, reduce=False)
        return Session(plan, copied, source, source, None, progress, slots)
    target = Flat(outputs)
    if plan.kind == REDUCE:
        target = Flat.placed(placed(plan, me, target), source)
    adder = Adder(source, target, scaled(plan, None, "sum", source), me, plan.chunk, in_place=source.overlaps(target))
    summed = Exchange(plan, me, plan.chunk * source.partial_itemsize)
    return Session(plan, summed, source, target, adder, progress, slots)


class World:
    """All participants of one plan. Made and used while an event loop runs."""

    def __init__(self, plan: Plan, dtype: torch.dtype, chance: random.Random) -> None:
        self.plan, self.chance = plan, chance
        self.names = [PeerId(name) for name in plan.participants]
        nodes = range(len(self.names))
        self.given = [(torch.arange(plan.elements) % 5 + node + 1).to(dtype) for node in nodes]
        self.told: list[list[tuple[int, int]]] = [[] for _ in nodes]
        self.slots = [CountedSlots() for _ in nodes]
        self.cords = [Cords(chance.choice((None, 0, 64)), chance.choice((0.0, 0.5, 60.0))) for _ in nodes]
        self.results = [torch.zeros(len(self.expected(node)), dtype=dtype) for node in nodes]
        self.sessions = [self._session(node) for node in nodes]
        self.begun: set[int] = set()
        self.before = defaultdict[tuple[int, int], list[Chunk]](list)
        """What came from whom to whom before that began, and was kept."""
        self.dropped = defaultdict[tuple[int, int], list[Chunk]](list)
        """What was not: if anything, then all that came."""
        self.heard: set[tuple[int, int]] = set()
        """(who, of whom) has heard that it has begun."""
        self.wires = {(a, b): deque[Said]() for a in nodes for b in self.sessions[a].exchange.neighbours}
        self.sent = defaultdict[tuple[int, int], dict[Key, int]](dict)
        """The bytes of each chunk that left, by (from whom, to whom)."""
        self.got = defaultdict[tuple[int, int], set[Key]](set)
        """Which chunks a session took, by (from whom, to whom)."""
        self.offer: Callable[[int, int, Chunk], None] = lambda source, target, chunk: None
        """Called before a session is given a chunk."""

    def moves(self) -> list[tuple[str, int, int]]:
        found = [("attach", node, node) for node in range(len(self.names)) if node not in self.begun]
        found += [("pull", node, peer) for node, peer in self.wires if self.names[peer] in self.cords[node].kicked]
        return found + [("deliver", *pair) for pair, wire in self.wires.items() if wire]

    async def step(self) -> bool:
        """Do something that can be done; False if there is nothing."""
        moves = self.moves()
        if not moves:
            await asyncio.sleep(0)  # who was held back is told in the loop's next turn
            moves = self.moves()
        if moves:
            what, source, target = self.chance.choice(moves)
            if what == "attach":
                await self._attach(source)
            else:
                (self._pull if what == "pull" else self._deliver)(source, target)
        return bool(moves)

    def returned(self, node: int) -> bool:
        """Whether a participant's collective is over."""
        return self.sessions[node].ended.done()

    def expected(self, node: int) -> list[float]:
        """What a participant is to hold in the end."""
        shares, kind = self.plan.shares, self.plan.kind
        total: torch.Tensor = sum(self.given, torch.zeros(self.plan.elements, dtype=torch.float64))
        mine = [share for share in shares if kind != REDUCE or share.root == node]
        return [
            x for s in mine for x in (self.given[s.root] if kind == BROADCAST else total)[s.start : s.stop].tolist()
        ]

    def spans(self, node: int) -> list[tuple[int, int]]:
        """The elements whose results come to a participant, or are made there, chunk by chunk."""
        kind = self.plan.kind
        shares = [
            s for s in self.plan.shares if kind not in (BROADCAST, REDUCE) or (s.root == node) == (kind == REDUCE)
        ]
        return [s.span(index, self.plan.chunk) for s in shares for index in range(s.chunks(self.plan.chunk))]

    def owed(self, source: int, target: int) -> set[Key]:
        """Which chunks the plan has from one participant for another."""
        found = set[Key]()
        for number, share in enumerate(self.plan.shares):
            for partial, there in (
                (True, share.reduce_parents[source] == target),
                (False, share.broadcast_parents[target] == source),
            ):
                found |= {(partial, number, index) for index in range(share.chunks(self.plan.chunk)) if there}
        return found

    def _session(self, node: int) -> Session:
        result, given = self.results[node], self.given[node].clone()
        if self.plan.kind == BROADCAST:
            result[:] = given
            return opened(self.plan, node, self._cut(result), (), self._progress(node), self.slots[node])
        if self.plan.kind == REDUCE:
            return opened(self.plan, node, self._cut(given), [result], self._progress(node), self.slots[node])
        outputs = self._cut(result)
        inputs = given.split([len(t) for t in outputs])
        return opened(self.plan, node, inputs, outputs, self._progress(node), self.slots[node])

    def _cut(self, whole: torch.Tensor) -> list[torch.Tensor]:
        ends = sorted(self.chance.randrange(len(whole) + 1) for _ in range(self.chance.randrange(3)))
        return [whole[a:b] for a, b in pairwise([0, *ends, len(whole)])]

    def _progress(self, node: int) -> Progress:
        return lambda start, stop: self.told[node].append((start, stop))

    async def _attach(self, node: int) -> None:
        self.begun.add(node)
        session = self.sessions[node]
        for peer in session.exchange.neighbours:
            self.wires[node, peer].append(len(self.dropped[peer, node]))
        for peer in session.exchange.neighbours:
            if (node, peer) in self.heard:
                session.begun(self.names[peer])
            for early in self.before[peer, node]:
                self._hand(peer, node, early)
        session.attached(self.cords[node])
        await session.reduce_alone()

    def _pull(self, node: int, peer: int) -> None:
        out = None if self.returned(node) else self.sessions[node].next_frame(self.names[peer])
        if out is None:
            self.cords[node].kicked.discard(self.names[peer])
            return
        chunk = chunk_of(out)
        self.sent[node, peer][chunk.key] = len(chunk.body)
        self.wires[node, peer].append(chunk)

    def _deliver(self, source: int, target: int) -> None:
        wire = self.wires[source, target]
        if target in self.begun and all(isinstance(said, Chunk) for said in [*wire][:2]) and self.chance.random() < 0.5:
            wire.rotate(-1)  # over another connection, the rest of the wire with it
        said = wire.popleft()
        if not isinstance(said, Chunk):
            self.heard.add((target, source))
        if target not in self.begun:
            if isinstance(said, Chunk):
                self._keep(source, target, said)
        elif not self.returned(target):
            if isinstance(said, Chunk):
                self._hand(source, target, said)
            else:
                self.sessions[target].begun(self.names[source], said)
                for lost in self.dropped[target, source]:  # and are to be sent again
                    del self.sent[target, source][lost.key]

    def _keep(self, source: int, target: int, chunk: Chunk) -> None:
        """Keep what came before its collective, or drop all that came of it."""
        kept, dropped = self.before[source, target], self.dropped[source, target]
        kept.append(chunk)
        if dropped or self.chance.random() < 0.2:
            dropped += kept
            kept.clear()

    def _hand(self, source: int, target: int, chunk: Chunk) -> None:
        self.offer(source, target, chunk)
        give = pass_by if self.chance.random() < 0.5 else hand
        give(self.sessions[target], self.names[source], chunk)
        self.got[source, target].add(chunk.key)


def chunk_of(out: Outgoing) -> Chunk:
    return Chunk(out.partial, out.share, out.chunk, b"".join(out.kept().views))


def pass_by(session: Receiver, peer: PeerId, chunk: Chunk) -> None:
    """Give a session a chunk where it lies, and write over it as soon as that has been taken."""
    memory = np.frombuffer(chunk.body, np.uint8).copy()
    body = memory.data
    place = session.destination(peer, chunk.partial, chunk.share, chunk.index, len(body), passing=True)
    if place is not None:
        assert not chunk.partial, "a contribution would be copied"
        for view in place if isinstance(place, list) else [place]:
            view[:] = body[: len(view)]
            body = body[len(view) :]
        body = place if isinstance(place, memoryview) else body
    session.arrived(peer, chunk.partial, chunk.share, chunk.index, body)
    memory[:] = 0xAA


def hand(session: Receiver, peer: PeerId, chunk: Chunk) -> None:
    """Give a session a chunk, as a connection does that reads it where it is to be."""
    place = session.destination(peer, chunk.partial, chunk.share, chunk.index, len(chunk.body))
    body = memoryview(bytearray(chunk.body))
    if isinstance(place, list):
        start = 0
        for view in place:
            view[:] = body[start : start + len(view)]
            start += len(view)
        body = memoryview(b"")
    elif place is not None:
        place[:] = body
        body = place
    session.arrived(peer, chunk.partial, chunk.share, chunk.index, body)
