"""What a model's tensors hold, in digests: whether it is what it was, and whether others hold the same.

A digest is of bytes, dtype and shape, wherever the tensor lies; of a distributed one, of what of it is here.
Several are computed at a time, since hashing releases the interpreter lock, but only a few: each has to be copied from
its device first.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from ictp2p.sync.manifest import digest_of
from ictp2p.sync.pack import octets

_AT_A_TIME = 4


def digests(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    """The digest of each tensor, by name."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(tensors, pool.map(_digest, tensors.values()), strict=True))


def _digest(tensor: Tensor) -> bytes:
    held = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return digest_of(digest_of(octets(held)) + f"{held.dtype}{list(held.shape)}".encode())
