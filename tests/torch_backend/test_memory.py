"""Results whose place holds what is still to be sent: every collective is right wherever its outputs lie."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ictp2p.torch_backend import ProcessGroup
from ictp2p.torch_backend.memory import Memory
from tests.torch_backend.conftest import together

SIZE = 3
SPACE = 40
RANGES = st.tuples(st.integers(0, SPACE), st.integers(0, SPACE)).map(sorted)


@given(st.lists(RANGES, max_size=4), st.lists(RANGES, max_size=4), st.lists(RANGES, max_size=4))
def test_no_place_holds_what_is_read_and_all_are_filled_in_the_end(
    places: list[list[int]], read: list[list[int]], own: list[list[int]]
) -> None:
    space, memory = torch.zeros(SPACE), Memory()
    given = [memory.write(space[a:b]) for a, b in places]
    apart = memory.apart(given, [space[a:b] for a, b in read], [space[a:b] for a, b in own])
    moved = [mine for n, mine in enumerate(own) if n < len(places) and mine != places[n]]
    for (a, b), place, result in zip(places, given, apart, strict=True):
        held = any(max(a, c) < min(b, d) for c, d in [*read, *moved])
        assert (result.data_ptr() != place.data_ptr()) == held, "a copy is made where it is needed, and nowhere else"
        result.fill_(1.0)
    memory.give_back()
    assert all(space[a:b].eq(1.0).all() for a, b in places)


def content(rank: int, length: int) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(rank))


def scattered_sum(group: ProcessGroup, rank: int, space: Tensor, part: int, at: int) -> Tensor:
    whole, out = space[: SIZE * part], space[at : at + part]
    group.reduce_scatter_single(out, whole).wait()
    return out


def swapped(group: ProcessGroup, rank: int, space: Tensor, part: int, at: int) -> Tensor:
    whole, out = space[: SIZE * part], space[at : at + SIZE * part]
    group.all_to_all_single(out, whole, [], []).wait()
    return out


def scattered(group: ProcessGroup, rank: int, space: Tensor, part: int, at: int) -> Tensor:
    options = dist.distributed_c10d.ScatterOptions()
    options.rootRank, out = 1, space[at : at + part]
    group.scatter([out], [space[: SIZE * part].split(part)] if rank == 1 else [], options).wait()
    return out


def gathered(group: ProcessGroup, rank: int, space: Tensor, part: int, at: int) -> Tensor:
    options = dist.distributed_c10d.GatherOptions()
    options.rootRank, out = 1, space[: SIZE * part]
    group.gather([out.split(part)] if rank == 1 else [], [space[at : at + part]], options).wait()
    return out if rank == 1 else out[:0]


def collected(group: ProcessGroup, rank: int, space: Tensor, part: int, at: int) -> Tensor:
    out = space[: SIZE * part]
    group.all_gather_single(out, space[at : at + part]).wait()
    return out


def expected(name: str, rank: int, spaces: list[Tensor], part: int, at: int) -> Tensor:
    cuts = list(pairwise(accumulate([part] * SIZE, initial=0)))
    a, b = cuts[rank]
    mine = [space[at : at + part] for space in spaces]
    return {
        "scattered_sum": sum((space[a:b].double() for space in spaces), torch.zeros(part)).float(),
        "swapped": torch.cat([space[a:b] for space in spaces]),
        "scattered": spaces[1][a:b].clone(),
        "gathered": torch.cat(mine) if rank == 1 else torch.empty(0),
        "collected": torch.cat(mine),
    }[name]


@pytest.mark.parametrize("act", [scattered_sum, swapped, scattered, gathered, collected])
@given(st.sampled_from([100, 30_000, 600_000]), st.floats(0.0, 2.0) | st.sampled_from([0.0, 1.0, 2.0]))
@settings(max_examples=12, deadline=None)
def test_results_may_lie_anywhere_in_what_is_brought(act: Any, part: int, offset: float) -> None:
    """Nothing that goes to others is overwritten before it was sent."""
    at = int(part * offset)
    spaces = [content(rank, 5 * part) for rank in range(SIZE)]
    right = [expected(act.__name__, rank, spaces, part, at) for rank in range(SIZE)]
    found = together(SIZE, lambda group, rank: act(group, rank, spaces[rank], part, at))
    for result, exact in zip(found, right, strict=True):
        assert isinstance(result, Tensor), result
        assert torch.allclose(result, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_was_queued_for_a_place_does_not_overtake_its_result() -> None:
    memory, side = Memory(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        place = torch.ones(1 << 20, device="cuda")
        torch.cuda._sleep(200_000_000)  # cycles of the device: what follows stands in its queue
        place.zero_()
        held = memory.write(place)
    held.fill_(7.0)
    memory.give_back()
    side.synchronize()
    assert (place == 7.0).all()


@pytest.mark.parametrize("length", [3, 300_000])
def test_tensors_that_share_memory_are_each_summed_as_they_were(length: int) -> None:
    def act(group: ProcessGroup, rank: int) -> tuple[Tensor, Tensor]:
        one, other = torch.full((length,), rank + 1.0), torch.full((length,), rank + 1.0)
        group.allreduce_coalesced([one, one[1:], one, other]).wait()
        return one, other

    for found in together(SIZE, act):
        assert isinstance(found, tuple), found
        assert all(each.eq(6.0).all() for each in found)


def test_a_factor_counts_once_for_tensors_that_share_memory() -> None:
    """Regression: what they share was multiplied by it once for each."""

    def act(group: ProcessGroup, rank: int) -> list[float]:
        space, options = torch.full((6,), rank + 1.0), dist.distributed_c10d.AllreduceOptions()
        options.reduceOp = dist._make_nccl_premul_sum(0.5)
        group.allreduce_coalesced([space[:4], space[2:]], options).wait()
        return space.tolist()

    assert together(SIZE, act) == [[3.0] * 6] * SIZE
