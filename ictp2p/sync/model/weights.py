"""A model beside the global state.

The global state holds each trained parameter and each floating-point buffer in float32 (float64 for a model that is
all of that), then the state of the outer optimizer. Three places for a value: the model (`local`), what the mesh agreed
on (`committed`), and what it may agree on next (`tentative`). Everything here is element-wise and rounds each operation
once, so equal inputs give equal bits on every worker.

The pseudo-gradient is taken from what was *loaded* at the last sync, which for a model in half precision is the rounded
global value: else the rounding itself would be trained.

A round carries one fragment of the model (all of it, where there is one). Which one follows from the number of rounds
that the agreed state has behind it, so everybody who starts from the same state brings the same fragment, whatever its
own step. What a fragment's round brought is mixed into the model, *new global (1 - mix) + local mix*, since training
went on while it was under way (Douillard et al., "Streaming DiLoCo", 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import exactly
from ictp2p.device_memory import placed, settle
from ictp2p.errors import ConfigError
from ictp2p.sync import options
from ictp2p.sync.mesh import Receiver
from ictp2p.sync.model.arithmetic import check_finite, clear, mix_in, subtract, take_mean
from ictp2p.sync.model.stepping import Stepping
from ictp2p.sync.model.tensors import BUFFER, ModelTensors
from ictp2p.sync.optimizers.outer import Outer, OuterFactory, wide
from ictp2p.sync.optimizers.outer_schedule import OuterSchedule
from ictp2p.sync.pace import Pace
from ictp2p.sync.state import manifest
from ictp2p.sync.state.agreed import Agenda
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.local import as_part_of
from ictp2p.sync.state.manifest import Entry, describe
from ictp2p.sync.values import LOOKS_ON, REMEMBERED, Participant


class Weights:
    """What is trained together: a model's tensors, the outer optimizer and the global state."""

    carries = 1
    """Values per element of the model that a round carries."""
    trains_on = False
    """Whether what is trained while a round is under way stays when it lands."""
    keeps_residual = False
    """Whether what a contribution leaves out comes with a later one."""
    in_parts = True
    """Whether an element of the next state follows from its own of the average, and from no other."""

    def __init__(
        self,
        model: torch.nn.Module,
        outer: torch.optim.Optimizer | OuterFactory | None,
        settings: Sequence[tuple[str, str]],
        divided: int | Sequence[Collection[str]] = 1,
        mix: float = 0.0,
        agenda: Agenda | None = None,
        pace: Pace | None = None,
        schedule: OuterSchedule | None = None,
    ) -> None:
        """Take the model as version 0.

        Args:
            model: what is trained.
            outer: the outer optimizer; None for DiLoCo's default.
            settings: what else must be equal everywhere, in words.
            divided: into which fragments; see `fragments`.
            mix: how much of the local value stays when a new global one arrives, in [0, 1).
            agenda: what else is agreed on with each round.
            pace: how long the phases are that the outer optimizer steps after; None for always the same.
            schedule: what the outer learning rates are multiplied by, round by round; None for always 1.

        Raises:
            ConfigError: the outer optimizer does not fit the model, nor the fragments, or `mix` is out of range.
        """
        mix = options.number("mix", mix, lambda part: 0.0 <= part < 1.0, "in [0, 1)")
        self._model = ModelTensors(model)
        self.trained, self.buffers, self._tensors = self._model.trained, self._model.buffers, self._model.here
        """By name: parameters, floating-point buffers, and what of both is in this worker's memory."""
        self._mix = mix
        self.agenda = agenda or Agenda(())
        self._pace = pace or Pace(1)
        self.dtype = wide([t.dtype for t in self._tensors.values()])
        self.fragments = self._model.divide(divided)
        """Names of the tensors in each fragment."""
        self._outer = Outer(outer, self.trained, self.dtype, schedule)
        parts = [("fragments", str(len(self.fragments))), ("mix", repr(mix))]
        parts += [(f"fragment of {n}", str(k)) for k, part in enumerate(self.fragments) for n in part if k]
        entries = [entry(name, t.detach().to("meta", self.dtype)) for name, t in self._tensors.items()]
        self._settings = [*settings, *self._outer.describe(), *parts, *self.agenda.describe()]
        self.state = self._make_state([*entries, *self._outer.entries, *self.agenda.entries], self._settings)
        self.take()
        largest = self.carries * max(self.elements(k) for k in range(len(self.fragments)))
        self._delta = placed(largest, self.dtype, torch.device("cpu"), {t.device for t in self.tensors()}).zero_()
        self._average = torch.zeros(largest, dtype=self.dtype, device="cpu")
        self._captured = 0
        self._parts: Sequence[Participant] = ()
        """Of whom the average is that arrives."""
        self._stepping: Stepping | None = None
        """The step that is taken while it does."""
        self._contributions = 1
        """Of how many clusters the average is that is stepped with."""

    def tensors(self) -> tuple[Tensor, ...]:
        """The model's tensors that are trained together."""
        return tuple(self._tensors.values())

    def follow(self) -> None:
        """Take the model's tensors where they are now.

        Raises:
            ConfigError: one is gone, or cannot be averaged with those that it was before.
        """
        self._model.follow()

    def share(self, words: Sequence[tuple[str, str]]) -> None:
        """Have that equal everywhere as well. Before the state is taken, or loaded: it is what both are named by.

        Raises:
            ConfigError: nobody would read a state that is named so.
        """
        manifest.check((), words)
        self.state.settings = (*self._settings, *words)

    def check(self) -> None:
        """See whether the outer optimizer is set as it was. Not while a step of it may be under way.

        Raises:
            ConfigError: it is not.
        """
        self._outer.check()

    @property
    def rounds(self) -> int:
        """How many rounds the agreed state has behind it."""
        return self.state.counters["round"]

    @torch.no_grad()
    def take(self) -> None:
        """Take the model as it is now for version 0.

        What was loaded into it since the policy was made would else pass for training, and be brought to a round.

        Raises:
            ConfigError: a parameter has another shape by now.
        """
        for name, tensor in self._tensors.items():
            held = self.state.tentative[name]
            if tensor.shape != held.shape:
                raise ConfigError(
                    f"{name} has the shape {list(tensor.shape)} now, and had {list(held.shape)} when the policy was "
                    "made"
                )
            held.copy_(tensor)
        self.state.seal({"round": 0, **self.agenda.counters})
        self.state.commit(0)

    @property
    def fragment(self) -> int:
        """Which fragment the next round from the agreed state carries."""
        return self.rounds % len(self.fragments)

    def elements(self, fragment: int) -> int:
        """Number of elements of a fragment."""
        return sum(self._tensors[name].numel() for name in self.fragments[fragment])

    @property
    def delta(self) -> Tensor:
        """The pseudo-gradient that was captured last, flat, and whatever else the round carries."""
        return self._delta[: self.carries * self.elements(self._captured)]

    @property
    def average(self) -> Tensor:
        """Its average over the mesh, flat."""
        return self._average[: self.carries * self.elements(self._captured)]

    @property
    def attends(self) -> bool:
        """Whether it takes a round to begin with, though nothing was trained."""
        return False

    def round_elements(self, fragment: int) -> int:
        """How many elements a round carries that all clusters have in common."""
        return self.carries * self.elements(fragment)

    def common(self) -> Sequence[tuple[str, str]]:
        """What all clusters must share, in words."""
        return describe(self.state.entries, self.state.settings)

    def holds(self, key: bytes) -> Sequence[Tensor]:
        """What this cluster could give another of a module, flat; see `dipaco`."""
        return ()

    def receiver(self) -> Receiver:
        """Where the agreed state is received."""
        return self.state

    @torch.no_grad()
    def capture(self, weight: float) -> None:
        """Compute the pseudo-gradient of the fragment that is next: old global minus local.

        Args:
            weight: what it counts. Of what counts for nothing nothing is brought, whatever became of the model.

        Raises:
            NotFinite: a parameter or buffer holds NaN or infinity; the message names it. All workers of a cluster hold
                the same, so all of them raise.
        """
        self._captured = self.fragment
        views = self._views(self.delta)
        if not weight:
            return clear(views)
        self._subtract(views, self.state.committed)
        check_finite(views)

    def _subtract(self, views: Mapping[str, Tensor], bases: Mapping[str, Tensor]) -> None:
        """Have views on the host hold what the model has moved from `bases`, as it was loaded from them."""
        afar = {name for name in views if self._tensors[name].device.type != "cpu"}
        for name in afar:
            views[name].copy_(self._tensors[name], non_blocking=True)
        settle(self.tensors())
        elementwise(
            (self._difference(name), (view, bases[name], view if name in afar else self._tensors[name]))
            for name, view in views.items()
        )

    def _difference(self, name: str) -> Callable[[Tensor, Tensor, Tensor], None]:
        return partial(subtract, self._tensors[name].dtype, name in self.buffers)

    @property
    def landed(self) -> int:
        """The fragment that was captured last."""
        return self._captured

    def carried(self, *, captured: bool) -> dict[str, Any]:
        """What a newcomer to the cluster needs, beside the model and the agreed state.

        Args:
            captured: whether what was captured last has still to be landed.
        """
        return {"fragment": self._captured, "delta": self.delta} if captured else {}

    def take_over(self, carried: dict[str, Any]) -> None:
        """Hold what another worker holds."""
        if "delta" in carried:
            self._captured = carried["fragment"]
            self.delta.copy_(carried["delta"])

    def restart(self, parts: Sequence[Participant]) -> None:
        """An average of these participants' contributions is to arrive; what arrived before counts no more."""
        self._parts, self._stepping = parts, None

    def arrived(self, start: int, stop: int) -> None:
        """Elements `[start, stop)` of the average have arrived for good: what follows from them may be computed now."""
        if self.in_parts and self._outer.in_parts and not self._idle(self._parts):
            exactly(partial(self._arrived, start, stop))

    @torch.no_grad()
    def _arrived(self, start: int, stop: int) -> None:
        if self._stepping is None and not self.state.sealed:  # that may yet be committed, by an attempt that repeats it
            self._stepping = self._begin_step()
        if self._stepping is not None and self._stepping.stands:
            self._stepping.arrived(start, stop)

    def finish(self, parts: Sequence[Participant]) -> bytes:
        """Compute the next state from the average, beside the current one; give its digest.

        A round of nobody but onlookers decides what is on the agenda, and steps nothing: momentum has no part in it.

        Args:
            parts: who takes part in the round.
        """
        return exactly(partial(self._finish, parts))

    @torch.no_grad()
    def _finish(self, parts: Sequence[Participant]) -> bytes:
        begun, self._stepping = self._stepping, None
        self._contributions = _contributing(parts)
        if begun is not None and begun.stands and parts == self._parts:
            begun.complete()
            tentative = begun.tentative
        else:
            self._parts = parts
            tentative = self.state.begin(self.agenda.names) if self._idle(parts) else self._step(self.average)
        return self.state.seal(self.agenda.decide(self._counted(parts), tentative, parts))

    def commit(self, version: int) -> None:
        """Make the finished state the agreed one, of that version, and train on from it."""
        self.state.commit(version)
        self._land(self.fragments[self._captured])

    @torch.no_grad()
    def load(self) -> None:
        """Train on from the agreed state, whatever was here before."""
        elementwise((Tensor.copy_, (tensor, self.state.committed[name])) for name, tensor in self._tensors.items())

    def restore(self) -> None:
        """Train on from a checkpoint, which has just been made the agreed state."""
        self.load()

    @torch.no_grad()
    def adopt(self, *, mine: Collection[int]) -> None:
        """Train on from a state just received.

        Local progress that is not in it is kept: theta <- G_new + (theta - G_old).

        Args:
            mine: the fragments of which it holds what this cluster trained.
        """
        landing = [name for fragment in mine for name in self.fragments[fragment]]
        for name, tensor in self._tensors.items():
            before, now = self.state.former[name], self.state.committed[name]
            if name not in landing and not torch.equal(before, now):
                delta = torch.empty_like(now)
                self._difference(name)(delta, before, tensor)
                tensor.copy_(torch.sub(now, delta, out=delta))
        self._land(landing)

    def inside(self, mine: int, rounds: int) -> set[int]:
        """Of which fragments a state that was received holds what this cluster trained.

        Another worker may have brought another one than what was captured here, or several. Versions count rounds,
        forward from what was captured, and back from the state; where the mesh has restored a state meanwhile, the one
        holds before that and the other after it, and a fragment that is so by either must not be brought again.

        Args:
            mine: which of the last versions hold a contribution of it, bit i the one i ago.
            rounds: versions since the state that was here.
        """
        parts, last = len(self.fragments), (self.rounds - 1, self._captured + rounds - 1)
        if rounds > REMEMBERED:
            return set(range(parts))
        return {(n - ago) % parts for n in last for ago in range(rounds) if mine >> ago & 1} or {self._captured}

    @torch.no_grad()
    def _land(self, names: Iterable[str]) -> None:
        """Mix what a round brought into the model."""
        elementwise(
            (partial(mix_in, self._mix, name in self.buffers), (self._tensors[name], self.state.committed[name]))
            for name in names
        )

    def _idle(self, parts: Sequence[Participant]) -> bool:
        return bool(parts) and all(part.weight <= LOOKS_ON for part in parts)

    def _counted(self, parts: Sequence[Participant]) -> dict[str, int]:
        """The counters of the next state."""
        return {**self.state.counters, "round": self.rounds + 1}

    def _step(self, average: Tensor) -> Mapping[str, Tensor]:
        """Begin the next state, and take the outer step in it."""
        deltas = self._views(average)
        tentative, stepped = self._begin(deltas), self._of_trained(deltas)
        self._outer.step(tentative, stepped, *self._terms)
        for name in self._averaged(deltas):
            self._mean_of_buffer(name)(tentative[name], deltas[name])
        return tentative

    def _begin_step(self) -> Stepping:
        """The same of the average that arrives, to be taken while it does."""
        self._contributions = _contributing(self._parts)
        deltas = self._views(self.average)
        tentative, stepped = self._begin(deltas), self._of_trained(deltas)
        jobs = self._outer.jobs(tentative, stepped, *self._terms)
        for name in self._averaged(deltas):
            jobs[name] = self._mean_of_buffer(name), (tentative[name], deltas[name])
        return Stepping(self.state, tentative, [jobs[name] for name in deltas])

    @property
    def _terms(self) -> tuple[float, int, int]:
        """What a step goes by: how long the phase was, of how many clusters the average is, and the rounds before."""
        return self._pace.phase(self.state.counters), self._contributions, self.rounds

    def _begin(self, deltas: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Begin the next state where these, and what the optimizer keeps for them, are written to."""
        names = self._outer.touched(self._of_trained(deltas))
        return self.state.begin([*names, *self._averaged(deltas), *self.agenda.names])

    def _of_trained(self, deltas: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: delta for name, delta in deltas.items() if name in self.trained}

    def _averaged(self, deltas: Mapping[str, Tensor]) -> list[str]:
        return [name for name in deltas if name in self.buffers]

    def _mean_of_buffer(self, name: str) -> Callable[[Tensor, Tensor], None]:
        """What makes of a buffer the mean of what the clusters hold."""
        return partial(take_mean, name in self._model.variances)

    def agreed(self) -> dict[str, Tensor]:
        """Copies of the agreed parameters and buffers, under the model's names, as the model would hold them."""
        return self.state.steadily(self._copies)

    def _copies(self) -> dict[str, Tensor]:
        committed = self.state.committed
        return {
            name.removeprefix(BUFFER): as_part_of(committed[name].to(t.device, t.dtype, copy=True), t)
            for name, t in (*self.trained.items(), *self.buffers.items())
        }

    def _make_state(self, entries: Sequence[Entry], settings: Sequence[tuple[str, str]]) -> GlobalState:
        return GlobalState(entries, settings)

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        names = self.fragments[self._captured]
        parts = torch.split(flat[: self.elements(self._captured)], [self._tensors[name].numel() for name in names])
        return {name: part.view(self._tensors[name].shape) for name, part in zip(names, parts, strict=True)}


def _contributing(parts: Sequence[Participant]) -> int:
    return max(1, sum(part.weight > LOOKS_ON for part in parts))
