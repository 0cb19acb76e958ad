"""Ranks whose next calls differ: each learns at once what another calls, and none gets a result of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ictp2p.collectives.channel import CallsDiffer
from ictp2p.torch_backend import ProcessGroup, RanksDiffer
from ictp2p.torch_backend.work import GroupWork
from tests.torch_backend.call_options import sums
from tests.torch_backend.conftest import together

SIZE = 3
Call = Callable[[ProcessGroup, int], GroupWork]


def _rooted(kind: Any, root: int) -> Any:
    options = kind()
    options.rootRank = root
    return options


def _reduced(operation: Any) -> Any:
    options = sums()
    options.reduceOp = operation
    return options


def _scattered(group: ProcessGroup, rank: int, root: int) -> GroupWork:
    lists = [[torch.ones(5) for _ in range(SIZE)]] if rank == root else []
    return group.scatter([torch.zeros(5)], lists, _rooted(dist.ScatterOptions, root))


def _gathered(group: ProcessGroup, rank: int, root: int) -> GroupWork:
    lists = [[torch.ones(5) for _ in range(SIZE)]] if rank == root else []
    return group.gather(lists, [torch.zeros(5)], _rooted(dist.GatherOptions, root))


CALLS: dict[str, Call] = {
    "all_reduce of 5 float32 (sum)": lambda group, _: group.allreduce([torch.ones(5)]),
    "all_reduce of 5 float32 (max)": lambda group, _: group.allreduce([torch.ones(5)], _reduced(dist.ReduceOp.MAX)),
    "all_reduce of 5 int32 (sum)": lambda group, _: group.allreduce([torch.ones(5, dtype=torch.int32)]),
    "all_reduce of 6 float32 (sum)": lambda group, _: group.allreduce([torch.ones(6)]),
    "all_reduce of 100000 float32 (sum)": lambda group, _: group.allreduce([torch.ones(100_000)]),
    "all_reduce of 100001 float32 (sum)": lambda group, _: group.allreduce([torch.ones(100_001)]),
    "reduce of 5 float32 to rank 0 (sum)": lambda group, _: group.reduce(
        [torch.ones(5)], _rooted(dist.ReduceOptions, 0)
    ),
    "broadcast of 20 bytes from rank 0": lambda group, _: group.broadcast(
        [torch.ones(5)], _rooted(dist.BroadcastOptions, 0)
    ),
    "broadcast of 20 bytes from rank 1": lambda group, _: group.broadcast(
        [torch.ones(5)], _rooted(dist.BroadcastOptions, 1)
    ),
    "all_gather of 60 bytes": lambda group, _: group.all_gather_single(torch.ones(15), torch.ones(5)),
    "reduce_scatter of 15 float32 (sum)": lambda group, _: group.reduce_scatter_single(torch.ones(5), torch.ones(15)),
    "all_to_all": lambda group, _: group.all_to_all_single(torch.ones(3), torch.ones(3), [], []),
    "gather": lambda group, rank: _gathered(group, rank, 0),
    "scatter": lambda group, rank: _scattered(group, rank, 0),
    "barrier": lambda group, _: group.barrier(),
}


@pytest.mark.parametrize("one", range(SIZE))
def test_who_calls_another_thing_than_the_others_is_told_so_and_so_are_they(one: int) -> None:
    """Regression: they waited for each other until their time was over, or each got a result of its own."""
    pairs = list(permutations(CALLS, 2))

    def act(group: ProcessGroup, rank: int) -> list[str]:
        found = []
        for usual, other in pairs:
            try:
                CALLS[other if rank == one else usual](group, rank).wait()
            except dist.DistError as error:
                found.append(f"{type(error).__name__} {error}")
            else:
                found.append("")
            mine = torch.full((2,), float(rank + 1))
            group.allreduce([mine]).wait()  # what comes next is as if nothing had been
            assert mine.tolist() == [6.0, 6.0]
        return found

    for (usual, other), *errors in zip(pairs, *together(SIZE, act), strict=True):
        told = {rank for rank, error in enumerate(errors) if error.startswith("RanksDiffer")}
        assert one in told, (usual, other, errors)
        assert len(told) > 1, (usual, other, errors)
        assert any(f"calls {usual}" in error and f"not {other}" in error for error in errors), (usual, other, errors)
        assert all(not errors[rank] for rank in {*range(SIZE)} - told), (usual, other, errors)


def test_what_is_raised_is_torchs_own_and_names_the_rank() -> None:
    def act(group: ProcessGroup, rank: int) -> Any:
        with pytest.raises(RanksDiffer) as caught:
            group.allreduce([torch.ones(5 + rank)]).wait()
        assert isinstance(caught.value, dist.DistBackendError)
        assert isinstance(caught.value, CallsDiffer)
        return caught.value.ranks

    assert together(2, act) == [(1,), (0,)]


@pytest.mark.parametrize("threads", [1, 2])
def test_who_calls_from_several_threads_is_told_of_that_too(threads: int) -> None:
    """Regression: what each called was all that was said, and a program reads as if it had one order."""

    def act(group: ProcessGroup, rank: int) -> str:
        works = [group.allreduce([torch.ones(5 + rank)])]
        if threads == 2:
            other = threading.Thread(target=lambda: works.append(group.allreduce([torch.ones(6 - rank)])))
            other.start()
            other.join(20)
        else:
            works.append(group.allreduce([torch.ones(6 - rank)]))
        with pytest.raises(RanksDiffer) as caught:
            works[-1].wait()
        return str(caught.value)

    for words in together(2, act):
        assert ("this rank calls from several threads" in str(words)) == (threads == 2), words


def _sized(sizes: list[int]) -> Call:
    """An exchange in which this rank gives and gets so much, with each rank as much as it."""
    return lambda group, _: group.all_to_all_single(torch.zeros(sum(sizes)), torch.ones(sum(sizes)), sizes, sizes)


NOTHING = torch.ones(0)
MOVES_NOTHING: dict[str, tuple[Call, str]] = {
    "all_reduce of 0 float32 (sum)": (lambda group, _: group.allreduce([NOTHING]), "all_reduce of 5 float32 (sum)"),
    "reduce of 0 float32 to rank 0 (sum)": (
        lambda group, _: group.reduce([NOTHING], _rooted(dist.ReduceOptions, 0)),
        "reduce of 5 float32 to rank 0 (sum)",
    ),
    "reduce_scatter of 0 float32 (sum)": (
        lambda group, _: group.reduce_scatter_single(NOTHING, NOTHING),
        "reduce_scatter of 15 float32 (sum)",
    ),
    "broadcast of 0 bytes from rank 0": (
        lambda group, _: group.broadcast([NOTHING], _rooted(dist.BroadcastOptions, 0)),
        "broadcast of 20 bytes from rank 0",
    ),
    "all_gather of 0 bytes": (lambda group, _: group.all_gather_single(NOTHING, NOTHING), "all_gather of 60 bytes"),
    "all_to_all": (_sized([0, 0, 0]), "all_reduce of 5 float32 (sum)"),
}


@pytest.mark.parametrize("one", range(SIZE))
@pytest.mark.parametrize("late", [False, True])
def test_who_calls_what_moves_nothing_has_those_told_who_begin_another_thing_with_it(one: int, late: bool) -> None:
    """Regression: it was over for that rank without a word, and the others waited until their time was over."""

    def act(group: ProcessGroup, rank: int) -> list[str]:
        found = []
        for call, usual in MOVES_NOTHING.values():
            if late == (rank == one):
                began[usual].wait(10)
            work = call(group, rank) if rank == one else CALLS[usual](group, rank)
            if late != (rank == one):
                began[usual].wait(10)
            try:
                work.wait()
            except dist.DistError as error:
                found.append(f"{type(error).__name__} {error}")
            else:
                found.append("")
            mine = torch.full((2,), float(rank + 1))
            group.allreduce([mine]).wait()
            assert mine.tolist() == [6.0, 6.0]
        return found

    began = {usual: threading.Barrier(SIZE) for _, usual in MOVES_NOTHING.values()}
    for nothing, *errors in zip(MOVES_NOTHING, *together(SIZE, act), strict=True):
        told = {rank for rank, error in enumerate(errors) if error.startswith("RanksDiffer")}
        assert told, (nothing, errors)
        assert any(f"calls {nothing}" in error for error in errors), (nothing, errors)
        assert all(not errors[rank] for rank in {*range(SIZE)} - told), (nothing, errors)


def test_a_pair_that_swaps_nothing_by_one_s_word_and_something_by_the_other_s_is_told() -> None:
    """Ranks swap one element each, but 0 and 1, of which 1 would swap another."""
    swaps = [[1, 0, 1], [1, 1, 1], [1, 1, 1]]

    def act(group: ProcessGroup, rank: int) -> str:
        try:
            _sized(swaps[rank])(group, rank).wait()
        except RanksDiffer as error:
            return str(error)
        return ""

    assert "rank 0 gives 0 bytes to rank 1" in together(3, act)[1]
