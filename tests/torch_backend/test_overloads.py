"""Both forms of a group's calls: lists with options, and one tensor with what the options would hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from ictp2p.torch_backend import ProcessGroup
from tests.torch_backend.conftest import together

MAX: Any = dist.ReduceOp.MAX
TIME = timedelta(seconds=20)


def calls(group: Any, rank: int) -> list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Tensor]]]:
    """Each with what it is given, and what it fills in."""
    one, (a, b), parts = torch.full((2,), rank + 1.0), torch.zeros(2, 2), [torch.full((2,), 10.0 * n) for n in (1, 2)]
    root = rank == 0
    return [
        (group.allreduce, (one.clone(),), {}, []),
        (group.allreduce, ([mine := one.clone()],), {"op": MAX, "timeout": TIME}, [mine]),
        (group.broadcast, (told := one.clone(), 1), {}, [told]),
        (group.broadcast, (), {"tensor": (heard := one.clone()), "root": 1}, [heard]),
        (group.reduce, (total := one.clone(), 0, MAX, TIME), {}, [total] if root else []),
        (group.reduce, ([summed := one.clone()],), {}, [summed] if root else []),
        (group.allgather, ([a, b], one), {"timeout": TIME}, [a, b]),
        (
            group.gather,
            ([got := a.clone(), more := b.clone()] if root else [], one, 0),
            {},
            [got, more] if root else [],
        ),
        (group.scatter, (place := one.clone(), parts if root else []), {"root": 0}, [place]),
        (group.reduce_scatter, (part := one.clone(), parts, MAX), {}, [part]),
        (group.reduce_scatter, (), {"output": (other := one.clone()), "input": parts}, [other]),
        (group.all_to_all_single, (swapped := one.clone(), one, [], [], TIME), {}, [swapped]),
        (group.barrier, (TIME,), {}, []),
        (group.barrier, (), {"timeout": TIME}, []),
    ]


def test_both_forms_of_each_call_give_the_same() -> None:
    """Regression: a tensor was taken for the list of its rows, which an `allgather` of two among two took."""

    def act(group: ProcessGroup, rank: int) -> list[list[float]]:
        filled = []
        for call, given, named, results in calls(group, rank):
            call(*given, **named).wait()
            filled += [each.tolist() for each in results]
        return filled

    both = [[2.0, 2.0]] * 3
    gathered = [[1.0, 1.0], [2.0, 2.0]]
    root = [*both, [2.0, 2.0], [3.0, 3.0], *gathered, *gathered, [10.0, 10.0], [10.0, 10.0], [20.0, 20.0], [1.0, 2.0]]
    other = [*both, *gathered, [20.0, 20.0], [20.0, 20.0], [40.0, 40.0], [1.0, 2.0]]
    assert together(2, act) == [root, other]


def test_what_a_call_does_not_take_is_told_before_it_has_a_number() -> None:
    def act(group: Any, rank: int) -> list[float]:
        if rank == 0:
            with pytest.raises(TypeError, match=r"broadcast\(\) was given \['op'\], which it does not take"):
                group.broadcast(torch.ones(1), op=MAX)
            with pytest.raises(TypeError, match=r"reduce\(\) lacks its tensors or tensor"):
                group.reduce(root=1)
        group.allreduce(mine := torch.ones(1)).wait()
        return mine.tolist()

    assert together(2, act) == [[2.0]] * 2
