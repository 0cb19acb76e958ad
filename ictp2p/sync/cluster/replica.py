"""What a worker holds beside the global state, as one thing that another worker of its cluster can become a copy of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.joint import kind
from ictp2p.sync.optimizers.reload import reload
from ictp2p.sync.state.local import local
from ictp2p.sync.state.manifest import difference
from ictp2p.sync.state.pack import pack, unpack


class Stateful(Protocol):
    """Anything with torch's two methods: a learning-rate schedule, a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """What it has to remember."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Go on from there."""
        ...


class Replica:
    """All that a worker holds, beside the global state, and that a newcomer of its cluster needs."""

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, carry: Sequence[Stateful]) -> None:
        """Name the parts.

        Args:
            model: parameters and buffers.
            inner: the inner optimizer; its state stays inside the cluster.
            carry: whatever else is to be carried over.
        """
        self._model, self._inner, self._carry = model, inner, tuple(carry)

    def describe(self) -> list[tuple[str, str]]:
        """What all workers of a cluster must have alike, in words, or none could become a copy of another."""
        groups = [str(len(group["params"])) for group in self._inner.param_groups]
        return [
            ("inner optimizer", f"{kind(self._inner)} of {' and '.join(groups)} parameters"),
            ("carried", ", ".join(type(each).__name__ for each in self._carry)),
            *((f"tensor {name}", str(list(tensor.shape))) for name, tensor in self._tensors().items()),
        ]

    def take(self) -> tuple[bytes, list[Tensor]]:
        """Its parts as a skeleton and tensors."""
        tree = {
            "what": self.describe(),
            "model": self._tensors(),
            "inner": self._inner.state_dict(),
            "carry": [c.state_dict() for c in self._carry],
        }
        return pack(tree, "this worker's state")

    @torch.no_grad()
    def load(self, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
        """Become a copy of another worker.

        Raises:
            ConfigError: it has other parts; the first difference is named. This one is as it was. Or the inner
                optimizer does not keep the dtypes of its state.
        """
        tree = unpack(skeleton, tensors)
        wrong = difference(self.describe(), tree.get("what", ()))
        if wrong is not None:
            raise ConfigError(f"what a worker holds beside the agreed state does not fit this one: {wrong}")
        for name, tensor in self._tensors().items():
            tensor.copy_(tree["model"][name])
        reload(self._inner, tree["inner"])
        for part, state in zip(self._carry, tree["carry"], strict=True):
            part.load_state_dict(state)

    def _tensors(self) -> dict[str, Tensor]:
        named = (*self._model.named_parameters(), *self._model.named_buffers())
        return {name: local(tensor) for name, tensor in named}
