"""Copies of the parameters that an inner optimizer keeps, made to follow what a round brings.

An optimizer for half precision may keep float32 masters: it steps those, and writes them, rounded, over the parameters.
A round that lands in the parameters alone would be undone by the very next inner step, in silence. So what is a copy
before a round lands is one afterwards: where a parameter was changed, its copy takes the new value.

What is a copy is seen by what it holds, not by its name: a tensor of the optimizer's state that has a parameter's shape
and, rounded to its dtype, each of its elements. One parameter that is all zeros could have a momentum that is, too;
hence all parameters that have a tensor of that name must agree, and one of them hold more than a single value. An
average of the parameters that has only begun (`ASGD`) passes for a copy, rightly: it starts from what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ictp2p.sync.state.local import local

_FIRST = 64
"""Elements that are compared before all are: of two tensors that differ nearly always one of these does."""


@contextmanager
def following(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Have the optimizer's copies of the parameters follow what becomes of these in this context."""
    pairs = _copies(optimizer)
    try:
        yield
    finally:
        for parameter, copy in pairs:
            _follow(parameter, copy)


@torch.no_grad()
def _copies(optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, Tensor]]:
    kept: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.is_floating_point():
                kept.setdefault(str(key), []).append((local(parameter).detach(), local(value).detach()))
    return [pair for pairs in kept.values() if _are_copies(pairs) for pair in pairs]


def _are_copies(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    begin_alike = all(_equal(*(tensor[_head(tensor)] for tensor in pair)) for pair in pairs)
    return begin_alike and all(_equal(*pair) for pair in pairs) and any(_varies(parameter) for parameter, _ in pairs)


def _head(tensor: Tensor) -> tuple[slice, ...]:
    """Where a few elements of a tensor are that its first ones are among."""
    wanted, found = _FIRST, []
    for size in tensor.shape:
        found.append(slice(min(size, wanted)))
        wanted = max(1, wanted // max(1, size))
    return tuple(found)


def _equal(parameter: Tensor, copy: Tensor) -> bool:
    return torch.equal(parameter, copy.to(parameter.device, parameter.dtype))


def _varies(tensor: Tensor) -> bool:
    return tensor.numel() > 1 and bool((tensor != tensor[(0,) * tensor.dim()]).any())


@torch.no_grad()
def _follow(parameter: Tensor, copy: Tensor) -> None:
    """Take what has changed; of the rest a copy may know more digits."""
    now = parameter.to(copy.device)
    copy.copy_(torch.where(copy.to(now.dtype) == now, copy, now.to(copy.dtype)))
