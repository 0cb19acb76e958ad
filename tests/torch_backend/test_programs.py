"""Programs drawn at random: ranks make the same calls in one order, and wait for them each in its own.

Values are whole numbers that every type holds, so what comes out is known exactly, without another backend. Some calls
are refused at one rank, for what that one is given: they may fail at others, and all that follow them are right. More
of them: `PROGRAMS=500 pytest tests/torch_backend/test_programs.py`.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.torch_backend import ProcessGroup, RanksDiffer
from ictp2p.torch_backend.work import GroupWork
from tests.torch_backend.call_options import rooted, sums
from tests.torch_backend.conftest import together

COUNT = int(os.environ.get("PROGRAMS", "25"))
OPS = {"SUM": torch.add, "MIN": torch.minimum, "MAX": torch.maximum, "PRODUCT": torch.mul}
NOWHERE = 99
"""A rank that no group has."""


@dataclass(frozen=True)
class Call:
    """One call of a program, as all ranks know it."""

    kind: str
    length: int
    dtype: torch.dtype
    op: str
    root: int
    """Of a group of any size: counted modulo that."""
    refused: int | None
    """At which rank, if any; counted as well."""

    def part(self, number: int, *whose: int) -> torch.Tensor:
        """What somebody brings to it: whole numbers, other ones for everybody."""
        generator = torch.Generator().manual_seed(hash((number, self.length, *whose)) % 2**40)
        return torch.randint(1, 4, (self.length,), generator=generator).to(self.dtype)

    def place(self) -> torch.Tensor:
        """Where something comes."""
        return torch.zeros(self.length, dtype=self.dtype)


def begin(call: Call, number: int, group: ProcessGroup, rank: int, size: int) -> tuple[GroupWork, list[torch.Tensor]]:
    """Make a call; what it works on, and what will be right in it after it, as `expected` has it."""
    wrong = call.refused is not None and call.refused % size == rank
    root, every = (NOWHERE if wrong else call.root % size), range(size - wrong)
    mine, op = call.part(number, rank), getattr(dist.ReduceOp, call.op)
    match call.kind:
        case "all_reduce":
            mine = torch.ones(1).expand(5) if wrong else mine
            return group.allreduce([mine], sums(op)), [mine]
        case "broadcast":
            return group.broadcast([mine], rooted("BroadcastOptions", root)), [mine]
        case "reduce":
            options = rooted("ReduceOptions", root)
            options.reduceOp = op
            return group.reduce([mine], options), [mine] if rank == root else []
        case "all_gather":
            places = [call.place() for _ in every]
            return group.allgather([places], [mine]), places
        case "gather":
            places = [call.place() for _ in every] if rank == root else []
            return group.gather([places] if places else [], [mine], rooted("GatherOptions", root)), places
        case "scatter":
            parts = [call.part(number, rank, each) for each in every] if rank == root else []
            place = call.place()
            return group.scatter([place], [parts] if parts else [], rooted("ScatterOptions", root)), [place]
        case "reduce_scatter":
            options = dist.distributed_c10d.ReduceScatterOptions()
            options.reduceOp = op
            place = call.place()
            return group.reduce_scatter([place], [[call.part(number, rank, n) for n in every]], options), [place]
        case "all_to_all":
            places = [call.place() for _ in every]
            return group.alltoall(places, [call.part(number, rank, n) for n in range(size)]), places
        case _:
            return group.barrier(), []


def expected(call: Call, number: int, rank: int, size: int) -> list[torch.Tensor]:
    """What comes of it at a rank."""
    root, every = call.root % size, range(size)
    match call.kind:
        case "all_reduce":
            return [reduce(OPS[call.op], [call.part(number, n) for n in every])]
        case "broadcast":
            return [call.part(number, root)]
        case "reduce":
            return [reduce(OPS[call.op], [call.part(number, n) for n in every])] if rank == root else []
        case "all_gather":
            return [call.part(number, n) for n in every]
        case "gather":
            return [call.part(number, n) for n in every] if rank == root else []
        case "scatter":
            return [call.part(number, root, rank)]
        case "reduce_scatter":
            return [reduce(OPS[call.op], [call.part(number, n, rank) for n in every])]
        case "all_to_all":
            return [call.part(number, n, rank) for n in every]
        case _:
            return []


def failed(work: GroupWork) -> RanksDiffer | None:
    """Wait for a call; that ranks differed in it, if so."""
    try:
        work.wait()
    except RanksDiffer as error:
        return error
    return None


KINDS = ["all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]
CALLS = st.builds(
    Call,
    kind=st.sampled_from([*KINDS, "barrier"]),
    length=st.sampled_from([0, 1, 7, 4000, 90_000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8]),
    op=st.sampled_from(sorted(OPS)),
    root=st.integers(0, 11),
    refused=st.none() | st.none() | st.none() | st.integers(0, 11),
)


@given(size=st.integers(1, 4), program=st.lists(CALLS, min_size=1, max_size=16), order=st.integers(0, 2**20))
@settings(max_examples=COUNT, deadline=None)
def test_what_ranks_call_in_one_order_and_wait_for_in_others_comes_out_right(
    size: int, program: list[Call], order: int
) -> None:
    def act(group: ProcessGroup, rank: int) -> None:
        under_way: list[tuple[int, Any]] = []
        for number, call in enumerate(program):
            try:
                under_way.append((number, begin(call, number, group, rank, size)))
            except ConfigError:
                assert call.refused is not None, (number, call)
                assert call.refused % size == rank, (number, call)
        random.Random(order + rank).shuffle(under_way)
        for number, (work, found) in under_way:
            call = program[number]
            error = failed(work)
            if error is not None:
                assert call.refused is not None, (number, call, error)
                assert error.ranks == (call.refused % size,), (number, call, error)
                continue
            right = expected(call, number, rank, size)
            assert len(found) == len(right), (number, call)
            for one, other in zip(found, right, strict=True):
                assert torch.equal(one, other), (number, call)

    for result in together(size, act):
        if isinstance(result, Exception):
            raise result
