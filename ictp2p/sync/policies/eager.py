"""Eager DiLoCo: a round takes as long as the next phase of training, and nobody waits for it.

Kale, Douillard and Donchev, "Eager Updates For Overlapped Communication and Computation in DiLoCo" (2025). A round that
is under way during a whole phase of inner steps brings its average one phase late; applying it then, alone, costs
loss. But a cluster's own contribution it knows at once. So it goes on from an estimate, its own new pseudo-gradient for
its own part of the average, and what the others brought the time before for theirs:

    estimate = share own + scale (average before - share before own before)

Averages are by weight (the paper's are of M equal clusters, where every share is 1/M and the scale 1), so these are
too: `share` is what this cluster's weight makes of its own and that of the others the time before, and `scale` what the
total was then of what it is now. Who looks on estimates from the others alone, and of a first phase, where nothing is
known of others, the estimate is all its own. When the average arrives, the outer step is taken for good from the agreed
state, and the next estimate starts from there: estimates are never accumulated, and they are this cluster's alone. The
agreed state is exactly that of the averages, one phase behind; it is what all clusters hold in common, bit for bit, and
what a newcomer fetches. Running statistics are not estimated: they forget where they started from, so a step from an
estimate would be taken twice. Each cluster keeps its own, and the agreed ones are their means. With a single cluster
the estimate is the average, and this is `DiLoCo`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor

from ictp2p.errors import ConfigError, shown
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.model.arithmetic import check_finite, clear
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.outer import OuterFactory
from ictp2p.sync.options import cluster, plain
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Coded, Common, Compared, Decided, Stepped
from ictp2p.sync.values import LOOKS_ON, Participant
from ictp2p.types import ClusterId


class EagerOptions(Common, Coded, Awaited, Stepped, Decided, Compared, total=False):
    """All but how a model is divided and training goes on under a round: that is what this policy is."""


class EagerDiLoCo(Policy):
    """Go on from an estimate of the outer step, and correct it when the average arrives.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.EagerDiLoCo(peer, model, inner, sync_every=30) as policy:
        for batch in peer.steps(loader):
            ...
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None = None,
        sync_every: int = 30,
        **options: Unpack[EagerOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            outer: as for `Policy`; None for Nesterov SGD with learning rate 0.7 and momentum 0.9.
            sync_every: inner steps between outer rounds, and the time that each has.
            options: see `Settings`; all but `fragments`, `overlap` and `mix`.

        Raises:
            ConfigError: a value is out of range, or an optimizer does not fit.
        """
        taken = next((name for name in ("fragments", "overlap", "mix") if name in options), None)
        if taken is not None:
            raise ConfigError(f"EagerDiLoCo takes no {taken}: a round is of the whole model, and lands a phase later")
        sync_every = plain(sync_every)
        if not isinstance(sync_every, int):
            raise ConfigError(
                f"sync_every {shown(sync_every)} is not a whole number: EagerDiLoCo takes no AdaptivePace, for a round "
                "takes a phase, however long"
            )
        super().__init__(
            peer,
            model,
            inner,
            outer,
            sync_every,
            name="eager-diloco",
            overlap=sync_every,
            arithmetic=partial(EagerWeights, cluster=cluster(peer)),
            **options,
        )


class EagerWeights(Weights):
    """`Weights` whose model trains from an estimate of the agreed state to come."""

    trains_on = True

    def __init__(self, *args: Any, cluster: ClusterId, **options: Any) -> None:
        """As `Weights`, for the cluster of that name."""
        super().__init__(*args, **options)
        self._cluster = cluster
        self._others = torch.zeros_like(self.delta)
        """Their part in the last average that was seen."""
        self._brought = (0.0, 0.0)
        """The weights in it: this cluster's, and that of all others."""
        self._next = (0.0, 0.0)
        """The weights in the round that was finished last."""
        self._unlanded = False
        """Whether what was captured last is in no average yet."""
        self._seen = 1
        """Of how many clusters the last average was that was seen."""

    @torch.no_grad()
    def take(self) -> None:
        """Take the model as it is now for version 0, and start from there."""
        super().take()
        self._start = {name: tensor.to("cpu", self.dtype, copy=True) for name, tensor in self._tensors.items()}

    @torch.no_grad()
    def capture(self, weight: float) -> None:
        """Compute the pseudo-gradient from where training started, and go on from an estimate.

        Args:
            weight: as for `Weights`.

        Raises:
            NotFinite: as for `Weights`.
        """
        moved = self._views(self.average)  # of use to nobody between a landing and the next round
        self._subtract(moved, {n: (self._start if n in self.trained else self.state.committed)[n] for n in moved})
        if not weight:
            clear(moved)
        check_finite(moved)  # before it is added to what has still to be brought
        for name, view in self._views(self.delta).items():
            view.copy_(moved[name].add_(view) if self._unlanded and weight and name in self.trained else moved[name])
        self._unlanded, self._contributions = True, self._seen
        self._go_on(self._step(self._estimate(weight)), self.trained)
        self.state.rollback()

    def finish(self, parts: Sequence[Participant]) -> bytes:
        """Compute the next state from the average, beside the current one; give its digest."""
        active = [part for part in parts if part.weight > LOOKS_ON]
        ours, others = ([p.weight for p in active if (p.cluster == self._cluster) == mine] for mine in (True, False))
        self._next = (math.fsum(ours), math.fsum(others))
        return super().finish(parts)

    def commit(self, version: int) -> None:
        """Make the finished state the agreed one; training goes on from the estimate until the next capture."""
        self.state.commit(version)
        self._brought, self._seen, self._unlanded = self._next, self._contributions, False
        torch.sub(self.average, self.delta.mul(_share(*self._brought)), out=self._others)

    def _estimate(self, weight: float) -> Tensor:
        """What the average will be, if this cluster's part has that weight, and all others bring what they did."""
        ours, others = self._brought
        scale = (ours + others) / (weight + others or 1.0)
        return self.delta.mul(_share(weight, others)).add_(self._others.mul(scale))

    def adopt(self, *, mine: Collection[int]) -> None:
        """The next capture estimates from the received state, with what the others brought when that was last seen."""
        self._unlanded = self._unlanded and not mine

    @torch.no_grad()
    def load(self) -> None:
        """Train on from the agreed state, whatever was here before, captured or not."""
        self._unlanded = False
        self._go_on(self.state.committed, self._tensors)

    def carried(self, *, captured: bool) -> dict[str, Any]:
        """What a newcomer to the cluster needs, beside the model and the agreed state."""
        flags = {"brought": list(self._brought), "seen": self._seen, "unlanded": self._unlanded}
        return {**super().carried(captured=True), "start": dict(self._start), "others": self._others, **flags}

    @torch.no_grad()
    def take_over(self, carried: dict[str, Any]) -> None:
        """Hold what another worker holds."""
        super().take_over(carried)
        for name, start in self._start.items():
            start.copy_(carried["start"][name])
        self._others.copy_(carried["others"])
        (ours, others), self._seen, self._unlanded = carried["brought"], carried["seen"], carried["unlanded"]
        self._brought = ours, others

    def _go_on(self, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
        for name in names:
            self._start[name].copy_(tensors[name])
            self._tensors[name].copy_(tensors[name])


def _share(ours: float, others: float) -> float:
    """What part of an average a cluster's weight gives it."""
    return ours / (ours + others) if ours else 0.0
