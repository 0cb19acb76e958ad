"""What one rank is refused fails on all, at once and by name, and the next call of each is the next of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ictp2p.errors import ConfigError
from ictp2p.torch_backend import ProcessGroup, RanksDiffer
from ictp2p.torch_backend.work import GroupWork
from tests.torch_backend.call_options import rooted, sums
from tests.torch_backend.conftest import together

SIZE = 3
Call = Callable[[ProcessGroup, int, bool], GroupWork]
"""By which rank, and whether it is the one that is refused."""


def ones(*lengths: int) -> list[torch.Tensor]:
    return [torch.ones(length) for length in lengths]


def with_op(name: str, op: Any) -> Any:
    options = rooted(name, 0)
    options.reduceOp = op
    return options


def scattered(lengths: list[int], group: ProcessGroup, rank: int, one: bool) -> GroupWork:
    """From rank 1, which is the one."""
    return group.scatter(ones(5), [ones(*(lengths if one else [5] * SIZE))] if rank == 1 else [], rooted(SCATTER, 1))


def gathered(lengths: list[int], group: ProcessGroup, rank: int, one: bool) -> GroupWork:
    return group.gather([ones(*(lengths if one else [5] * SIZE))] if rank == 1 else [], ones(5), rooted(GATHER, 1))


SCATTER, GATHER, SPARSE = "ScatterOptions", "GatherOptions", torch.ones(5).to_sparse()
REFUSED: dict[str, tuple[str, Call]] = {
    "all_reduce sparse": ("layout torch.sparse_coo", lambda g, r, one: g.allreduce([SPARSE if one else torch.ones(5)])),
    "all_reduce expanded": (
        "its tensor is expanded",
        lambda g, r, one: g.allreduce([torch.ones(1).expand(5) if one else torch.ones(5)]),
    ),
    "all_reduce op": (
        "float32 has no bits",
        lambda g, r, one: g.allreduce(ones(5), sums(dist.ReduceOp.BAND if one else dist.ReduceOp.SUM)),
    ),
    "reduce op": (
        "float32 has no bits",
        lambda g, r, one: g.reduce(ones(5), with_op("ReduceOptions", dist.ReduceOp.BAND if one else dist.ReduceOp.SUM)),
    ),
    "reduce root": ("no rank 7 in a group of 3", lambda g, r, one: g.reduce(ones(5), rooted("ReduceOptions", 7 * one))),
    "broadcast root": (
        "no rank 7 in a group of 3",
        lambda g, r, one: g.broadcast(ones(5), rooted("BroadcastOptions", 7 * one)),
    ),
    "reduce_scatter list": (
        "2 tensors to scatter for 3 ranks",
        lambda g, r, one: g.reduce_scatter(ones(5), [ones(*[5] * (SIZE - one))]),
    ),
    "reduce_scatter tensor": (
        "16 elements of torch.float32 are not 3 parts of 5",
        lambda g, r, one: g.reduce_scatter_single(torch.ones(5), torch.ones(15 + one)),
    ),
    "all_gather list": (
        "2 tensors to gather into for 3 ranks",
        lambda g, r, one: g.allgather([ones(*[5] * (SIZE - one))], ones(5)),
    ),
    "all_gather coalesced": (
        "argument 3 is shorter",
        lambda g, r, one: g.allgather_coalesced([ones(5, 5), ones(5, 5), ones(*[5] * (2 - one))], ones(5, 5)),
    ),
    "all_gather tensor": (
        "16 elements of torch.float32 are not 3 parts of 5",
        lambda g, r, one: g.all_gather_single(torch.ones(15 + one), torch.ones(5)),
    ),
    "gather short": ("2 tensors to gather into for 3 ranks", lambda *given: gathered([5, 5], *given)),
    "gather shape": ("5 elements of torch.float32 do not fit in 6", lambda *given: gathered([5, 6, 5], *given)),
    "scatter short": ("2 tensors to scatter for 3 ranks", lambda *given: scattered([5, 5], *given)),
    "scatter shape": ("6 elements of torch.float32 do not fit in 5", lambda *given: scattered([5, 6, 5], *given)),
    "all_to_all list": (
        "2 tensors to receive for 3 ranks",
        lambda g, r, one: g.alltoall(ones(*[2] * (SIZE - one)), ones(2, 2, 2)),
    ),
    "all_to_all sum": (
        r"split sizes \[2, 2, 3\] do not add up to the 6 rows",
        lambda g, r, one: g.all_to_all_single(torch.ones(6), torch.ones(6), [], [2, 2, 2 + one]),
    ),
    "all_to_all negative": (
        r"split sizes \[8, -4, 2\] do not add up to the 6 rows of the tensor, or one is negative",
        lambda g, r, one: g.all_to_all_single(torch.ones(6), torch.ones(6), [], [8, -4, 2] if one else [2, 2, 2]),
    ),
    "all_to_all equal": (
        "7 rows do not make 3 equal parts",
        lambda g, r, one: g.all_to_all_single(torch.ones(6 + one), torch.ones(6 + one), [], []),
    ),
}


def outcome(call: Call, group: ProcessGroup, rank: int, one: bool) -> Any:
    try:
        call(group, rank, one).wait()
    except Exception as error:
        return error
    return None


def test_what_one_rank_is_refused_fails_on_all_and_says_what_and_where() -> None:
    """Regression: the others waited until their time was over, or for the next call of the one, whatever it was."""

    def act(group: ProcessGroup, rank: int) -> list[Any]:
        found = []
        for _, call in REFUSED.values():
            found.append(outcome(call, group, rank, rank == 1))
            mine = torch.full((2,), float(rank + 1))
            group.allreduce([mine]).wait()  # what comes next is as if nothing had been
            assert mine.tolist() == [6.0, 6.0]
        return found

    for (name, (words, _)), *errors in zip(REFUSED.items(), *together(SIZE, act, seconds=8.0), strict=True):
        with pytest.raises(ValueError, match=words):
            raise errors.pop(1)
        told = [error for error in errors if error is not None]
        for error in told:
            assert isinstance(error, RanksDiffer), (name, error)
            assert error.ranks == (1,), (name, error)
            with pytest.raises(RanksDiffer, match=rf"rank 1 calls \w+ \(refused there: .*{words}"):
                raise error
        assert len(told) == 2 or name == "broadcast root", "who has all of it by then hears of nothing"


def test_a_page_of_words_is_told_in_part_and_breaks_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that says why somebody gave up has a limit."""

    def act(group: ProcessGroup, rank: int) -> str:
        if rank == 1:
            with pytest.raises(ConfigError, match="\n" * 9000):
                group.reduce_scatter(ones(5), [ones(5, 5)])
            return ""
        with pytest.raises(RanksDiffer) as caught:
            group.reduce_scatter(ones(5), [ones(5, 5, 5)]).wait()
        return str(caught.value)

    def refuse(size: int, count: int, what: str) -> None:
        if count != size:
            raise ConfigError(f"{count} {what}" + "\n" * 9000)

    monkeypatch.setattr("ictp2p.torch_backend.group.expect", refuse)
    first, _, third = together(SIZE, act, seconds=8.0)
    assert "rank 1 calls reduce_scatter (refused there: 2 tensors to scatter" in first
    assert max(len(first), len(third)) < 1000


@pytest.mark.parametrize("one", [[], [torch.float32], [torch.int32, torch.float32], [torch.float32, torch.bool]])
def test_ranks_that_coalesce_other_types_are_told(one: list[torch.dtype]) -> None:
    """Regression: each type was a call of its own, so who brought fewer had its next one taken for the rest."""
    usual = [torch.float32, torch.int32]

    def act(group: ProcessGroup, rank: int) -> str:
        tensors = [torch.ones(3, dtype=dtype) for dtype in (one if rank == 1 else usual)]
        error = outcome(lambda group, _, __: group.allreduce_coalesced(tensors), group, rank, rank == 1)
        mine = torch.full((2,), float(rank + 1))
        group.allreduce([mine]).wait()
        assert mine.tolist() == [6.0, 6.0]
        return "" if error is None else f"{type(error).__name__} {error}"

    first, second, third = together(SIZE, act, seconds=8.0)
    for error in (first, third, *([second] if one else [])):
        assert str(error).startswith("RanksDiffer"), error
    theirs = {0: "all_reduce of nothing", 1: "all_reduce of 3 float32 (sum)"}.get(len(one), ", then ")
    assert "all_reduce of 3 float32 (sum), then int32" in str(first)
    assert theirs in str(first)
