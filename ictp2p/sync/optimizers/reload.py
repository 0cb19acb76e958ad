"""Giving an optimizer the state of another, every tensor in the dtype that it had there, and where it had it.

torch casts what it loads to the parameter's dtype. Of a parameter in bfloat16 the float32 master, and momentum in
float32, are rounded so: a worker that was healed steps otherwise than the one that it is a copy of, on fewer digits, in
silence; and what was restored from a file has lost these digits for good. What was taken is what the optimizer stepped
with, so that is what is put back, wherever torch has put its own.

Nor do strides come along with what is sent or saved. torch makes momentum in the parameter's, and a fused step walks
through parameter, gradient and momentum by their places in memory, without a look at how they lie: of a convolution in
`channels_last`, or of a transposed weight, each element would be stepped with the momentum of another, in silence. So
what has the parameter's shape is laid out as the parameter is before torch takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.state.local import as_part_of, local


def reload(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load what `state_dict` of such an optimizer gave.

    Raises:
        ConfigError: a tensor has another dtype by now, and lies where it cannot be put back.
    """
    saved = _laid_out(optimizer, saved)
    optimizer.load_state_dict(dict(saved))  # of which it may take things out
    _put_back(optimizer, saved)
    for where, before, now in _pairs(saved, optimizer.state_dict(), "state_dict()"):
        if before.dtype != now.dtype:
            raise ConfigError(
                f"{type(optimizer).__name__}.load_state_dict makes {now.dtype} of {where}, which was {before.dtype}: "
                "a worker that is healed or restored would not step as before. Keep the dtype there, or that tensor in "
                "the optimizer's `state`"
            )


def _laid_out(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """A state whose tensors lie as the parameters do, and are parts where these are: torch takes them as they are."""
    if isinstance(optimizer, JointOptimizer):
        pairs = zip(optimizer.parts, saved["parts"], strict=True)
        return {**saved, "parts": [_laid_out(part, each) for part, each in pairs]}
    numbers = [number for group in saved.get("param_groups", ()) for number in group["params"]]
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of = dict(zip(numbers, held, strict=False))
    states = saved.get("state", {})
    return {**saved, "state": {n: _lying_as(of[n], each) if n in of else each for n, each in states.items()}}


def _lying_as(parameter: Tensor, state: Any) -> Any:
    here = local(parameter).detach()

    def laid(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.shape != here.shape:
            return value
        if value.stride() != here.stride():
            value = torch.empty_like(here, dtype=value.dtype, device=value.device).copy_(value)
        return as_part_of(value, parameter)

    return {key: laid(value) for key, value in state.items()} if isinstance(state, Mapping) else state


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
