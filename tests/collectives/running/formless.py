"""Tensors that torch lets pass for such, and that cannot be sent: those without memory of their own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


class Sharded(Tensor):
    """What DTensor is, without its mesh: an object that says what it would be, and has its elements elsewhere."""

    @staticmethod
    def __new__(cls) -> Sharded:
        return Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)  # type: ignore[no-any-return, attr-defined]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls()
        raise NotImplementedError(f"{func} of what stands for others")

    def to_local(self) -> Tensor:
        return torch.ones(4)


def nested() -> Tensor:
    with warnings.catch_warnings(action="ignore"):  # of a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])


FORMLESS: Final[Mapping[str, Tensor]] = {
    r"is a Sharded without memory of its own: give its to_local\(\)": Sharded(),
    "is a FakeTensor without memory of its own$": FakeTensorMode().from_tensor(torch.ones(4)),
    "is an UninitializedParameter without memory": torch.nn.UninitializedParameter(),
    "is a Tensor without memory": torch._to_functional_tensor(torch.ones(4)),
    "on the device meta": torch.ones(4, device="meta"),
    r"layout torch.sparse_coo: give its to_dense\(\)": torch.ones(4).to_sparse(),
    r"nested tensor, which is several: give its unbind\(\)": nested(),
}
"""By what is said of them."""
