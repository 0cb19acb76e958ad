"""What every two-level synchronization policy has in common, as a program holds it.

The user's loop stays as it is; the policy hooks the inner optimizer (`inner_loop`). Before each inner step the
gradients are averaged inside the cluster (`gradients`). After every `sync_every` inner steps the cluster takes part in
an outer round (`outer_round`): the leader brings the pseudo-gradient, *old global minus local*, to the mesh, the
followers get the average streamed (`stream`), and everybody takes the same outer step from the parameters of the last
sync, beside the current ones, and applies it when the mesh has committed it.

Every worker holds the same parameters, inner state and global state, so any of them can lead. When the group breaks,
or changes for a newcomer, the workers meet in the next one, are made identical (`heal`), and go on with whatever was
due: the step is retried, the outer round repeated. Three rules keep anything from being counted twice or lost:

1. A worker that healing moved to another step had its gradient counted already, or computed it for other parameters:
   it contributes weight zero to the next average. So does one whose round lands while it holds a gradient, because the
   program caught what had interrupted the round.
2. A round that committed through a leader that died since holds this cluster's contribution: the new leader takes the
   result and drops the local progress, which is inside. If the mesh committed *without* this cluster, the local
   progress is carried over: theta <- G_new + (theta - G_old).
3. A round that was not committed changes nothing at all; the pseudo-gradient of the next one starts from the same base.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Self, Unpack

import torch
from torch import Tensor

from ictp2p.errors import ConfigError, LocalProtocolError, PeerClosed, StateError
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.model.strangers import Strangers
from ictp2p.sync.model.trainees import Trainees, checked_weight
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.outer import OuterFactory
from ictp2p.sync.options import cluster, connected, kind, optimizer
from ictp2p.sync.pace import AdaptivePace, Pace
from ictp2p.sync.state import checkpoint
from ictp2p.sync.state.agreed import Agenda
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.two_level.beginning import Beginning
from ictp2p.sync.two_level.inner_loop import InnerLoop
from ictp2p.sync.two_level.meeting import Meeting
from ictp2p.sync.two_level.outer_round import OuterRound
from ictp2p.sync.two_level.patience import Patience
from ictp2p.sync.two_level.settings import AllOptions, Settings, check_names
from ictp2p.sync.two_level.unfinished import Unentered, tail
from ictp2p.sync.values import Grouping, Spec


class Policy:
    """Keeps a model in step with the mesh, as a context manager around an ordinary training loop."""

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None,
        sync_every: int | Pace,
        *,
        name: str,
        grouping: Grouping = "all",
        arithmetic: Callable[..., Weights] = Weights,
        **options: Unpack[AllOptions],
    ) -> None:
        """Set it up without touching the network. What all policies take is said here and in `Settings`.

        Args:
            peer: the connection to the mesh: an `ictp2p.Peer`, started.
            model: what is trained. Its parameters that require gradients are synchronized, and those of its
                floating-point buffers averaged that change (BatchNorm's statistics); all else stays as it is here.
            inner: its optimizer, any of torch's, on which the training loop calls `step()`; it trains all of the
                model's parameters that require gradients, and nothing else (several: `joint.JointOptimizer`). Its state
                is never sent to other clusters (Douillard et al. 2023: no gain for three times the bytes).
            outer: the outer optimizer over the model's parameters, any of torch's, or a function that makes one of
                them; None for DiLoCo's default, `Nesterov(lr=0.7, momentum=0.9)`. The policy owns it: do not step it
                or change its settings. Learning rates are dimensionless, and meant for phases of `sync_every` steps.
            sync_every: inner steps after which all of the model has been in an outer round, at least 1 and as many as
                there are fragments; or an `AdaptivePace`, which finds out.
            name: of the policy; must be the same everywhere.
            grouping: over whom a round averages: `all`, `pairs` drawn anew for each round, or by `modules`.
            arithmetic: how the model and the global state act on each other.
            options: see `Settings`.

        Raises:
            ConfigError: a value is out of range, there is no such option, or an optimizer does not fit.
        """
        check_names(type(self), options)
        kind("model", model, torch.nn.Module)
        optimizer("inner", inner)
        if outer is inner:
            raise ConfigError("outer is the inner optimizer itself: give another one, or None for Nesterov's momentum")
        given = Settings(**options)
        self._pace = pace = sync_every if isinstance(sync_every, Pace) else Pace(sync_every)
        pace.fit(given.parts, given.overlap)
        self._peer, self._model, self._inner = peer, model, inner
        self._outer = outer if isinstance(outer, torch.optim.Optimizer) else None
        self._warn: Callable[[str], None] = lambda text: peer.event("warning", text=text)
        sampler = given.sampler
        self._meeting = Meeting(peer, model, given.within, sampler, grouping, pace, given.outer_schedule)
        trainees = Trainees(model, inner)
        if sampler is not None:
            sampler.join(cluster(peer), self._warn)
        self._weights = weights = self._agreed_on(given, arithmetic, outer, name)
        due = sampler is not None or weights.attends  # a newcomer has no samples, or modules, before its first round
        parts = len(weights.fragments)
        self.progress = Progress(due=due, weights=[0.0] * parts, behind=[0] * parts)
        """How far this worker is; read it, do not write it."""
        self.state.brought = 0 if given.resume else None
        dtype = str(weights.dtype).removeprefix("torch.")
        spec = Spec("sync", name, dtype, 0, "avg", given.codec, b"", given.quorum, given.spread, grouping)
        self._outer_round = OuterRound(
            peer,
            weights,
            self.progress,
            spec,
            Patience(given.without_quorum, given.most_skipped),
            pace,
            overlaps=given.overlap > 0,
            sampler=sampler,
            late=given.late,
            siblings=self._meeting.siblings,
        )
        self._loop = InnerLoop(
            peer,
            trainees,
            weights,
            self.progress,
            pace,
            self._meeting,
            self._outer_round,
            given,
            self._warn,
        )
        self._unentered = Unentered(inner, self, pace.steps, self._warn)
        self._inside = False
        """Whether it was entered, and has not been left since."""
        self._beginning = Beginning(model, inner, weights, compares=given.frozen == "same")

    def _agreed_on(
        self,
        given: Settings,
        arithmetic: Callable[..., Weights],
        outer: torch.optim.Optimizer | OuterFactory | None,
        name: str,
    ) -> Weights:
        """Make what the mesh is to agree on: the global state, in words what all must have alike, and what is decided.

        Raises:
            ConfigError: the codec leaves something out that this arithmetic would not bring later.
        """
        pace, siblings = self._pace, self._meeting.siblings
        words = [("policy", name), *pace.describe(), *given.describe()]
        words += [siblings.describe()] if siblings is not None else []
        agenda = list(given.agenda)
        agenda += [given.sampler] if given.sampler is not None else []
        agenda += [pace] if isinstance(pace, AdaptivePace) else []
        weights = arithmetic(
            self._model, outer, words, given.fragments, given.mix, Agenda(agenda), pace, given.outer_schedule
        )
        if given.codec.startswith("topk") and not weights.keeps_residual:
            raise ConfigError(f"codec {given.codec!r} needs error feedback, or what it drops is lost: use SparseDiLoCo")
        return weights

    def __repr__(self) -> str:
        at = self.progress
        return f"<{type(self).__name__} step {at.step} version {at.version}, {at.since} since the last round>"

    @property
    def weight(self) -> float:
        """Weight of this worker's next steps in every average: tokens or samples per step, say. 0 to only look on.

        A cluster all of whose workers only look on contributes nothing to rounds, but gets the result of each. Where
        ranks hold the shards of one model, each has the weight of what it processes itself.

        Raises:
            ConfigError: it was set to something that is neither 0 nor a number from 1e-18 to 1e18.
        """
        return self._loop.gradients.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._loop.gradients.weight = checked_weight(weight)

    @property
    def state(self) -> GlobalState:
        """The global state: what the mesh agrees on."""
        return self._weights.state

    @property
    def sync_every(self) -> int:
        """Inner steps after which all of the model has been in an outer round, as agreed by now."""
        return self._pace.steps

    @property
    def schedule_step(self) -> int:
        """How far the mesh has trained, in inner steps, for a schedule that all clusters follow. Read it between steps.

        It is the steps of all phases up to the agreed state, that of the round under way if there is one, and those
        taken since: what a cluster counts that was there from the beginning, and what one that joins late has at once.
        All workers of a cluster have the same. A round counts for a whole phase also if it came early, as a sampler
        asks for one, or holds what one of several clusters trained, as with `AsyncDiLoCo`. It goes on from a
        checkpoint, where versions begin anew.

        While a worker of the cluster trains it never goes backwards, unless the mesh itself goes back to an older
        version. A round that comes to nothing is a phase that no other cluster counts either: it stays where it is
        then, until as much was trained again. A cluster that begins anew, from a file too, is at the phases of the
        agreed state, as each other newcomer: what it was further by, since that or by a round that came to nothing, no
        file keeps.
        """
        return self._loop.schedule_step

    @property
    def version(self) -> int:
        """Version of the global state: 1 for the initial weights, one more with each committed round."""
        return self.state.version

    @property
    def rounds(self) -> int:
        """Outer rounds that the global state has behind it, the same on every worker at the same version.

        Unlike the version it goes on from a checkpoint, also in a new mesh. It is what `outer_schedule` is given. With
        fragments it counts the rounds of each of them.
        """
        return self._weights.rounds

    def digest(self) -> str:
        """Digest of the global state, in hexadecimal: the same on every worker at the same version."""
        return self.state.digest.hex()

    def global_parameters(self) -> dict[str, Tensor]:
        """Copies of the agreed parameters and floating-point buffers by name: what should be evaluated and saved.

        From any thread, all of one version.
        """
        return self._weights.agreed()

    def save(self, path: str | os.PathLike[str], *, local: bool = False) -> None:
        """Write the agreed state to a file in safetensors format; see `sync.state.checkpoint`.

        Every worker at the same version would write the same; one of them is enough. Of a sharded model each rank
        writes its shard, all of them at the same step. From any thread.

        Args:
            path: the file; its folder must exist.
            local: also what only this cluster holds: the model as it is by now, and the inner optimizer's state. From
                the thread that trains alone.

        Raises:
            StateError: the file could not be written.
            ConfigError: no file can have that name; or the model's parameters are no longer those that are trained, or
                were left gathered from shards by a pass that failed.
        """
        if local:
            self._loop.look()
        trained = None if self._meeting.siblings is None else self._meeting.scheduled
        checkpoint.save(path, self.state, self._loop.replica.take() if local else None, trained)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Start from a checkpoint instead of the model's own weights. Before the policy is entered.

        A mesh that is further goes its own way: then its state is fetched, as by every newcomer. So it is where this
        very mesh has gone back since, to an older version, with a warning. One that was founded without the file, and
        is not so far, is refused when the policy is entered, with `StateError`.

        Raises:
            LocalProtocolError: the policy has been entered.
            ConfigError: it is of another training, and the first difference is named; or no file can have that name.
            StateError: the file is not a checkpoint, or is damaged.
        """
        if self._loop.hooked or self.version:
            raise LocalProtocolError("a checkpoint must be loaded before the policy is entered")
        self._loop.look()
        self._beginning.load(path, self._loop.replica, self._outer_round.resumed)
        self.state.brought = 0

    def __enter__(self) -> Self:
        """Join: meet the cluster, agree on the weights to start from, and hook the inner optimizer.

        A founder brings the model as it is now, whatever it was when the policy was made; if a checkpoint was loaded,
        then what that made of it. Entered again, a policy goes on from the model as it is.

        Raises:
            MeshMismatch: the mesh, or this cluster, trains something else.
            PeerClosed: the peer was closed meanwhile.
            LocalProtocolError: a policy trains with this peer already; or a checkpoint was loaded here in part.
            ConfigError: there is no peer; the model has other parameters or buffers than when the policy was made; or
                its parameters are not those of the checkpoint that was loaded; or something that newcomers of the
                cluster must take over cannot be sent to them; or the shards of a model are not of one time.
        """
        connected(self._peer)
        self._unentered.remove()
        self._beginning.check()
        self._loop.look()
        if not self.version:
            self._beginning.look()
        self._outer_round.begin()
        self._loop.enter()
        try:
            self._inside = True
            self._meeting.begin()
            self.state.lineage = self._peer.lineage
            self._beginning.recognize()
            self._peer.serve_state(self.state)
            self._loop.settle()
            self._check_beginning()
            self._loop.follow(Strangers(self._inner, lambda: self.progress.step, self._warn, self._outer))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Leave the cluster's group; the others go on. Steps that no round has carried are told, unless it broke."""
        if self._inside and kind is None:
            self._look_back()
        self._leave()

    def _look_back(self) -> None:
        """Tell people of what was trained since the last round, unless this worker leaves as it was asked to."""
        text = tail(self.progress, self.sync_every, self.rounds)
        with suppress(PeerClosed):
            if text is not None and self._loop.speaks and not self._peer.leaves:
                self._warn(text)

    def _leave(self) -> None:
        """Left before, its place may be another policy's."""
        if self._inside:
            self._loop.leave()
            self._meeting.end()
            self._inside = False

    def _check_beginning(self) -> None:
        """See that training may go on from the state that there is, and tell people what they should know of it."""
        try:
            gone = self._beginning.given_up()
        except StateError:
            self._loop.stop()  # they are about to compare, and would wait for this one
            raise
        apart = self._meeting.compare(self._beginning.trained(), self._pace.steps)
        for text in (gone, apart):
            if text is not None:
                self._warn(text)
