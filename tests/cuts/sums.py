"""Stories of collectives: who has a sum has the right one, and nobody's memory is touched any more afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, REDUCE, Plan, Share, one_shot_plan
from ictp2p.collectives.running import execute
from tests.bulk.conftest import PROFILE
from tests.bulk.reducing import PROFILE as WAITS
from tests.bulk.reducing import plan_of, tag
from tests.bulk.striping import striped
from tests.cuts.meshes import Meshed

OURS, GONE = 1e6, -7.0
"""What callers write into what they brought, and into what they got, as soon as a call has returned."""
CLEAR = replace(PROFILE, sealed=False)


class Sum(Meshed):
    """All add up. Values are different powers of two, so a sum names its parts."""

    size = 3
    elements = 6_000
    chunk = 500
    kind = "ring"
    steps: Sequence[int] = (400, 1000, 3000)
    """Bytes that connections carry in a turn, in turns."""
    others = (ParticipantLost, CollectiveTimeout)

    def __init__(self) -> None:
        super().__init__()
        self.inputs = [torch.full((self.elements,), 2.0**n) for n in range(self.size)]
        self.outputs = [torch.full((self.elements,), 0.5) for _ in range(self.size)]
        self.plan = self.planned()
        self.results: dict[int, torch.Tensor] = {}
        self.returned: set[int] = set()

    def planned(self) -> Plan:
        return plan_of(list(self.world.names), self.kind, self.elements, self.chunk)

    async def prepare(self) -> None:
        await super().prepare()
        for number, (_, _, end) in enumerate(self.world.links):
            end.step = self.steps[number % len(self.steps)]
            end.other.step = self.steps[(number + 1) % len(self.steps)]

    def parts(self) -> Sequence[Any]:
        return [self.part(who) for who in range(self.size)]

    async def part(self, who: int) -> None:
        try:
            await self.call(who)
            self.results[who] = self.outputs[who].clone()
        finally:
            self.returned.add(who)
            self.inputs[who].fill_(OURS)
            self.outputs[who].fill_(GONE)

    async def call(self, who: int) -> None:
        plan, bulk = self.plan, self.bulks[who]
        await execute.all_reduce(
            plan, who, [self.inputs[who]], [self.outputs[who]], bulk, tag(plan), op="sum", profile=WAITS
        )

    def expected(self, who: int) -> torch.Tensor:
        return torch.full((self.elements,), 2.0**self.size - 1)

    def left(self) -> Iterator[str]:
        yield from super().left()
        for who, result in self.results.items():
            if not torch.equal(result, self.expected(who)):
                yield f"{who} has {result.unique()[:5]}"
        for who in self.returned:
            if not bool((self.outputs[who] == GONE).all()):
                yield f"{who} had its memory written to after its call had returned"


class Clear(Sum):
    """Nothing is sealed: what is sent is the caller's own memory."""

    profile = CLEAR


class Star(Clear):
    """By one who adds it all up, for each part of it."""

    kind = "star"


class Cold(Sum):
    """Nobody is connected yet."""

    warm = False


class Striped(Clear):
    """Over several connections."""

    size = 2

    async def prepare(self) -> None:
        await striped(self.world)
        await super().prepare()


class Shared(Clear):
    """Through memory of their host, once both know of it."""

    size = 2
    elements, chunk = 40_000, 5_000
    kind = "star"
    steps = (20_000,)


class OneShot(Sum):
    """All send all that they have."""

    def planned(self) -> Plan:
        return one_shot_plan(self.world.names, self.elements)


class Relayed(Sum):
    """Two of three cannot dial each other, and the third one is between them."""

    kind = "star"
    warm = False

    async def prepare(self) -> None:
        a, b, relay = self.world.names
        self.world.block((0, 1), (1, 0))
        self.world.via = {a: [relay], b: [relay]}
        await super().prepare()


class Copy(Clear):
    """One has what all get."""

    def planned(self) -> Plan:
        share = Share(0, self.elements, 0, (NO_PARENT,) * 3, (NO_PARENT, 0, 1))
        return Plan(BROADCAST, tuple(self.world.names), (share,), self.chunk, 0.0, 0.0)

    async def prepare(self) -> None:
        self.outputs[0].fill_(4.0)
        await super().prepare()

    async def call(self, who: int) -> None:
        plan = self.plan
        await execute.broadcast(plan, who, [self.outputs[who]], self.bulks[who], tag(plan), profile=WAITS)

    def expected(self, who: int) -> torch.Tensor:
        return torch.full((self.elements,), 4.0)


class Gather(Copy):
    """Each has a part of what all get."""

    def planned(self) -> Plan:
        third = self.elements // 3
        shares = (
            Share(0, third, 0, (NO_PARENT,) * 3, (NO_PARENT, 0, 1)),
            Share(third, 2 * third, 1, (NO_PARENT,) * 3, (1, NO_PARENT, 1)),
            Share(2 * third, self.elements, 2, (NO_PARENT,) * 3, (1, 2, NO_PARENT)),
        )
        return Plan(BROADCAST, tuple(self.world.names), shares, self.chunk, 0.0, 0.0)

    async def prepare(self) -> None:
        await super().prepare()
        for who, share in enumerate(self.plan.shares):
            self.outputs[who].fill_(0.5)
            self.outputs[who][share.start : share.stop] = 4.0


class Scatter(Clear):
    """Each gets a part of the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = [torch.full((self.elements // 3,), 0.5) for _ in range(3)]

    def planned(self) -> Plan:
        third = self.elements // 3
        trees = ((NO_PARENT, 0, 1), (2, NO_PARENT, 1), (1, 2, NO_PARENT))
        shares = tuple(Share(n * third, (n + 1) * third, n, tree, tree) for n, tree in enumerate(trees))
        return Plan(REDUCE, tuple(self.world.names), shares, self.chunk, 0.0, 0.0)

    async def call(self, who: int) -> None:
        plan, bulk = self.plan, self.bulks[who]
        await execute.reduce(plan, who, [self.inputs[who]], [self.outputs[who]], bulk, tag(plan), profile=WAITS)

    def expected(self, who: int) -> torch.Tensor:
        return torch.full((self.elements // 3,), 2.0**self.size - 1)
