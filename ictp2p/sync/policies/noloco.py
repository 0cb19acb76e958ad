"""NoLoCo: clusters meet in random pairs, average with the partner alone, and are pulled towards its weights.

Kolehmainen et al., "NoLoCo: No-all-reduce Low Communication Training Method for Large Models" (2025). Every cluster i
has global parameters phi_i and momentum b_i of its own. In each outer round the clusters meet in pairs (`pairs`), and
with the mean over the pair of pseudo-gradients (phi_j - theta_j) and parameters each takes the step

    b_i <- mu b_i + lr mean(phi_j - theta_j) + pull (phi_i - mean(phi_j));    phi_i <- phi_i - b_i

whose last term keeps the clusters together in place of an all-reduce. Two clusters that only meet each other come
together exactly if 0 < pull < 2 (1 + mu): their difference obeys x^2 - (1 - pull + mu) x + mu = 0, whose roots must lie
in the unit circle. The paper has lr 0.7, mu 0.5, H = 50. Both means are weighted by what the clusters contribute.

A round sends parameters beside the pseudo-gradient, so twice a model to one partner, however many clusters there are;
an all-reduce sends about twice a model too, but through links that all must be fast at once, and waits for the slowest
of all routes. What remains common to all is the agreement: who takes part, with whom, and that the round is over. It
costs a few small messages per cluster and two decisions of the voters, and a round ends when the slowest pair is done.

No two clusters hold the same parameters (`sync.state.own`): `digest()` is that of what the rounds were made of,
`global_parameters()` and `save` give this cluster's own, and a newcomer begins as a copy of one that is there. If a
leader dies after a round was committed, and its heir does not hold what the partner had sent, the heir steps with its
own contribution alone, so that its training counts once; the partner has what it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor

from ictp2p.errors import ConfigError, shown
from ictp2p.sync.mesh import Mesh, Receiver
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.options import cluster, number, plain, rates
from ictp2p.sync.rounds.pairs import pairs
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.own import CHAIN, Name, OwnState, chained
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Common, Compared, Divided, Overlapping
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId

_APART = "it needs a state that is the same everywhere, and here each cluster has its own"
_REFUSED = {
    "codec": "its rounds carry parameters, which are not for a lossy codec",
    "agenda": _APART,
    "sampler": _APART,
    "outer_schedule": "its step, with lr, momentum and pull, is its own",
}
"""Options that this policy does not take, and why."""


class NoLoCoOptions(Common, Divided, Overlapping, Awaited, Compared, total=False):
    """What goes with states that are not the same everywhere, and with a step of its own."""


class NoLoCo(Policy):
    """Train apart for `sync_every` inner steps, then average with one other cluster, drawn anew each time.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.NoLoCo(peer, model, inner, sync_every=50) as policy:
        for batch in peer.steps(loader):
            ...
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        sync_every: int = 50,
        lr: float = 0.7,
        momentum: float = 0.5,
        pull: float = 1.0,
        **options: Unpack[NoLoCoOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            sync_every: inner steps between outer rounds.
            lr: how much of the mean pseudo-gradient goes into the momentum, positive.
            momentum: its decay per round, in [0, 1).
            pull: how much of the way to the pair's mean parameters goes into the momentum, from 0 to below
                2 (1 + momentum).
            options: see `Settings`; all but `outer_schedule`, `codec`, `agenda` and `sampler`: parameters are not for a
                lossy codec, and what is agreed on besides would lie in a state that is not the same
                everywhere.

        Raises:
            ConfigError: a value is out of range.
        """
        sync_every = plain(sync_every)
        lr, momentum, pull = _checked(lr, momentum, pull, sync_every)
        if "outer" in options:
            raise ConfigError("NoLoCo takes no outer: its step, with lr, momentum and pull, is its own")
        given = {name: shown(value) for name, value in options.items() if value is not None}
        wrong = next((name for name in _REFUSED if given.get(name, "'none'") != "'none'"), None)
        if wrong is not None:
            raise ConfigError(f"NoLoCo takes no {wrong}: {_REFUSED[wrong]}")
        arithmetic = partial(PairWeights, cluster=cluster(peer), lr=lr, pull=pull)
        outer = partial(_heavy_ball, momentum=momentum)
        super().__init__(
            peer, model, inner, outer, sync_every, name="noloco", grouping="pairs", arithmetic=arithmetic, **options
        )


class PairWeights(Weights):
    """`Weights` of one cluster among others that hold other ones. A round carries the parameters too."""

    carries = 2
    in_parts = False

    def __init__(
        self,
        model: torch.nn.Module,
        outer: Any,
        settings: Sequence[tuple[str, str]],
        *args: Any,
        cluster: ClusterId,
        lr: float,
        pull: float,
    ) -> None:
        """As `Weights`, with what `NoLoCo` has besides."""
        self._cluster, self._lr, self._pull = cluster, lr, pull
        super().__init__(model, outer, [*settings, ("lr", repr(lr)), ("pull", repr(pull))], *args)

    def receiver(self) -> Receiver:
        """Where the agreed state is received: who has one of its own takes over the name alone."""
        state = self.state
        assert isinstance(state, OwnState)
        return Name(state) if state.version else state

    @torch.no_grad()
    def capture(self, weight: float) -> None:
        """Compute the pseudo-gradient, and have the parameters that it starts from beside it."""
        super().capture(weight)
        for name, view in self._views(self._second(self.delta)).items():
            view.copy_(self.state.committed[name])

    @torch.no_grad()
    def adopt(self, *, mine: Collection[int]) -> None:
        """Go on under the name that was received; a contribution whose result is not here is stepped with alone."""
        former, now = self.state.former, self.state.committed
        if mine and all(torch.equal(former[name], now[name]) for name in now):  # else the leader has done it for us
            self._average.copy_(self._delta)
            self._step(self.average)
            self.state.seal(self.state.counters)
            self.state.commit(self.state.version)
        if mine:
            self._land(self.fragments[self._captured])

    def _make_state(self, *args: Any) -> GlobalState:
        return OwnState(*args)

    def _counted(self, parts: Sequence[Participant]) -> dict[str, int]:
        return {**super()._counted(parts), CHAIN: chained(self.state.digest, parts)}

    def _idle(self, parts: Sequence[Participant]) -> bool:
        """Whether neither of this pair has trained."""
        met = next((p for p in pairs(self.state.digest, [p.cluster for p in parts]) if self._cluster in p), ())
        return super()._idle([part for part in parts if part.cluster in met])

    def _step(self, average: Tensor) -> Any:
        """Begin the next state, and take the step in it."""
        deltas, means = self._views(average), self._views(self._second(average))
        trained = [name for name in deltas if name in self.trained]
        tentative = self.state.begin([*self._outer.touched(trained), *deltas])
        # Beside the average, which followers are handed as it came, and step from, once a round has landed.
        stepped = {
            name: deltas[name].mul(self._lr).add_(tentative[name].sub(means[name]).mul_(self._pull)) for name in trained
        }
        self._outer.step(tentative, stepped)
        for name in deltas:
            if name in self.buffers:
                torch.sub(means[name], deltas[name], out=tentative[name])
        return tentative

    def _second(self, flat: Tensor) -> Tensor:
        return flat[len(flat) // self.carries :]


def _checked(lr: float, momentum: float, pull: float, sync_every: object) -> tuple[float, float, float]:
    lr, momentum = rates(lr, momentum)
    bound = f"in [0, {2.0 * (1.0 + momentum):g}), or below 2 (1 + momentum): the clusters would drift apart"
    pull = number("pull", pull, lambda share: 0.0 <= share < 2.0 * (1.0 + momentum), bound)
    if not isinstance(sync_every, int):
        raise ConfigError(
            f"sync_every {shown(sync_every)} is not a whole number: NoLoCo takes no AdaptivePace, for a pull knows no "
            "longer phases"
        )
    return lr, momentum, pull


def _heavy_ball(parameters: list[torch.nn.Parameter], momentum: float) -> Nesterov:
    return Nesterov(parameters, lr=1.0, momentum=momentum, nesterov=False)
