"""When the next outer round is launched: after a fixed number of inner steps, or after as many as the link asks for.

`Pace` is the fixed one. `AdaptivePace` measures. Compute utilization is *H t / (H t + T)*, with H inner steps of t
seconds between rounds that cost T seconds of waiting, so a target u needs *H = u T / ((1 - u) t)* (the rule behind the
utilization tables of Douillard et al., "Streaming DiLoCo", 2025). Each cluster says with its contribution how long its
steps take and how long its last round took; H follows from the slowest steps and the *shortest* of the round times,
because all others contain waiting for somebody who came later. It is decided with the commit of a round and is part of
the agreed state: no two clusters ever hold a different H for the same round, and a newcomer learns it with the state.

Utilization is not all that counts, for the further apart clusters train, the less their average is worth. Two costs
pull at H: rounds are waited for, as long as h = T / t steps take, which is h / H of the time; and local SGD keeps the
pace of SGD only as long as H is small beside all S steps, up to the order of sqrt(S) (Stich, "Local SGD Converges Fast
and Communicates Little", 2019, theorem 2.2), which we take for a cost of H / S. The two are equal at *H = sqrt(h S)*,
and a phase is never longer than that, or the reference, whatever utilization it would take. S is what was agreed to be
trained so far, for nobody knows how much there is to come: so H grows as training does, and a link that becomes slow
early does not have clusters part for half of the training.

Changing H alone is worse than not adapting (AutoLoCo, 2026): a longer phase makes a longer pseudo-gradient, and
momentum that decays per round forgets at another rate. The outer optimizer is therefore told how long the phase was in
units of the one it was tuned for, and takes the step that as many such phases would have taken (`Nesterov.phase`). It
does so for shorter phases alone. Of a longer one the same step would be an extrapolation: several outer steps along a
line that nobody trained on in between, which real phases would have corrected on the way. That overshoots, and worse
the longer the phase is, so a longer phase takes the one step that the optimizer was tuned to take.

Clusters of different speed arrive together if each takes steps in proportion to its speed (DyLU of Liu et al.,
"Asynchronous Local-SGD Training for Language Modeling", 2024): H is then that of the fastest. Rounds that wait for
nobody are without it mostly, so it is forgotten by an eighth with each, and not with the first: slower ones would then
take as many steps as it does, and come ever later. Since a cluster's workers must launch at the same step, its leader
says so in the exchange before each step; when to say it is the leader's alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ictp2p.errors import ConfigError, shown
from ictp2p.sync import options
from ictp2p.sync.state.agreed import Said
from ictp2p.sync.state.manifest import Entry

if TYPE_CHECKING:
    from torch import Tensor

_NOTE = struct.Struct("<QQ")  # nanoseconds per inner step, nanoseconds that the last round took
_STEPS, _FASTEST = "steps per phase", "nanoseconds per step of the fastest"
_TAKEN, _SYNCED = "steps of all phases", "steps until the last sync of fragment "
_SECOND = 10**9
_LONGEST = 10**9 * 86400
"""A step or a round of more than a day is no measurement."""
_STEADY = 1.25
"""A wanted H within this factor of the present one changes nothing: what is measured wavers by more than it means."""
_ROUNDING = 1e-6
"""Steps by which a quotient may be beyond a whole number because of how fractions are kept."""
_FORGETS = 0.25
"""Weight of the newest step time in the mean."""
_SLOWS = 8
"""A fastest cluster that had no part in a round is taken for slower by one part in so many."""


def turn(steps: int, fragments: int, fragment: int) -> int:
    """Inner steps from the launch of the fragment before to that of `fragment`, of so many in a phase of `steps`.

    Fragment k of F is launched floor((k + 1) H / F) steps into a phase. So each has its turn every H steps exactly,
    also where F does not divide H, and no two turns differ by more than one step.
    """
    return (fragment + 1) * steps // fragments - fragment * steps // fragments


class Pace:
    """A round after every `steps` inner steps."""

    def __init__(self, steps: int) -> None:
        """Set it up.

        Raises:
            ConfigError: `steps` is not a whole number of at least 1.
        """
        self.steps = steps = options.whole("sync_every", steps, 1)
        """Inner steps after which all of the model has been in a round."""
        self.reference = steps
        """The same, as the outer optimizer was tuned for."""
        self.fragments = 1
        """Rounds per phase, each of a part of the model."""
        self.overlap = 0
        """Inner steps of each round that are under cover of training."""
        self._step = 0.0
        """Seconds of an inner step, lately; 0 if none was taken."""

    def fit(self, fragments: int, overlap: int) -> None:
        """Take over how the policy's rounds lie in a phase.

        Raises:
            ConfigError: not every fragment has a step of its own, or there is none, or a round would not end before the
                next begins.
        """
        if fragments < 1:
            raise ConfigError(f"fragments {shown(fragments)} is not at least 1")
        overlap = options.plain(overlap)
        if not isinstance(overlap, int):
            raise ConfigError(f"overlap {shown(overlap)} is not a whole number of steps")
        if fragments > self.steps:
            raise ConfigError(
                f"sync_every {self.steps} is fewer inner steps than there are fragments: {shown(fragments)}"
            )
        between = self.steps // fragments
        if not 0 <= overlap <= between:
            raise ConfigError(
                f"overlap {shown(overlap)} is not from 0 to the {between} steps between two rounds "
                f"(sync_every {self.steps} / fragments {fragments})"
            )
        self.fragments, self.overlap = fragments, overlap

    def describe(self) -> Sequence[tuple[str, str]]:
        """What must be equal everywhere, in words."""
        return [("sync_every", str(self.reference))]

    def length(self, fragment: int = 0) -> int:
        """Inner steps of this cluster from the launch before to that of `fragment`."""
        return max(1, turn(self._own_steps(), self.fragments, fragment % self.fragments))

    def due(self, since: int, fragment: int = 0) -> bool:
        """Whether this cluster launches the round of `fragment`, `since` inner steps after the last launch."""
        return since >= self.length(fragment)

    def agreed(self, counters: Mapping[str, int], *, aloft: bool) -> int:
        """Inner steps of the phases that a state has behind it, and of the one that a round `aloft` from it is of."""
        phases, rest = divmod(counters["round"] + aloft, self.fragments)
        return phases * self.steps + rest * self.steps // self.fragments

    def _own_steps(self) -> int:
        """Inner steps of this cluster in a phase."""
        return self.steps

    def stepped(self, seconds: float) -> None:
        """An inner step took so long."""
        self._step = seconds if not self._step else self._step + _FORGETS * (seconds - self._step)

    def covered(self, aloft: int) -> float:
        """Give the seconds of training that a round still has to end in, `aloft` inner steps after its launch."""
        return max(0, self.overlap - aloft) * self._step

    def took(self, seconds: float) -> None:
        """A round took so long, from launch to commit."""

    def launched(self, *, trained: bool) -> None:
        """A round is being launched; `trained` says whether it brings anything."""

    def phase(self, counters: Mapping[str, int]) -> float:
        """How long the phase is that ends with a round from this state, in phases of the reference length."""
        return 1.0


class AdaptivePace(Pace):
    """A round as often as the link allows at a given compute utilization. Give it to a policy as `sync_every`."""

    name = "pace"
    entries: tuple[Entry, ...] = ()

    def __init__(
        self,
        steps: int = 100,
        *,
        utilization: float = 0.95,
        least: int = 10,
        most: int = 2000,
        proportional: bool = True,
    ) -> None:
        """Set it up.

        Args:
            steps: inner steps of the first phase, and those that the outer optimizer's learning rate is meant for.
            utilization: share of the time that training is to compute, in (0, 1).
            least: fewest inner steps per phase.
            most: most inner steps per phase, whatever else would allow more.
            proportional: whether a slower cluster takes fewer steps, so that all arrive together.

        Raises:
            ConfigError: a value is out of range.
        """
        super().__init__(steps)
        self._utilization = options.number("utilization", utilization, lambda share: 0.0 < share < 1.0, "in (0, 1)")
        self._proportional = options.flag("proportional", proportional)
        self._least, self._most = options.whole("least", least, 1), options.whole("most", most, 1)
        if not self._least <= self.steps <= self._most:
            raise ConfigError(f"steps {steps!r} is not from least = {least!r} to most = {most!r}")
        self._round = 0.0
        self._trained = True
        """Whether there was training in the phase that the next note is about."""
        self._fastest = 0
        self.fit(1, 0)

    @property
    def counters(self) -> Mapping[str, int]:
        """Its numbers in the global state, as they are at first."""
        synced = {f"{_SYNCED}{fragment}": 0 for fragment in range(self.fragments)}
        return {_STEPS: self.reference, _FASTEST: 0, _TAKEN: 0, **synced}

    def fit(self, fragments: int, overlap: int) -> None:
        """Take over how the policy's rounds lie in a phase, which is never too short for them.

        Raises:
            ConfigError: not even the first phase is long enough.
        """
        super().fit(fragments, overlap)
        self._least = max(self._least, fragments * max(1, overlap))

    def describe(self) -> Sequence[tuple[str, str]]:
        """What must be equal everywhere, in words."""
        bounds = f"{self._least} to {self._most}"
        return [*super().describe(), ("utilization", repr(self._utilization)), ("adaptive sync_every", bounds)]

    def agreed(self, counters: Mapping[str, int], *, aloft: bool) -> int:
        """Inner steps of the phases that a state has behind it, as for `Pace`, of the fastest cluster."""
        return self._taken(counters, counters["round"] % self.fragments) if aloft else counters[_TAKEN]

    def _own_steps(self) -> int:
        return round(self.steps * self._share())

    def took(self, seconds: float) -> None:
        """A round took so long, from launch to commit."""
        self._round = seconds

    def launched(self, *, trained: bool) -> None:
        """A round is being launched. Steps that train nothing, of a cluster that looks on, are no measure of others."""
        self._trained = trained

    def phase(self, counters: Mapping[str, int]) -> float:
        """How long the phase is that ends with a round from this state, in phases of the reference length; at most 1.

        It is that of the fragment whose turn it is, since its own last sync. The steps that were agreed count: those
        that were taken differ from cluster to cluster.
        """
        fragment = counters["round"] % self.fragments
        since = self._taken(counters, fragment) - counters[f"{_SYNCED}{fragment}"]
        return min(1.0, since / self.reference)

    def _taken(self, counters: Mapping[str, int], fragment: int) -> int:
        """Steps that were agreed up to the round of a fragment."""
        return counters[_TAKEN] + turn(counters[_STEPS], self.fragments, fragment)

    def note(self) -> bytes:
        """How long steps and rounds take here; 0 for what was not measured."""
        step = self._step if self._trained else 0.0
        return _NOTE.pack(*(min(_LONGEST, int(seconds * _SECOND)) for seconds in (step, self._round)))

    def decide(self, counters: dict[str, int], tensors: Mapping[str, Tensor], said: Sequence[Said]) -> None:
        """Decide H for the phase after the round."""
        measured = [_NOTE.unpack(note) for _, note in said if len(note) == _NOTE.size]
        steps = [step for step, _ in measured if 0 < step <= _LONGEST]
        rounds = [took for _, took in measured if 0 < took <= _LONGEST]
        fragment = (counters["round"] - 1) % self.fragments
        counters[_TAKEN] = counters[f"{_SYNCED}{fragment}"] = self._taken(counters, fragment)
        if steps:
            fastest = counters[_FASTEST]
            counters[_FASTEST] = min(*steps, fastest + fastest // _SLOWS or max(steps))
        if steps and rounds:
            pace = min(steps) if self._proportional else max(steps)
            counters[_STEPS] = self._wanted(counters, pace, min(rounds))

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor]) -> None:
        """Train by what was agreed."""
        self.steps, self._fastest = counters[_STEPS], counters[_FASTEST]

    def _wanted(self, counters: Mapping[str, int], step: int, took: int) -> int:
        """H where a step and a round take so many nanoseconds; in integers but for a division, so the same for all."""
        now = counters[_STEPS]
        waits = max(0, took - self.overlap * step) * self.fragments
        share = self._utilization / (1.0 - self._utilization)
        most = min(self._most, max(self.reference, math.isqrt(waits * counters[_TAKEN] // step)))
        wanted = max(self._least, min(most, math.ceil(share * waits / step - _ROUNDING)))
        steady = wanted <= now * _STEADY and now <= wanted * _STEADY and self._least <= now <= most
        return now if steady else wanted

    def _share(self) -> float:
        """Steps here for one of the fastest cluster's."""
        if not (self._proportional and self._fastest and self._step):
            return 1.0
        return min(1.0, self._fastest / (self._step * _SECOND))
