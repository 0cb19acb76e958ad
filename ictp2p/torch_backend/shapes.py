"""Whether tensors and ranks fit each other and the group, and how tensors are cut into the ranks' parts.

All tensors here are flat. What does not fit is an error at the caller, before anything has left, and the other ranks
are told (`refusals`): nobody is sent bytes that mean something else to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ictp2p.errors import ConfigError


def member(rank: int, size: int, name: str) -> int:
    """See that a rank that was named is one of `size`; gives it.

    Raises:
        ConfigError: it is not. To Python -1 would be the last one.
    """
    if not 0 <= rank < size:
        raise ConfigError(f"{name}: there is no rank {rank} in a group of {size}, numbered from 0")
    return rank


def expect(size: int, count: int, what: str) -> None:
    """See that there is one for each of `size` ranks.

    Raises:
        ConfigError: there are more or fewer; `what` says of what.
    """
    if count != size:
        raise ConfigError(f"{count} {what} for {size} ranks")


def fits(place: Tensor, brought: Tensor, name: str) -> None:
    """See that one tensor can be copied to the other.

    Raises:
        ConfigError: they differ in type or in number of elements.
    """
    if place.numel() != brought.numel() or place.dtype != brought.dtype:
        raise ConfigError(
            f"{name}: {brought.numel()} elements of {brought.dtype} do not fit in {place.numel()} of {place.dtype}"
        )


def split(flat: Tensor, length: int, size: int, name: str) -> list[Tensor]:
    """Cut a tensor into `size` parts of `length` elements; `name` is the call's, for errors.

    Raises:
        ConfigError: they are not what it has.
    """
    if len(flat) != size * length:
        raise ConfigError(f"{name}: {len(flat)} elements of {flat.dtype} are not {size} parts of {length}")
    return list(torch.split(flat, length)) if length else [flat] * size


def cut(flat: Tensor, shape: torch.Size, rows: Sequence[int], size: int) -> list[Tensor]:
    """Cut a tensor that had `shape` by rows of it: so many for each rank, or evenly where none are given.

    Raises:
        ConfigError: they are not as many as ranks, or do not add up to all rows, or one is negative; or there are none,
            as in a scalar.
    """
    if not shape:
        raise ConfigError("a tensor without dimensions has no rows to cut it by")
    height = shape[0]
    if not rows:
        if height % size:
            raise ConfigError(f"{height} rows do not make {size} equal parts: give split sizes")
        rows = [height // size] * size
    expect(size, len(rows), "split sizes")
    if min(rows) < 0 or sum(rows) != height:
        raise ConfigError(
            f"split sizes {list(rows)} do not add up to the {height} rows of the tensor, or one is negative"
        )
    return list(torch.split(flat, [count * (flat.numel() // max(1, height)) for count in rows]))
