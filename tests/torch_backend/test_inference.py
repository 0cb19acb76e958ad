"""`torch.inference_mode` is of a thread, and the one that moves bytes is never in it; evaluations need calls, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from ictp2p.torch_backend import ProcessGroup
from tests.torch_backend.call_options import rooted
from tests.torch_backend.conftest import together

SIZE = 2
Make = Callable[..., torch.Tensor]
Call = tuple[Any, list[torch.Tensor]]


def calls(group: ProcessGroup, rank: int, make: Make) -> Iterator[Call]:
    """Each call with the tensors that hold its results; `make` gives tensors of a value, and of one or more lengths."""
    one, two = make(1.0), make(2.0)
    yield group.allreduce([one]), [one]
    yield group.reduce([two], rooted("ReduceOptions", 0)), [two]
    told = make(rank + 1.0)
    yield group.broadcast([told]), [told]
    parts = [make(0.0) for _ in range(SIZE)]
    yield group.allgather([parts], [make(rank + 1.0)]), parts
    whole = make(0.0, SIZE)
    yield group.all_gather_single(whole, make(rank + 1.0)), [whole]
    gathered = [make(0.0) for _ in range(SIZE if rank == 0 else 0)]
    yield group.gather([gathered] if gathered else [], [make(rank + 1.0)], rooted("GatherOptions", 0)), gathered
    mine, given = make(0.0), [[make(1.0), make(2.0)]] if rank == 0 else []
    yield group.scatter([mine], given, rooted("ScatterOptions", 0)), [mine]
    summed = make(0.0)
    yield group.reduce_scatter([summed], [[make(1.0), make(rank + 1.0)]]), [summed]
    single = make(0.0)
    yield group.reduce_scatter_single(single, make(1.0, SIZE)), [single]
    swapped = [make(0.0), make(0.0)]
    yield group.alltoall(swapped, [make(rank + 1.0), make(rank + 2.0)]), swapped
    in_place = make(rank + 1.0, SIZE)
    yield group.all_to_all_single(in_place, in_place, [], []), [in_place]
    got = make(0.0)
    sending, receiving = group.send([make(rank + 1.0)], 1 - rank, 0), group.recv([got], 1 - rank, 0)
    sending.wait()
    yield receiving, [got]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
@pytest.mark.parametrize("length", [3, 50_000])
@pytest.mark.parametrize("stride", [1, 2])
def test_results_are_the_same_whichever_mode_tensors_were_made_or_are_used_in(
    dtype: torch.dtype, length: int, stride: int
) -> None:
    def results(made: bool, used: bool) -> list[Any]:
        def make(value: float, times: int = 1) -> torch.Tensor:
            with torch.inference_mode(made):
                base = torch.full((times * length, stride), value, dtype=torch.float32).to(dtype)
                return base[:, 0]

        def act(group: ProcessGroup, rank: int) -> list[list[Any]]:
            found = []
            with torch.inference_mode(used):
                for work, tensors in calls(group, rank, make):
                    work.wait()
                    found.append([tensor[[0, -1]].tolist() for tensor in tensors])
            return found

        return together(SIZE, act)

    expected = results(False, False)
    assert not any(isinstance(found, Exception) for found in expected)
    for made, used in [(True, True), (True, False), (False, True)]:
        assert results(made, used) == expected
