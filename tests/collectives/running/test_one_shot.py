"""Small collectives in one shot: the same bits everywhere, whoever begins when and whatever was not kept."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.channel import EAGER_BYTES, CollectiveTimeout, ParticipantLost, RoundTag
from ictp2p.collectives.plan import one_shot_plan
from ictp2p.collectives.running.alike import add_up
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import all_reduce, broadcast
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.one_shot import Swap, swap
from ictp2p.collectives.running.sums import Adder, Weights
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.types import PeerId
from sim.loop import SimLoop
from tests.wires import Wires

NAMES = [PeerId(f"{n:032x}") for n in range(5)]
TAG = RoundTag(b"lineage", 1, 2, b"plan")
PROFILE = ExecuteProfile(connect=1.0, start=10.0, total=20.0)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.uint8]
Drops = Callable[[PeerId, PeerId], bool]


def in_turn(count: int, part: Callable[[int, Wires], object], begin: Sequence[float], drops: Drops) -> list[object]:
    """Run each participant's part on virtual time, from its own second on."""
    wires = Wires()
    wires.drops = drops

    async def one(node: int) -> object:
        await asyncio.sleep(begin[node])
        return await part(node, wires)  # type: ignore[misc]

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*(one(node) for node in range(count)))

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(all_of_them())


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.view(-1).view(torch.uint8).tolist()


@given(
    st.data(),
    st.integers(2, 5),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
)
def test_everybody_has_the_bits_of_a_root_whoever_began_when_and_whatever_was_dropped(
    data: st.DataObject, count: int, dtype: torch.dtype, lengths: list[int]
) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9)))
    inputs = [[(torch.randn(n, generator=generator) * 40).to(dtype) for n in lengths] for _ in range(count)]
    outputs = [[torch.zeros(n, dtype=dtype) for n in lengths] for _ in range(count)]
    ops = ["sum", "product", "min", "max", "avg" if dtype.is_floating_point else "bxor"]
    op, begin = data.draw(st.sampled_from(ops)), data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    weights = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.5]), min_size=count, max_size=count))
    dropped = data.draw(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))))
    plan = one_shot_plan(NAMES[:count], sum(lengths))

    def part(node: int, wires: Wires) -> object:
        links = wires.of(NAMES[node])
        return all_reduce(plan, node, inputs[node], outputs[node], links, TAG, weights=weights, op=op, profile=PROFILE)

    in_turn(count, part, [float(n) for n in begin], lambda a, b: (a, b) in dropped)
    for out in outputs[1:]:
        assert [bits(one) for one in out] == [bits(one) for one in outputs[0]]
    flat, expected = Flat(inputs[0]), [torch.zeros(n, dtype=dtype) for n in lengths]
    bodies = [b"".join(Flat(each).views(0, flat.elements)) for each in inputs]
    staged = {n: (memoryview(bytearray(body)), True) for n, body in enumerate(bodies) if n}
    Adder(flat, Flat(expected), Weights(weights, op, flat), 0, 99).finish(0, flat.elements, staged)
    close = torch.allclose if flat.widened else torch.equal  # a root of 16-bit floats may fuse products with sums
    assert all(close(a, b) for a, b in zip(outputs[0], expected, strict=True))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_a_swap_gives_everybody_the_parts_of_all(lengths: list[int], begin: list[int]) -> None:
    bodies = [bytes([n]) * length for n, length in enumerate(lengths)]
    names = NAMES[: len(lengths)]

    def part(node: int, wires: Wires) -> object:
        return swap(names, node, lengths, bodies[node], wires.of(names[node]), TAG, PROFILE)

    assert in_turn(len(names), part, [float(n) for n in begin], lambda a, b: a > b) == [bodies] * len(names)


def test_who_sent_early_stays_until_its_part_was_kept_or_sent_again() -> None:
    """The first has all it wants as soon as the second begins, which then still wants the part that it had to drop."""
    asked: list[tuple[PeerId, PeerId]] = []
    in_turn(
        2,
        lambda node, wires: swap(NAMES[:2], node, [1, 1], b"x", wires.of(NAMES[node]), TAG, PROFILE),
        [0.0, 1.0],
        lambda a, b: asked.append((a, b)) is None,
    )
    assert asked == [(NAMES[0], NAMES[1])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_nan_has_the_same_bits(dtype: torch.dtype) -> None:
    kinds = torch.tensor([0x7FC0, -0x40, 0x7FC1, 0x7F81], dtype=torch.int16).view(torch.bfloat16)
    first = kinds.to(dtype) if dtype == torch.bfloat16 else (kinds.view(torch.int16).int() << 16).view(torch.float32)
    one = torch.ones(4, dtype=dtype)
    found = set()
    for bodies in itertools.permutations([first, one, first.flip(0)]):
        target = Flat([torch.zeros(4, dtype=dtype)])
        add_up([b"".join(Flat([body]).views(0, 4)) for body in bodies], target, Weights([1.0] * 3, "sum", target))
        found.add(tuple(bits(target.tensors[0])))
    assert len(found) == 1
    assert torch.isnan(target.tensors[0]).all()


def test_subnormals_count_even_in_a_thread_that_flushes_them() -> None:
    tiny, target = torch.full((4,), 1e-40), Flat([torch.zeros(4)])
    bodies = [b"".join(Flat([tiny]).views(0, 4))] * 2
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine flushes none")
    try:
        add_up(bodies, target, Weights([1.0] * 2, "sum", target))
        flushed = (torch.tensor([1e-40]) * 1).tolist()
    finally:
        torch.set_flush_denormal(False)
    assert target.tensors[0].tolist() == (tiny * 2).tolist() != [0.0] * 4
    assert flushed == [0.0], "the thread has its mode again"


async def test_what_is_not_the_part_that_is_missing_is_refused() -> None:
    part = Swap(NAMES[:2], 0, [4, 4], b"mine")
    for chunk in [(True, 0, 0, 3), (True, 0, 1, 4), (True, 1, 0, 4), (False, 0, 0, 4)]:
        with pytest.raises(RemoteProtocolError, match="in one shot, expected 4"):
            part.destination(NAMES[1], *chunk)
    part.destination(NAMES[1], True, 0, 0, 4)
    part.arrived(NAMES[1], True, 0, 0, memoryview(b"your"))
    with pytest.raises(RemoteProtocolError, match="expected nothing"):
        part.destination(NAMES[1], True, 0, 0, 4)


async def test_a_death_is_a_loss_only_while_something_is_owed() -> None:
    part = Swap(NAMES[:3], 0, [4] * 3, b"mine")
    part.begun(NAMES[1])
    assert (part.waiting_on(NAMES[1]), part.waiting_on(NAMES[2]), part.owing()) == (True, False, [NAMES[2]])
    part.arrived(NAMES[1], True, 0, 0, memoryview(b"your"))
    part.lost(NAMES[1], "reset", ())
    assert not part.ended.done()
    part.lost(NAMES[2], "reset", [NAMES[1], NAMES[4]])
    with pytest.raises(ParticipantLost, match="reset") as caught:
        await part.ended
    assert caught.value.suspects == (NAMES[1],), "of those named, who takes part"


def test_who_does_not_begin_is_named_after_the_start_deadline() -> None:
    with pytest.raises(CollectiveTimeout, match="did not begin within 10"):
        in_turn(
            2,
            lambda node, wires: swap(NAMES[:3], node, [1] * 3, b"x", wires.of(NAMES[node]), TAG, PROFILE),
            [0.0, 0.0],
            lambda a, b: False,
        )


@pytest.mark.parametrize("parts", [[5, 4], [4, EAGER_BYTES + 1], [4, 0]])
async def test_parts_that_cannot_be_are_refused(parts: list[int]) -> None:
    with pytest.raises(ConfigError, match="in one shot"):
        await swap(NAMES[:2], 0, parts, b"mine", Wires().of(NAMES[0]), TAG)


async def test_a_plan_of_one_shot_copies_nothing() -> None:
    with pytest.raises(ConfigError, match="copies nothing"):
        await broadcast(one_shot_plan(NAMES[:2], 3), 0, [torch.zeros(3)], Wires().of(NAMES[0]), TAG)
