"""Tensors of which each rank holds a part (torch's DTensor), seen as that part.

FSDP2 and tensor parallelism leave a rank with a piece of each parameter, in memory of its own, under a type that
answers for the whole: arithmetic on it asks the other ranks. What a policy averages, hashes and sends is the piece
alone, so everything that touches the memory of a model's tensors, or of its optimizer's, goes through here.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=Tensor)


def is_distributed(tensor: Tensor) -> bool:
    """Whether there is more of it elsewhere."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """What of a tensor is here, in the same memory and without a history; one that is not distributed as it is."""
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        found: Tensor = tensor.to_local().detach()  # type: ignore[attr-defined]
    return found


def as_part_of(part: Tensor, whole: Tensor) -> Tensor:
    """A part under the type of the tensor that it is a part of; as it is where that is not distributed."""
    if not is_distributed(whole):
        return part
    from torch.distributed.tensor import DTensor

    where = whole.device_mesh, whole.placements  # type: ignore[attr-defined]
    return DTensor.from_local(part, *where, run_check=False, shape=whole.shape, stride=whole.stride())
