"""A model beside the global state, and the arithmetic between the two.

The global state holds each trained parameter and each floating-point buffer in float32 (float64 for a model that is
all of that), then the state of the outer optimizer. Three places for a value: the model (`local`), what the mesh agreed
on (`committed`), and what it may agree on next (`tentative`). Everything here is element-wise and rounds each operation
once, so equal inputs give equal bits on every worker.

The pseudo-gradient is taken from what was *loaded* at the last sync, which for a model in half precision is the rounded
global value: else the rounding itself would be trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ictp2p.sync.outer import Outer, OuterFactory, wide
from ictp2p.sync.state import GlobalState, entry


class Weights:
    """What is trained together: a model's tensors, the outer optimizer and the global state."""

    def __init__(
        self,
        model: torch.nn.Module,
        outer: torch.optim.Optimizer | OuterFactory | None,
        settings: Sequence[tuple[str, str]],
    ) -> None:
        """Take the model as version 0.

        Args:
            model: what is trained.
            outer: the outer optimizer; None for DiLoCo's default.
            settings: what else must be equal everywhere, in words.

        Raises:
            ConfigError: the outer optimizer does not fit the model.
        """
        self.trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        """Parameters by name."""
        self.buffers = {f"buffer {n}": b for n, b in model.named_buffers() if b.is_floating_point()}
        """Floating-point buffers; they are averaged, but no optimizer steps them."""
        self._tensors: dict[str, Tensor] = {**self.trained, **self.buffers}
        self.dtype = wide([t.dtype for t in self._tensors.values()])
        self._outer = Outer(outer, self.trained, self.dtype)
        self.state = self._initial([*settings, *self._outer.describe()])
        elements = sum(t.numel() for t in self._tensors.values())
        self.delta = torch.zeros(elements, dtype=self.dtype)
        """The pseudo-gradient, flat."""
        self.average = torch.zeros(elements, dtype=self.dtype)
        """Its average over the mesh, flat."""

    @torch.no_grad()
    def subtract(self) -> None:
        """Compute the pseudo-gradient: old global minus local."""
        for name, view in self._views(self.delta).items():
            tensor = self._tensors[name]
            view.copy_(self.state.committed[name].to(tensor.dtype))
            view.sub_(tensor.to("cpu", self.dtype))

    @torch.no_grad()
    def finish(self) -> bytes:
        """Compute the next state from the average, beside the current one; give its digest."""
        deltas = self._views(self.average)
        tentative = self.state.begin()
        self._outer.step(tentative, {name: deltas[name] for name in self.trained})
        for name in self.buffers:
            tentative[name].sub_(deltas[name])
        return self.state.seal({"round": self.state.counters["round"] + 1})

    def commit(self, version: int) -> None:
        """Make the finished state the agreed one, and train on from it."""
        self.state.commit(version)
        self.load()

    @torch.no_grad()
    def load(self) -> None:
        """Train on from the agreed state."""
        for name, tensor in self._tensors.items():
            tensor.copy_(self.state.committed[name])

    @torch.no_grad()
    def carry_over(self) -> None:
        """Train on from a state just received, keeping local progress: theta <- G_new + (theta - G_old)."""
        for name, tensor in self._tensors.items():
            # Receiving a state leaves the one before it in the other half.
            moved = tensor.to("cpu", self.dtype, copy=True).sub_(self.state.tentative[name].to(tensor.dtype))
            tensor.copy_(moved.add_(self.state.committed[name]))

    def agreed(self) -> dict[str, Tensor]:
        """Copies of the agreed parameters and buffers, under the model's names, as the model would hold them."""
        return {
            name.removeprefix("buffer "): self.state.committed[name].to(t.device, t.dtype, copy=True)
            for name, t in self._tensors.items()
        }

    def _initial(self, settings: Sequence[tuple[str, str]]) -> GlobalState:
        entries = [entry(name, t.detach().to("meta", self.dtype)) for name, t in self._tensors.items()]
        state = GlobalState([*entries, *self._outer.entries], settings)
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                state.tentative[name].copy_(tensor)
        state.seal({"round": 0})
        state.commit(0)
        return state

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [t.numel() for t in self._tensors.values()])
        return {n: part.view(t.shape) for (n, t), part in zip(self._tensors.items(), parts, strict=True)}
