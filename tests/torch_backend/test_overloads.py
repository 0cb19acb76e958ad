"""Both forms of a group's calls: lists with options, and one tensor with what the options would hold.

And every name that torch's own group takes something by, read from torch's docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

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


SIGNATURE = re.compile(r"(\w+)\(self: .*\) -> ")
PARAMETER = re.compile(r", (\w+): ([\w.\[\] |]+)")


def signatures() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The forms of each call that torch's group has and ours has of its own: its name, and each parameter's and type.

    What ends the group, or is asked of it alone, has no parameters.
    """
    ours = {name for kind in ProcessGroup.__mro__[:-2] if kind is not dist.ProcessGroup for name in vars(kind)}
    for name in sorted(ours & vars(dist.ProcessGroup).keys()):
        text = getattr(dist.ProcessGroup, name).__doc__ or ""
        for line in text.splitlines() if not name.startswith("__") else ():
            if (found := SIGNATURE.search(line)) and found[1] == name and (taken := PARAMETER.findall(line)):
                yield name, taken


def sample(kind: str) -> Any:
    """Something of a type, as a group of one rank takes it."""
    if options := re.search(r"\w+Options", kind):
        return getattr(c10d, options[0])()
    if "Tensor" in kind:
        return [[torch.ones(1)]] if kind.count("[") == 2 else [torch.ones(1)] if "[" in kind else torch.ones(1)
    if "timedelta" in kind:
        return TIME
    if "ReduceOp" in kind:
        return dist.ReduceOp.SUM
    if "str" in kind or "device" in kind:
        return "cpu"
    return [1] if "[" in kind else 0


def test_a_group_takes_what_torchs_own_takes_by_the_same_names() -> None:
    """Regression: of eight calls ours had other names. Torch's is C++: what it takes is in its docstrings alone."""

    def act(group: Any, rank: int) -> list[str]:
        works, called = [], []
        for name, parameters in signatures():
            if name.startswith("recv"):
                works.append(group.send([torch.ones(1)], 0, 0))
            unnamed = [sample(kind) for word, kind in parameters if re.fullmatch(r"arg\d", word)]
            named = {word: sample(kind) for word, kind in parameters if not re.fullmatch(r"arg\d", word)}
            works.append(getattr(group, name)(*unnamed, **named))
            called.append(name)
        for work in works:
            if isinstance(work, dist.Work):
                assert work.wait()
        return called

    (called,) = together(1, act)
    assert {"allreduce", "alltoall", "barrier", "recv", "recv_anysource", "send", "_allgather_base"} <= set(called)
    assert len(called) > len(set(called)), "both forms of what has two"
