"""Whether a tensor has memory that can be sent and written, asked before anybody else hears of the call that it is for.

Some have none: a DTensor stands for a shard here and others elsewhere, a FakeTensor for a shape, a nested one for
several. torch lets them pass for tensors until their bytes are wanted, and by then the other participants wait.
Subclasses that hold their elements as any tensor does, as parameters, are as good as any; and what stands for a result
that is under way has its memory (`awaited`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def awaited(tensor: Tensor) -> Tensor:
    """The tensor itself, or the result that it stands for, once that is there.

    torch's functional collectives give an `AsyncCollectiveTensor`, and tensor parallel layers with it. c10d takes the
    result out of it before it asks a group in C++, but not for one in Python.
    """
    wait = getattr(tensor, "trigger_wait", None)
    return tensor if wait is None else wait()


def unreadable(tensor: Tensor) -> str:
    """Why a tensor cannot be read, after its name; nothing if it can."""
    if tensor.is_nested:
        return "is a nested tensor, which is several: give its unbind()"
    if tensor.layout is not torch.strided:
        return f"has layout {tensor.layout}: give its to_dense()"
    if tensor.is_meta:
        return "is on the device meta, which holds no data"
    if not _has_memory(tensor):
        advice = ": give its to_local() or full_tensor()" if hasattr(tensor, "to_local") else ""
        kind = type(tensor).__name__
        return f"is {'an' if kind[0] in 'AEIOU' else 'a'} {kind} without memory of its own{advice}"
    return ""


def unwritable(tensor: Tensor) -> str:
    """Why a tensor that can be read cannot be written, after its name; nothing if it can."""
    if 0 in tensor.stride() and any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        return "is expanded: several of its elements are one in memory, so it cannot be written; give a clone()"
    return ""


def _has_memory(tensor: Tensor) -> bool:
    try:
        storage = tensor.untyped_storage()
        return storage.device.type != "meta" and (storage.data_ptr() != 0 or not tensor.numel())
    except (RuntimeError, ValueError):  # what wraps others has no storage, what is not initialized yet none so far
        return False
