"""What every two-level synchronization policy has in common: when to do what, and what to do when it breaks.

The user's loop stays as it is; the policy hooks the inner optimizer. Before each inner step the gradients are
averaged inside the cluster (`gradients`). After every `sync_every` inner steps the cluster takes part in an outer
round (`outer_round`): the leader brings the pseudo-gradient, *old global minus local*, to the mesh, the followers get
the average streamed (`stream`), and everybody takes the same outer step from the parameters of the last sync, beside
the current ones, and applies it when the mesh has committed it.

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
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar, Unpack

import torch
from torch import Tensor

from ictp2p.device_memory import home
from ictp2p.errors import ConfigError, LocalProtocolError, PeerClosed, SiblingLost, StateError
from ictp2p.fsm import RECONFIG_PG, TRAINING
from ictp2p.sync.cluster import scaling
from ictp2p.sync.cluster.averaging import Heads
from ictp2p.sync.cluster.groups import Groups
from ictp2p.sync.cluster.heal import Replica, heal
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.turn import Turn
from ictp2p.sync.mesh import Group, Mesh
from ictp2p.sync.model.sharding import reshard
from ictp2p.sync.model.strangers import Strangers
from ictp2p.sync.model.trainees import Trainees, checked_weight
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.copies import following
from ictp2p.sync.optimizers.outer import OuterFactory
from ictp2p.sync.options import cluster, connected, kind, optimizer
from ictp2p.sync.pace import AdaptivePace, Pace
from ictp2p.sync.state import checkpoint
from ictp2p.sync.state.agreed import Agenda
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import describe
from ictp2p.sync.two_level.beginning import Beginning
from ictp2p.sync.two_level.gradients import Gradients
from ictp2p.sync.two_level.hooks import Hooks
from ictp2p.sync.two_level.meeting import Meeting
from ictp2p.sync.two_level.outer_round import OuterRound
from ictp2p.sync.two_level.patience import Patience
from ictp2p.sync.two_level.settings import AllOptions, Settings, check_names
from ictp2p.sync.two_level.unfinished import Unentered, tail
from ictp2p.sync.values import Grouping, Spec

_T = TypeVar("_T")


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
            outer: the outer optimizer over the model's parameters, any of torch's, or what makes one from them; None
                for DiLoCo's default, `Nesterov(lr=0.7, momentum=0.9)`. It is adopted: do not step it yourself, nor
                set it otherwise. Learning rates are dimensionless, and meant for phases of `sync_every` steps.
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
        self._overlap = given.overlap
        self._sampler = sampler = given.sampler
        self._meeting = Meeting(peer, model, given.within, sampler, grouping, pace, given.outer_schedule)
        siblings = self._meeting.siblings
        self._trainees = Trainees(model, inner)
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
            siblings=siblings,
        )
        self._gradients = Gradients(
            peer, inner, weights, self.progress, sampler, sharded=siblings is not None, warn=self._warn
        )
        sampled = () if sampler is None else (sampler,)
        self._replica = Replica(model, inner, (*given.carry, *sampled, self.progress, self._outer_round))
        me = weakref.proxy(self)  # as `Hooks`: what it is made of does not hold a policy
        self._groups = Groups(peer, lambda group: me._joined(group))
        self._hooks = Hooks(inner)
        self._unentered = Unentered(inner, self, pace.steps, self._warn)
        self._turn = Turn()
        self._inside = False
        """Whether it was entered, and has not been left since."""
        self._resting = 0.0
        """When the last step and what followed it ended."""
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
        """Weight of this worker's next steps in every average: tokens or samples per step. 0 to look on.

        A cluster all of whose workers look on brings nothing to rounds, whatever becomes of its model, and has the
        result of each. Of ranks that hold the shards of one model each has the weight of what itself processes.

        Raises:
            ConfigError: it was set to what is no number, negative, or of no reasonable size.
        """
        return self._gradients.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._gradients.weight = checked_weight(weight)

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
        return self._scheduled() if self._meeting.siblings is None else self._meeting.scheduled

    def _scheduled(self, ahead: int = 0) -> int:
        """The same, as this worker's own mesh has it, so many steps further."""
        agreed = self._pace.agreed(self.state.counters, aloft=self.progress.aloft > 0) if self.version else 0
        return max(self.progress.scheduled, agreed + self.progress.since + ahead)

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
            StateError: it could not be written.
            ConfigError: no file can have that name; or the model is not what is trained any more, or is gathered from
                shards by a pass that failed.
        """
        if local:
            self._look()
        trained = None if self._meeting.siblings is None else self._meeting.scheduled
        checkpoint.save(path, self.state, self._replica.take() if local else None, trained)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Start from a checkpoint instead of the model's own weights. Before the policy is entered.

        A mesh that is further goes its own way: then its state is fetched, as by every newcomer. So it is where this
        very mesh has gone back since, to an older version, with a warning. One that was founded without the file, and
        is not so far, is refused when the policy is entered, with `StateError`.

        Raises:
            LocalProtocolError: the policy has been entered.
            ConfigError: it is another training's, and the first difference is named; or no file can have that name.
            StateError: it is no checkpoint, or damaged.
        """
        if self._hooks or self.version:
            raise LocalProtocolError("a checkpoint must be loaded before the policy is entered")
        self._look()
        self._beginning.load(path, self._replica, self._outer_round.resumed)
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
        self._look()
        if not self.version:
            self._beginning.look()
        self._outer_round.begin()
        self._turn = Turn()
        self._replica.take()  # what cannot be sent is found here, and not when somebody joins, weeks later
        self._groups.enter(home(self._weights.tensors()))
        try:
            self._inside = True
            self._meeting.begin()
            self.state.lineage = self._peer.lineage
            self._beginning.recognize()
            self._peer.serve_state(self.state)
            self._settle()
            self._check_beginning()
            self._resting = self._peer.clock()
            self._hooks.set(self._to_step, self._stepped)
            self._hooks.add(Strangers(self._inner, lambda: self.progress.step, self._warn, self._outer))
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
            if text is not None and self._groups.first and not self._peer.leaves:
                self._warn(text)

    def _leave(self) -> None:
        """Left before, its place may be another policy's."""
        if self._inside:
            self._hooks.remove()
            self._outer_round.withdraw()
            self._groups.leave()
            self._meeting.end()
            self._inside = False

    def _look(self) -> None:
        """See that the model is still what is trained, and where its tensors are by now."""
        if self._meeting.siblings is not None:
            reshard(self._model)
        self._trainees.check()
        self._weights.follow()

    def _check_beginning(self) -> None:
        """See that training may go on from the state that there is, and tell people what they should know of it."""
        try:
            gone = self._beginning.given_up()
        except StateError:
            self._stop()  # they are about to compare, and would wait for this one
            raise
        apart = self._meeting.compare(self._beginning.trained(), self._pace.steps)
        for text in (gone, apart):
            if text is not None:
                self._warn(text)

    # The inner loop.

    def _to_step(self) -> None:
        """Have the gradients in hand averaged, whatever it takes."""
        self._turn.programs = False
        try:
            self._look()
            scaling.unscale(self._inner)
            self._meeting.look()
        except Exception:
            self._stop()
            raise
        at = self.progress
        lands = at.aloft > 0 and at.aloft + 1 > self._overlap
        gradients, agreed = self._gradients, self._meeting
        agreed.agree(
            due=self._due,
            lands=lands,
            since=at.since,
            scheduled=self._scheduled(1),
            weight=gradients.weight,
            spent=gradients.spent,
        )

        def average(group: Group) -> Heads:
            if self._turn.again:
                self._equal(group)
            return gradients.average(group, agreed.weight(gradients.weight), due=agreed.due(self._due))

        gradients.averaged(self._in_group(average))

    def _stepped(self) -> None:
        """See what is due now that a step has been taken."""
        self._turn.programs = True
        self._peer.phase(TRAINING, "committed")
        self.progress.step += 1
        self.progress.since += 1
        self.progress.aloft += self.progress.aloft > 0
        self._pace.stepped(self._peer.clock() - self._resting)
        self._meeting.stepped()
        if self._lands or self._launches or self._meeting.on:
            self._settle()
        self._resting = self._peer.clock()

    @property
    def _due(self) -> bool:
        """Whether this cluster would launch a round after this step."""
        return self._pace.due(self.progress.since + 1, self._weights.fragment + (self.progress.aloft > 0))

    # The group.

    @property
    def _lands(self) -> bool:
        wanted = self.progress.aloft > (0 if self._gradients.dry else self._overlap)
        return self.state.version == 0 or wanted

    @property
    def _launches(self) -> bool:
        return self.progress.due and not self.progress.aloft

    def _synchronize(self, group: Group) -> None:
        """Do what is due at this step boundary. What is under way lands before the next is launched.

        What was brought to a round and missed it is brought to the very next: a cluster that trained on would walk out
        of step with the others, and miss one round after another. What is done here may move the parameters: a gradient
        in hand, of a program that caught an error in the middle of a round and went on, is of what they were.
        """
        if not (self._lands or self._launches or self._meeting.on):
            return
        self._gradients.spent = True
        with following(self._inner):
            if self._lands:
                self._act(self._outer_round.land, group)
            while self._launches:
                self._act(self._outer_round.launch, group)
                if self._lands:
                    self._act(self._outer_round.land, group)
            if self._meeting.on:
                self._act(self._outer_round.gather, group)
                self._meeting.over(self._scheduled())

    def _act(self, action: Callable[[Group], None], group: Group) -> None:
        """Launch or land, and have a schedule no further back after it, on this worker or on one that healing moves."""
        self.progress.scheduled = self.schedule_step
        action(group)

    def _settle(self) -> None:
        """Have a group and no outer round due. There is no gradient in hand."""
        self._in_group(lambda group: None)
        self._gradients.spent = False

    def _in_group(self, action: Callable[[Group], _T]) -> _T:
        """Do what is due and then `action`, in as many groups as it takes."""

        def due_first(group: Group) -> _T:
            self._synchronize(group)
            return action(group)

        try:
            return self._groups.run(due_first)
        except SiblingLost:
            raise
        except Exception:
            if self._meeting.on:  # else they do not listen: FSDP would take this for a word of its own
                self._stop()
            raise

    def _stop(self) -> None:
        """Tell the ranks that hold the other shards, who listen, that this one cannot go on."""
        with suppress(SiblingLost):
            self._outer_round.stop()

    def _joined(self, group: Group) -> int:
        """Be made equal to the others of a new group; gives the inner step before which all stand."""
        if self._meeting.siblings is not None and group.size > 1:
            raise ConfigError(
                f"{group.size} workers of cluster {self._peer.cluster} hold the same shard: with `within`, one may"
            )
        self._equal(group, partial(self._peer.phase, RECONFIG_PG))
        return self.progress.step

    def _equal(self, group: Group, told: Callable[[str], None] = lambda trigger: None) -> None:
        """Hold what all of a group hold, and have under way what is to be."""
        before = (self.progress.version, self.progress.step)
        withdraw = self._outer_round.withdraw
        # As they are by now: a program may have split its parameter groups since, and a newcomer has them so.
        items = [*describe(self.state.entries, self.state.settings), *self._replica.describe()]
        heal(group, self.progress, self._replica, self.state, items, self._turn, told, withdraw)
        self._gradients.equal()
        if before != (self.progress.version, self.progress.step):
            self._gradients.spent = True
        if self._sampler is not None:
            self._sampler.regroup(group.rank, group.size)
        self._weights.agenda.landed(self.state.counters, self.state.committed)
        self._outer_round.resume(group)
