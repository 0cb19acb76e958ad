"""What a group takes: tensors of any layout by value; what cannot be is refused by name, before anything leaves."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from ictp2p.errors import ConfigError
from ictp2p.torch_backend import ProcessGroup
from tests.collectives.running.formless import FORMLESS
from tests.torch_backend.call_options import rooted, sums
from tests.torch_backend.conftest import together


@pytest.mark.parametrize("length", [1, 5, 100_000])
def test_strided_tensors_are_read_and_written_where_they_lie(length: int) -> None:
    def act(group: ProcessGroup, rank: int) -> bool:
        base = torch.zeros(length, 3)
        base[:, 1] = rank + 1
        group.allreduce([base[:, 1]]).wait()
        into = torch.zeros(2 * length, 2)
        group.all_gather_single(into[:, 0], torch.full((length,), float(rank))).wait()
        turned = torch.zeros(4, 2).T
        group.all_to_all_single(turned, torch.full((2, 4), float(rank)).contiguous(), [], []).wait()
        return bool(
            (base[:, 1] == 3).all()
            and not base[:, 0].any()
            and into[:, 0].tolist() == [0.0] * length + [1.0] * length
            and not into[:, 1].any()
            and turned.tolist() == [[0.0] * 4, [1.0] * 4]
        )

    assert together(2, act) == [True, True]


@pytest.mark.parametrize("length", [1, 5])
def test_negative_views_are_read_and_written_by_value(length: int) -> None:
    """The imaginary part of a conjugate: what lies in memory is its negative. One element of it counts as dense."""

    def act(group: ProcessGroup, rank: int) -> list[float]:
        number = torch.full((length,), complex(0.0, -1.0 - rank))
        imaginary = number.conj().imag
        group.allreduce([imaginary]).wait()
        group.broadcast([told := torch.zeros(length, dtype=torch.complex64).conj().imag + rank]).wait()
        parts = [torch.zeros(length, dtype=torch.complex64).conj().imag for _ in range(2)]
        group.allgather([parts], [imaginary]).wait()
        return [*imaginary.tolist(), *told.tolist(), *(-number.imag).tolist(), *parts[1].tolist()]

    assert together(2, act) == [[3.0] * length + [0.0] * length + [3.0] * length + [3.0] * length] * 2


@pytest.mark.parametrize("length", [0, 1, 5])
def test_conjugates_are_read_and_written_by_value(length: int) -> None:
    """`conj` copies nothing: what lies in memory is the number before it."""

    def act(group: ProcessGroup, rank: int) -> list[complex]:
        mine = torch.full((length,), complex(rank, -1.0)).conj()
        got = [torch.zeros(length, dtype=torch.complex64).conj() for _ in range(4)]
        sending = group.send([mine], 1 - rank, 0)
        group.recv([got[0]], 1 - rank, 0).wait()
        sending.wait()
        group.all_to_all_single(torch.zeros(2 * length, dtype=torch.complex64), torch.cat([mine, mine]), [], []).wait()
        group.gather([got[1:3]] if rank == 0 else [], [mine], rooted("GatherOptions", 0)).wait()
        group.broadcast([told := mine.clone() if rank == 0 else got[3]], rooted("BroadcastOptions", 0)).wait()
        group.allreduce([mine]).wait()
        return [*mine.tolist(), *got[0].tolist(), *(got[2].tolist() if rank == 0 else []), *told.tolist()]

    first, second = together(2, act)
    assert first == [1 + 2j] * length + [1 + 1j] * length + [1 + 1j] * length + [1j] * length
    assert second == [1 + 2j] * length + [1j] * length + [1j] * length


def test_a_factor_multiplies_each_contribution_before_the_sum() -> None:
    def act(group: ProcessGroup, rank: int) -> list[float]:
        mine = torch.full((4,), float(rank + 1))
        group.allreduce([mine], sums(torch.distributed._make_nccl_premul_sum(0.5))).wait()
        return mine.tolist()

    assert together(2, act) == [[1.5] * 4] * 2


@pytest.mark.parametrize(
    ("dtype", "op", "message"),
    [
        (torch.int32, dist.ReduceOp.AVG, "int32 cannot be averaged"),
        (torch.float32, dist.ReduceOp.BAND, "float32 has no bits"),
        (torch.bool, dist.ReduceOp.AVG, "bools have no reduction 'avg'"),
        (torch.complex64, dist.ReduceOp.MAX, "complex64 has no reduction 'max'"),
        (torch.uint16, dist.ReduceOp.SUM, "uint16 cannot be reduced"),
        (torch.float8_e4m3fn, dist.ReduceOp.MAX, "float8_e4m3fn cannot be reduced"),
    ],
)
def test_what_a_type_cannot_is_refused_by_name(dtype: torch.dtype, op: Any, message: str) -> None:
    def act(group: ProcessGroup, rank: int) -> list[float]:
        with pytest.raises(ConfigError, match=message):
            group.allreduce([torch.zeros(3, dtype=dtype)], sums(op))
        right = torch.ones(3)
        group.allreduce([right]).wait()
        return right.tolist()

    assert together(2, act, seconds=5.0) == [[2.0] * 3] * 2


@pytest.mark.parametrize("rank", [-2, -1, 2, 7])
def test_a_rank_that_is_not_in_the_group_is_named_before_anything_leaves(rank: int) -> None:
    """Regression: it was an IndexError, a fault of a plan, or the last rank, which is what Python takes -1 for."""

    def act(group: ProcessGroup, me: int) -> list[str]:
        whole, parts = torch.ones(2), [torch.zeros(2), torch.zeros(2)]
        calls = [
            lambda: group.send([whole], rank, 0),
            lambda: group.recv([whole], rank, 0),
            lambda: group.broadcast([whole], rooted("BroadcastOptions", rank)),
            lambda: group.reduce([whole], rooted("ReduceOptions", rank)),
            lambda: group.gather([parts], [whole], rooted("GatherOptions", rank)),
            lambda: group.scatter([whole], [parts], rooted("ScatterOptions", rank)),
        ]
        words = []
        for call in calls:
            with pytest.raises(ConfigError) as caught:
                call()
            words.append(str(caught.value))
        group.allreduce([whole]).wait()
        assert whole.tolist() == [2.0, 2.0]
        return words

    names = ["send", "recv", "broadcast", "reduce", "gather", "scatter"]
    assert together(2, act) == [[f"{n}: there is no rank {rank} in a group of 2, numbered from 0" for n in names]] * 2


@pytest.mark.parametrize(
    ("dtype", "factor", "words"),
    [
        (torch.int32, 0.5, r"torch.int32 times the factor 0\.5 of PREMUL_SUM would be of another type"),
        (torch.float32, torch.tensor([0.5], dtype=torch.float64), ""),
        (torch.bfloat16, torch.tensor(0.5), ""),
        (torch.int32, torch.tensor(2), ""),
    ],
)
def test_a_factor_leaves_the_type_as_it_is_or_is_refused_everywhere(
    dtype: torch.dtype, factor: Any, words: str
) -> None:
    """Regression: where the product was of another type the root failed alone, and the others waited for it."""
    options = rooted("ReduceOptions", 0)
    options.reduceOp = dist._make_nccl_premul_sum(factor)

    def act(group: ProcessGroup, rank: int) -> list[float]:
        tensor = torch.full((3,), 4.0).to(dtype)
        if words:
            with pytest.raises(ConfigError, match=words):
                group.reduce([tensor], options)
        else:
            group.reduce([tensor], options).wait()
        return tensor.tolist()

    untouched, summed = [4.0] * 3, [2 * 4 * float(factor)] * 3 if not words else [4.0] * 3
    assert together(2, act) == [summed, untouched]


@pytest.mark.parametrize("words", FORMLESS)
def test_tensors_without_memory_of_their_own_are_refused(words: str) -> None:
    (error,) = together(1, lambda group, rank: group.allreduce([FORMLESS[words]]))
    with pytest.raises(ConfigError, match=words):
        raise cast("Exception", error)


def test_results_that_cannot_be_written_are_refused_before_anything_moves() -> None:
    """Regression: torch refused to copy them back, when all had been received."""
    expanded, message = torch.zeros(1).expand(4), torch.ones(4)

    def act(group: ProcessGroup, rank: int) -> list[float]:
        sending, into = group.send([message], 1 - rank, 0), torch.zeros(4)
        with pytest.raises(ConfigError, match="a result cannot be written: its tensor is expanded"):
            group.recv([expanded], 1 - rank, 0)
        group.recv([into], 1 - rank, 0).wait()
        sending.wait()
        return into.tolist()

    assert together(2, act) == [[1.0] * 4] * 2


def test_what_does_not_fit_is_told_in_the_callers_elements() -> None:
    """Regression: copies counted bytes, as `12 of torch.uint8`, and parts did not say of which call they were."""
    two, three, five = torch.ones(2), torch.ones(3), torch.ones(5)

    def act(group: ProcessGroup, rank: int) -> list[str]:
        root = {kind: rooted(kind, rank) for kind in ("GatherOptions", "ScatterOptions")}
        calls = [
            lambda: group.allgather([[two, two]], [three]),
            lambda: group.gather([[two, two]], [three], root["GatherOptions"]),
            lambda: group.scatter([two], [[three, three]], root["ScatterOptions"]),
            lambda: group.all_gather_single(five, three),
            lambda: group.reduce_scatter_single(two, five),
            lambda: group.all_gather_single(torch.ones(6, dtype=torch.int32), three),
        ]
        words = []
        for call in calls:
            with pytest.raises(ConfigError) as caught:
                call()
            words.append(str(caught.value))
        return words

    unfit = "3 elements of torch.float32 do not fit in 2 of torch.float32"
    words = [f"{name}: {unfit}" for name in ("all_gather", "gather", "scatter")]
    words.append("all_gather_into_tensor: 5 elements of torch.float32 are not 2 parts of 3")
    words.append("reduce_scatter_tensor: 5 elements of torch.float32 are not 2 parts of 2")
    words.append("all_gather: 3 elements of torch.float32 do not fit in 3 of torch.int32")
    assert together(2, act) == [words] * 2
