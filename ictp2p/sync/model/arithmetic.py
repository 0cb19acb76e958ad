"""What is done to single tensors between a model and the global state.

Everything here is of single elements but for the check, and rounds each operation once, so equal inputs give equal bits
on every worker, in whatever pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ictp2p.errors import NotFinite
from ictp2p.sync.model.tensors import BUFFER


def subtract(held: torch.dtype, masks: bool, view: Tensor, base: Tensor, value: Tensor) -> None:
    """Have a view be `base`, as a model of type `held` was loaded from it, minus its value.

    A buffer may hold infinity (a mask does), which is no difference.
    """
    view.copy_(value)
    base = base.to(held).to(view.dtype)
    same = base == view if masks else None
    torch.sub(base, view, out=view)
    if same is not None:
        view.masked_fill_(same, 0.0)


def take_mean(positive: bool, agreed: Tensor, delta: Tensor) -> None:
    """Have a buffer follow the mean. A variance stays one, whatever a codec made of that."""
    agreed.sub_(delta)
    if positive:
        agreed.clamp_(min=0.0)


def mix_in(part: float, masks: bool, value: Tensor, now: Tensor) -> None:
    """Have a value keep so much of itself, and be what was agreed in the rest; infinity that is in both stays."""
    if part:
        ours = value.to("cpu", now.dtype, copy=True)
        mixed = ours.mul(part).add_(now.mul(1.0 - part))
        now = torch.where(ours == now, now, mixed) if masks else mixed
    value.copy_(now)


def clear(views: Mapping[str, Tensor]) -> None:
    """Have a contribution hold nothing."""
    for view in views.values():
        view.zero_()


def check_finite(views: Mapping[str, Tensor]) -> None:
    """See that a contribution holds numbers.

    Raises:
        NotFinite: parameters or buffers hold NaN or infinity; the message names them.
    """
    if math.isfinite(sum(view.sum().item() for view in views.values())):
        return
    wrong = [name.removeprefix(BUFFER) for name, view in views.items() if not view.isfinite().all()]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise NotFinite(f"{', '.join(wrong[:3])}{more} hold NaN or infinity: this cluster's training has diverged")
