"""A loss scaler's part in a step: what is averaged has no scale, and all workers skip a step or none does.

torch's `GradScaler` unscales gradients before the step, and does not call it where they overflowed. With a fused
optimizer it leaves both to the kernel: it hands over the scale, and whether *this* worker's gradients overflowed, as
attributes of the optimizer. Averaged as they are, gradients of two scales would mix, and whoever did not overflow would
take in the infinity of who did. So gradients are unscaled before they are averaged, and what comes of that is looked at
again: the average of something infinite is infinite everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ictp2p.sync.state.local import local


@torch.no_grad()
def unscale(optimizer: Any) -> None:
    """Have the gradients without their scale, if the kernel was to do it. Done once: a repeated step finds it done."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None:
        return
    inverse = scale.double().reciprocal().float()  # as torch does: the reciprocal of a large float32 would be 0
    for gradient in _gradients(optimizer):
        gradient.mul_(inverse.to(gradient.device))
    optimizer.grad_scale = None


@torch.no_grad()
def look_again(optimizer: Any, *, shards: bool = False) -> bool:
    """Have the kernel skip the step if the gradients, averaged by now, are not all finite; and only then.

    Says whether the step is taken: samples whose step was skipped are in no model.

    Args:
        optimizer: the inner one.
        shards: whether this worker holds a part of each gradient. The scaler has looked at all parts then, nothing was
            averaged since, and this part alone does not tell: another one may not be finite.
    """
    found = getattr(optimizer, "found_inf", None)
    if found is None:
        return True
    if shards:
        return not found.item()
    finite = [torch.isfinite(gradient).all().to(found.device) for gradient in _gradients(optimizer)]
    if not finite:  # nobody had any weight: nothing is stepped
        return True
    taken = torch.stack(finite).all()
    optimizer.found_inf = taken.logical_not().to(found.dtype).reshape_as(found)
    return bool(taken)


def _gradients(optimizer: Any) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from (local(parameter.grad) for parameter in group["params"] if parameter.grad is not None)
