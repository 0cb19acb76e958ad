"""What a model's tensors hold, in digests: whether it is what it was, and whether others hold the same.

A digest is of bytes, dtype and shape, wherever the tensor lies; of a distributed one, of what of it is here.
Several are computed at a time, since hashing releases the interpreter lock, but only a few: each has to be copied from
its device first.

Parameters that are trained come to be the same everywhere, whatever they were. Those that are not stay as they are, so
they have to be the same from the beginning: what is trained on one base model and averaged with what is trained on
another is good for neither, and all digests of what is agreed on are equal. Hence what is frozen is among the settings
that all must share, a line for each parameter, so that the first one that differs is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from ictp2p.sync.state.local import local
from ictp2p.sync.state.manifest import digest_of
from ictp2p.sync.state.pack import octets

_AT_A_TIME = 4
_SHOWN = 16
"""Hexadecimal digits of a digest that are compared: nobody gains by two that are alike."""


def digests(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    """The digest of each tensor, by name; none of one that is made of others, by a subclass.

    Raises:
        RuntimeError: one could not be read, for want of memory say.
    """
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(tensors, pool.map(_digest, tensors.values()), strict=True))


def frozen(tensors: Mapping[str, Tensor]) -> list[tuple[str, str]]:
    """What all must have alike of tensors that nobody trains, in words."""
    found = digests(tensors)
    return [
        (f"frozen {name}", f"{_words(tensor)} {found[name].hex()[:_SHOWN]}".strip()) for name, tensor in tensors.items()
    ]


def _digest(tensor: Tensor) -> bytes:
    held = local(tensor)
    return digest_of(digest_of(octets(held)) + _words(held).encode()) if _has_bytes(held) else b""


def _has_bytes(tensor: Tensor) -> bool:
    """Whether there are bytes to look at. Of those that there are none may fail to be read: no digest is a difference.

    A sparse or a nested tensor, and one of a subclass that computes by itself, is made of others; on "meta" is nothing.
    """
    plain = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__ and not (tensor.is_meta or tensor.is_nested)
    return plain and tensor.layout is torch.strided


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
