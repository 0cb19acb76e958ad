"""Host memory beside a device: page-locked, and when the copies between the two are over.

A copy between a device and ordinary host memory goes through a page-locked buffer of the driver, and the thread waits
for it. With page-locked memory the device does it alone, at the speed of the bus: many copies are queued at once, on
the stream that the training computes on, so they come after what they read, and `settle` waits for all of them
together. Nothing may touch the host's side before that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def home(tensors: Iterable[Tensor]) -> torch.device:
    """The device that all of `tensors` lie on; the host if they do not all lie on one."""
    places = {tensor.device for tensor in tensors}
    return places.pop() if len(places) == 1 else torch.device("cpu")


def placed(elements: int, dtype: torch.dtype, place: torch.device, near: Iterable[torch.device] = ()) -> Tensor:
    """A flat tensor.

    Args:
        elements: how many.
        dtype: of which type.
        place: where it lies.
        near: devices that will copy to and from it. If it lies on the host, one of these has it page-locked.
    """
    locked = place.type == "cpu" and any(_streams(device) for device in near)
    return torch.empty(elements, dtype=dtype, device=place, pin_memory=locked)


def settle(tensors: Iterable[Tensor]) -> None:
    """Wait until whatever was queued on the streams of the devices of `tensors` is done."""
    for device in sorted({tensor.device for tensor in tensors if _streams(tensor.device)}, key=str):
        torch.get_device_module(device).current_stream(device).synchronize()


def _streams(device: torch.device) -> bool:
    """Whether a device works beside the host, in streams."""
    return device.type not in ("cpu", "meta", "mps")
