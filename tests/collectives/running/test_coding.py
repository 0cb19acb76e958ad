"""Collectives with encoded chunks, over connections in memory: the executor, all schedules, all codecs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.channel import ParticipantLost, Receiver, RoundTag, Slots
from ictp2p.collectives.codecs.feedback import Feedback
from ictp2p.collectives.codecs.schemes import SCHEMES
from ictp2p.collectives.codecs.topk import TopK
from ictp2p.collectives.codecs.topk2bit import KEPT, TopK2Bit
from ictp2p.collectives.plan import Plan, Share, check
from ictp2p.collectives.planning.schedules import halving_doubling, parameter_server, ring, star
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.types import PeerId

BLOCK = 4096
SCHEDULES = {
    "star": star.trees,
    "ring": lambda size: ring.trees(range(size)),
    "halving_doubling": halving_doubling.trees,
    "parameter_server": lambda size: parameter_server.trees(size)[-1:],
}


class Switch:
    """Connects participants in memory, and delivers their chunks in an order drawn at random.

    To whoever is `behind` nothing goes as long as there is anything for others.
    """

    def __init__(self, names: Sequence[PeerId], seed: int, behind: str = "") -> None:
        self.names = names
        self.behind = behind
        self.receivers: dict[PeerId, Receiver] = {}
        self.chance = random.Random(seed)

    async def deliver(self, tasks: list[asyncio.Task[Stats]]) -> None:
        while len(self.receivers) < len(self.names) and not any(task.done() for task in tasks):
            await asyncio.sleep(0)
        for a, receiver in self.receivers.items():
            for b in self.names:
                if a != b and b in self.reaching(a):
                    receiver.begun(b)
        while not all(task.done() for task in tasks):
            pairs = [(a, b) for a in self.names for b in self.names if a != b and b in self.reaching(a)]
            self.chance.shuffle(pairs)
            moved = [self.pass_on(a, b) for a, b in pairs if b != self.behind]
            if not any(moved):
                for a, b in pairs:
                    self.pass_on(a, b)
            await asyncio.sleep(0)

    def reaching(self, name: PeerId) -> list[PeerId]:
        return self.receivers[name].peers  # type: ignore[attr-defined, no-any-return]

    def pass_on(self, a: PeerId, b: PeerId) -> bool:
        out = self.receivers[a].next_frame(b)
        if out is None:
            return False
        body = memoryview(bytearray(b"".join(out.kept().views)))
        place = self.receivers[b].destination(a, out.partial, out.share, out.chunk, len(body))
        if place is not None:
            place[:] = body
        self.receivers[b].arrived(a, out.partial, out.share, out.chunk, body if place is None else place)
        return True


class Port:
    """One participant's links."""

    def __init__(self, switch: Switch, name: PeerId) -> None:
        self.slots, self.switch, self.name = Slots(1 << 20), switch, name

    async def attach(self, tag: bytes, receiver: Receiver, peers: Sequence[PeerId], **_: object) -> Port:
        self.switch.receivers[self.name] = receiver
        return self

    def kick(self, peer: PeerId) -> None:
        """The switch pulls by itself."""

    def ahead(self, peer: PeerId) -> int | None:
        return None

    def received(self, peer: PeerId) -> int:
        return 0

    def early(self, peer: PeerId) -> float:
        return 0.0

    def connections(self, peer: PeerId) -> int:
        return 1

    async def flushed(self, timeout: float) -> None:
        """Nothing is queued."""

    def detach(self) -> None:
        """Nothing is held."""

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        """The test looks at the error."""


def make_plan(trees: Sequence[Tree], size: int, elements: int, codec: str, chunk: int) -> Plan:
    names = tuple(PeerId(f"{n:032x}") for n in range(size))
    per = -(-elements // (len(trees) * BLOCK)) * BLOCK
    ends = [min(n * per, elements) for n in range(len(trees) + 1)]
    shares = tuple(Share(ends[n], ends[n + 1], *tree) for n, tree in enumerate(trees))
    plan = Plan("tree", names, shares, chunk, 1.0, 0.0, codec)
    problem = check(plan, names, elements)
    assert problem is None, problem
    return plan


def run(
    plan: Plan, inputs: list[list[torch.Tensor]], seed: int = 0, *, behind: str = "", **options: object
) -> list[list[torch.Tensor]]:
    """Reduce, and give everybody's outputs."""
    outputs = [[torch.full_like(tensor, torch.nan) for tensor in mine] for mine in inputs]

    async def everybody() -> None:
        names = [PeerId(name) for name in plan.participants]
        switch, tag = Switch(names, seed, behind), RoundTag(b"lineage", 1, 1, plan.digest())
        tasks = [
            asyncio.ensure_future(
                all_reduce(plan, n, inputs[n], outputs[n], Port(switch, name), tag, **options)  # type: ignore[arg-type]
            )
            for n, name in enumerate(names)
        ]
        await switch.deliver(tasks)
        await asyncio.gather(*tasks)

    asyncio.run(everybody())
    return outputs


def bits(tensors: list[torch.Tensor]) -> bytes:
    return b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors)


def cut(vector: torch.Tensor, at: list[int]) -> list[torch.Tensor]:
    return [piece.clone() for piece in torch.tensor_split(vector, sorted(at))]


@pytest.mark.parametrize("codec", SCHEMES)
@given(
    size=st.integers(1, 4),
    schedule=st.sampled_from(list(SCHEDULES)),
    elements=st.integers(1, 40_000),
    chunk=st.sampled_from([BLOCK, 3 * BLOCK]),
    data=st.data(),
)
@settings(max_examples=12, deadline=None)
def test_everybody_holds_the_same_bits_within_the_codecs_error(
    codec: str, size: int, schedule: str, elements: int, chunk: int, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 2**32), label="seed")
    at = data.draw(st.lists(st.integers(0, elements), max_size=3), label="cut the vector at")
    weight = data.draw(st.sampled_from([st.integers(1, 5), st.integers(1, 10**9), st.floats(1e-9, 1e9)]))
    weights = data.draw(st.lists(weight, min_size=size, max_size=size), label="weights")
    rng = np.random.default_rng(seed)
    vectors = [torch.from_numpy(rng.standard_normal(elements).astype(np.float32)) for _ in range(size)]
    if codec.startswith("topk"):
        for vector in vectors:
            kept = TopK(KEPT, torch.bfloat16) if codec == "topk" else TopK2Bit()
            Feedback(kept, elements).apply(vector)
    before = [vector.clone() for vector in vectors]
    plan = make_plan(SCHEDULES[schedule](size), size, elements, codec, chunk)
    outputs = run(plan, [cut(vector, at) for vector in vectors], seed, weights=[float(w) for w in weights])
    assert len({bits(mine) for mine in outputs}) == 1
    exact = sum(w * vector.double() for w, vector in zip(weights, before, strict=True)) / sum(weights)
    largest = max(float(vector.abs().max()) for vector in before)
    bound = {"bfloat16": 0.03, "float16": 0.004, "int8": 0.05, "e3m0": 0.7, "topk": 1e-6, "topk2bit": 1e-6}[
        codec
    ] * largest
    assert (torch.cat(outputs[0]).double() - exact).abs().max() <= bound


@pytest.mark.parametrize("weights", [[1_000_003.0, 999_983.0, 1_048_576.0], [1e-9, 2e-9, 3.1e-9]])
def test_sums_of_float16_keep_to_its_range_whatever_the_unit_of_the_weights(weights: list[float]) -> None:
    vectors = [torch.randn(3 * BLOCK) for _ in weights]
    outputs = run(
        make_plan(SCHEDULES["ring"](3), 3, 3 * BLOCK, "float16", BLOCK),
        [[vector] for vector in vectors],
        weights=weights,
    )
    exact = sum(w * vector.double() for w, vector in zip(weights, vectors, strict=True)) / sum(weights)
    assert (outputs[0][0].double() - exact).abs().max() < 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_encoded_as_well(dtype: torch.dtype) -> None:
    vectors = [torch.randn(9000).to(dtype) for _ in range(3)]
    plan = make_plan(star.trees(3), 3, 9000, "int8", BLOCK)
    outputs = run(plan, [cut(vector, [100]) for vector in vectors], op="sum")
    assert len({bits(mine) for mine in outputs}) == 1
    exact = sum(vector.double() for vector in vectors)
    assert (torch.cat(outputs[0]).double() - exact).abs().max() < 0.2


@pytest.mark.parametrize("codec", SCHEMES)
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    schedule=st.sampled_from(list(SCHEDULES)),
    behind=st.integers(0, 3),
    size=st.sampled_from([1e-7, 1e-5, 1e-3, 1.0, 3e4]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=12, deadline=None)
def test_who_is_behind_gets_the_bits_that_all_others_have(
    codec: str, dtype: torch.dtype, schedule: str, behind: int, size: float, seed: int
) -> None:
    """Outputs of 16 bits round what was decoded, so encoding them again would give other bytes."""
    rng = np.random.default_rng(seed)
    vectors = [torch.from_numpy(rng.standard_normal(20 * BLOCK) * size).to(dtype) for _ in range(4)]
    outputs = run(
        make_plan(SCHEDULES[schedule](4), 4, 20 * BLOCK, codec, BLOCK),
        [cut(vector, [10, 5 * BLOCK + 7]) for vector in vectors],
        seed,
        behind=f"{behind:032x}",
    )
    assert len({bits(mine) for mine in outputs}) == 1


def test_who_is_many_megabytes_behind_gets_the_bits_that_all_others_have() -> None:
    chunk, chance = 1 << 20, torch.Generator().manual_seed(1)
    vectors = [torch.randn(12 * chunk, generator=chance).to(torch.bfloat16) for _ in range(2)]
    plan = make_plan([star.star(2, 0)], 2, 12 * chunk, "int8", chunk)
    outputs = run(plan, [[vector] for vector in vectors], behind=plan.participants[1])
    assert torch.equal(outputs[0][0], outputs[1][0])


def test_what_diverged_is_seen_by_everybody() -> None:
    vectors = [torch.ones(2 * BLOCK) for _ in range(3)]
    vectors[1][17] = torch.inf
    for codec in SCHEMES:
        outputs = run(make_plan(star.trees(3), 3, 2 * BLOCK, codec, BLOCK), [[vector.clone()] for vector in vectors])
        assert len({bits(mine) for mine in outputs}) == 1
        assert not outputs[0][0][17].isfinite()


def test_what_cannot_be_encoded_is_refused() -> None:
    plan = make_plan(star.trees(1), 1, 10, "int8", BLOCK)
    with pytest.raises(ConfigError, match="float64 cannot be encoded"):
        run(plan, [[torch.zeros(10, dtype=torch.float64)]])
    with pytest.raises(ConfigError, match="only sums and averages"):
        run(plan, [[torch.zeros(10)]], op="max")


async def test_whoever_sends_what_does_not_decode_answers_for_it() -> None:
    plan = make_plan(parameter_server.trees(3)[:1], 3, BLOCK, "topk", BLOCK)
    names = [PeerId(name) for name in plan.participants]
    switch = Switch(names, 0)
    tag = RoundTag(b"lineage", 1, 1, plan.digest())
    vector = [torch.ones(BLOCK)], [torch.ones(BLOCK)]
    task = asyncio.ensure_future(all_reduce(plan, 0, *vector, Port(switch, names[0]), tag))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    receiver = switch.receivers[names[0]]
    size = TopK(KEPT, torch.bfloat16).size(BLOCK)
    body = receiver.destination(names[1], True, 0, 0, size)
    assert body is not None
    body[:] = b"\xff" * size
    with pytest.raises(RemoteProtocolError, match="ascending"):  # before the third one's, with which it is added
        receiver.arrived(names[1], True, 0, 0, body)
    receiver.lost(names[1], "it sent nonsense", ())
    with pytest.raises(ParticipantLost):
        await task


@pytest.mark.parametrize("codec", SCHEMES)
def test_sums_are_the_same_bits_whatever_type_the_program_takes_by_default(codec: str) -> None:
    vectors = [[torch.linspace(-1.0, n + 1.0, 3 * BLOCK, dtype=torch.float32)] for n in range(3)]
    plan = make_plan(SCHEDULES["ring"](3), 3, 3 * BLOCK, codec, BLOCK)
    wanted, before = run(plan, vectors), torch.get_default_dtype()
    try:
        for dtype in (torch.bfloat16, torch.float64):
            torch.set_default_dtype(dtype)
            assert [bits(mine) for mine in run(plan, vectors)] == [bits(mine) for mine in wanted]
    finally:
        torch.set_default_dtype(before)
