"""Giving an optimizer the state of another, every tensor in the dtype that it had there.

torch casts what it loads to the parameter's dtype. Of a parameter in bfloat16 the float32 master, and momentum in
float32, are rounded so: a worker that was healed steps otherwise than the one that it is a copy of, on fewer digits, in
silence; and what was restored from a file has lost these digits for good. What was taken is what the optimizer stepped
with, so that is what is put back, wherever torch has put its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.state.local import as_part_of, is_distributed, local


def reload(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load what `state_dict` of such an optimizer gave.

    Raises:
        ConfigError: a tensor has another dtype by now, and lies where it cannot be put back.
    """
    saved = _distributed(optimizer, saved)
    optimizer.load_state_dict(dict(saved))  # of which it may take things out
    _put_back(optimizer, saved)
    for where, before, now in _pairs(saved, optimizer.state_dict(), "state_dict()"):
        if before.dtype != now.dtype:
            raise ConfigError(
                f"{type(optimizer).__name__}.load_state_dict makes {now.dtype} of {where}, which was {before.dtype}: "
                "a worker that is healed or restored would not step as before. Keep the dtype there, or that tensor in "
                "the optimizer's `state`"
            )


def _distributed(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """A state whose tensors are parts of distributed ones where the parameters are: torch takes them as they are."""
    if isinstance(optimizer, JointOptimizer):
        pairs = zip(optimizer.parts, saved["parts"], strict=True)
        return {**saved, "parts": [_distributed(part, each) for part, each in pairs]}
    numbers = [number for group in saved.get("param_groups", ()) for number in group["params"]]
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of = {number: p for number, p in zip(numbers, held, strict=False) if is_distributed(p)}
    states = saved.get("state", {})
    return (
        {**saved, "state": {n: _as_parts(each, of[n]) if n in of else each for n, each in states.items()}}
        if of
        else saved
    )


def _as_parts(state: Mapping[str, Any], parameter: Tensor) -> dict[str, Any]:
    shape = local(parameter).shape
    return {
        key: as_part_of(value, parameter) if isinstance(value, Tensor) and value.shape == shape else value
        for key, value in state.items()
    }


def _put_back(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    if isinstance(optimizer, JointOptimizer):
        for part, each in zip(optimizer.parts, saved["parts"], strict=True):
            _put_back(part, each)
        return
    states, groups = saved.get("state", {}), saved.get("param_groups", ())
    numbers = [number for group in groups for number in group["params"]]
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, held, strict=False):
        if number in states and parameter in optimizer.state:
            optimizer.state[parameter] = _as_before(states[number], optimizer.state[parameter])


def _as_before(before: Any, now: Any) -> Any:
    """What was loaded, with the tensors of before in place of those that were cast."""
    if isinstance(now, Tensor):
        cast = isinstance(before, Tensor) and before.dtype != now.dtype
        return before.to(now.device, copy=True) if cast else now
    if isinstance(now, dict) and isinstance(before, Mapping):
        now.update({key: _as_before(before[key], value) for key, value in now.items() if key in before})
    elif type(now) in (list, tuple) and isinstance(before, Sequence) and len(before) == len(now):
        return type(now)(map(_as_before, before, now))
    return now


def _pairs(before: Any, now: Any, where: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The tensors that two trees have in the same place."""
    if isinstance(before, Tensor) and isinstance(now, Tensor):
        yield where, before, now
    elif isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in (key for key in before if key in now):
            yield from _pairs(before[key], now[key], f"{where}[{key!r}]")
    elif type(before) in (list, tuple) and type(now) in (list, tuple):
        for number, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from _pairs(one, other, f"{where}[{number}]")
