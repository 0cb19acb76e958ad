"""torch's reduction operations as those of `collectives.running.sums`, for every type that has them.

Bools are bytes of 0 or 1, and a sum of them is whether any is set, as torch has it; complex numbers are pairs of real
ones, of which only sums and means are defined by parts. `PREMUL_SUM` multiplies each contribution by a factor first.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ictp2p.collectives.running.flat import reducible, writable
from ictp2p.collectives.running.sums import check_op
from ictp2p.errors import ConfigError

_OPS: dict[Any, str] = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
    dist.ReduceOp.PREMUL_SUM: "premul_sum",
}
_OF_BOOLS = {"sum": "max", "max": "max", "bor": "max", "product": "min", "min": "min", "band": "min", "bxor": "bxor"}


class Reduction:
    """One reduction of tensors of one type.

    Refused here, before anything has left: the other ranks are told (`refusals`).

    Raises:
        ConfigError: the type has no such operation, or its products with a factor would be of another.
    """

    def __init__(self, operation: Any, dtype: torch.dtype) -> None:
        state = operation.__getstate__() if hasattr(operation, "__getstate__") else (operation, None)
        kind = next((name for op, name in _OPS.items() if operation == op), None)
        if kind is None:
            raise ConfigError(f"reduction {operation!r} is not known")
        self.factor: float | None = None
        self._dtype = dtype
        if kind == "premul_sum":
            self.factor, kind = _factor(state[1], dtype), "sum"
        if dtype is torch.bool:
            if kind not in _OF_BOOLS:
                raise ConfigError(f"bools have no reduction {kind!r}")
            kind = _OF_BOOLS[kind]
        elif dtype.is_complex and kind not in ("sum", "avg"):
            raise ConfigError(f"{dtype} has no reduction {kind!r}")
        elif not dtype.is_complex:
            if not reducible(dtype):
                raise ConfigError(f"{dtype} cannot be reduced")
            check_op(kind, dtype)
        self.op = kind
        """Its name in `collectives.running.sums`."""

    def view(self, flat: Tensor) -> Tensor:
        """See a flat tensor as a type that can be reduced."""
        if self._dtype is torch.bool:
            return writable(flat.view(torch.uint8))
        return writable(torch.view_as_real(flat).view(-1)) if flat.is_complex() else flat

    def contribution(self, flat: Tensor) -> Tensor:
        """What a rank brings: `flat` itself, or times the factor."""
        return flat if self.factor is None else flat * self.factor


def _factor(given: Any, dtype: torch.dtype) -> float:
    """A factor as a number, though it be given as a tensor: the product of two may be of another type than either."""
    factor: float = given.item() if isinstance(given, Tensor) else given
    if torch.result_type(torch.empty(1, dtype=dtype, device="cpu"), factor) != dtype:
        raise ConfigError(f"{dtype} times the factor {factor!r} of PREMUL_SUM would be of another type")
    return factor
