"""The inner loop, as a policy's hooks see it: what is done before each inner step, and after it.

Before a step the gradients in hand are averaged inside the cluster (`gradients`). After it whatever is due is done: a
round that is under way lands, and the next one is launched (`outer_round`). Both take place in a group of the cluster's
workers, and in as many groups as it takes (`cluster.groups`): when one breaks, or changes for a newcomer, the workers
meet in the next one, are made equal (`heal`), and go on with whatever was due. What is here must therefore bear to be
begun anew at any point.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ictp2p.device_memory import home
from ictp2p.errors import ConfigError, SiblingLost
from ictp2p.fsm import RECONFIG_PG, TRAINING
from ictp2p.sync.cluster import scaling
from ictp2p.sync.cluster.averaging import Heads
from ictp2p.sync.cluster.groups import Groups
from ictp2p.sync.cluster.heal import heal
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.cluster.turn import Turn
from ictp2p.sync.mesh import Group, Mesh
from ictp2p.sync.model.sharding import reshard
from ictp2p.sync.model.trainees import Trainees
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.copies import following
from ictp2p.sync.pace import Pace
from ictp2p.sync.state.manifest import describe
from ictp2p.sync.two_level.gradients import Gradients
from ictp2p.sync.two_level.hooks import Hook, Hooks
from ictp2p.sync.two_level.meeting import Meeting
from ictp2p.sync.two_level.outer_round import OuterRound
from ictp2p.sync.two_level.settings import Settings

_T = TypeVar("_T")


class InnerLoop:
    """One worker's training between two rounds, and its place in its cluster."""

    def __init__(
        self,
        peer: Mesh,
        trainees: Trainees,
        weights: Weights,
        progress: Progress,
        pace: Pace,
        meeting: Meeting,
        outer_round: OuterRound,
        given: Settings,
        warn: Callable[[str], None],
    ) -> None:
        """Take what it works on; the network is not touched.

        Args:
            peer: the connection to the mesh.
            trainees: the model that is trained, and the optimizer whose steps these are.
            weights: the model beside the global state.
            progress: how far this worker is; kept up to date.
            pace: after how many steps a round is due.
            meeting: when ranks that hold other shards of the model are waited for.
            outer_round: is launched and landed here.
            given: the policy's options.
            warn: tells people.
        """
        self._peer, self._trainees, self._weights, self._progress = peer, trainees, weights, progress
        self._pace, self._meeting, self._outer_round = pace, meeting, outer_round
        self._overlap, self._sampler = given.overlap, given.sampler
        sharded, sampled = meeting.siblings is not None, () if given.sampler is None else (given.sampler,)
        self.gradients = Gradients(peer, trainees.inner, weights, progress, given.sampler, sharded=sharded, warn=warn)
        """What is averaged, and what this worker's counts."""
        self.replica = Replica(trainees.model, trainees.inner, (*given.carry, *sampled, progress, outer_round))
        """All that a newcomer of the cluster must take over."""
        me = weakref.proxy(self)  # as `Hooks`: what it is made of does not hold a policy
        self._groups = Groups(peer, lambda group: me._joined(group))
        self._hooks = Hooks(trainees.inner)
        self._turn = Turn()
        self._resting = 0.0
        """When the last step and what followed it ended."""

    @property
    def hooked(self) -> bool:
        """Whether steps are followed."""
        return bool(self._hooks)

    @property
    def speaks(self) -> bool:
        """Whether this worker speaks for those of its group, or is in none."""
        return self._groups.first

    @property
    def schedule_step(self) -> int:
        """How far the mesh has trained, in inner steps; see `Policy.schedule_step`."""
        return self._scheduled() if self._meeting.siblings is None else self._meeting.scheduled

    def enter(self) -> None:
        """Let the others of the cluster know that this worker wants into their group.

        Raises:
            ConfigError: something that newcomers must take over cannot be sent to them.
        """
        self._turn = Turn()
        self.replica.take()  # what cannot be sent is found here, and not when somebody joins, weeks later
        self._groups.enter(home(self._weights.tensors()))

    def follow(self, *further: Hook) -> None:
        """Hook the optimizer: from now on its steps are the cluster's. Further hooks are removed with these."""
        self._resting = self._peer.clock()
        self._hooks.set(self._to_step, self._stepped)
        for hook in further:
            self._hooks.add(hook)

    def leave(self) -> None:
        """Let the optimizer be, and leave the group; the others go on."""
        self._hooks.remove()
        self._outer_round.withdraw()
        self._groups.leave()

    def look(self) -> None:
        """See that the model is still what is trained, and where its tensors are by now.

        Raises:
            ConfigError: it is not; see `Trainees.check`.
        """
        if self._meeting.siblings is not None:
            reshard(self._trainees.model)
        self._trainees.check()
        self._weights.follow()

    def settle(self) -> None:
        """Have a group and no outer round due. There is no gradient in hand."""
        self._in_group(lambda group: None)
        self.gradients.spent = False

    def stop(self) -> None:
        """Tell the ranks that hold the other shards, who listen, that this one cannot go on."""
        with suppress(SiblingLost):
            self._outer_round.stop()

    # A step.

    def _to_step(self) -> None:
        """Have the gradients in hand averaged, whatever it takes."""
        self._turn.programs = False
        try:
            self.look()
            scaling.unscale(self._trainees.inner)
            self._meeting.look()
        except Exception:
            self.stop()
            raise
        at = self._progress
        lands = at.aloft > 0 and at.aloft + 1 > self._overlap
        gradients, agreed = self.gradients, self._meeting
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
        self._progress.step += 1
        self._progress.since += 1
        self._progress.aloft += self._progress.aloft > 0
        self._pace.stepped(self._peer.clock() - self._resting)
        self._meeting.stepped()
        if self._lands or self._launches or self._meeting.on:
            self.settle()
        self._resting = self._peer.clock()

    @property
    def _due(self) -> bool:
        """Whether this cluster would launch a round after this step."""
        return self._pace.due(self._progress.since + 1, self._weights.fragment + (self._progress.aloft > 0))

    # What is due, in a group.

    @property
    def _lands(self) -> bool:
        wanted = self._progress.aloft > (0 if self.gradients.dry else self._overlap)
        return self._weights.state.version == 0 or wanted

    @property
    def _launches(self) -> bool:
        return self._progress.due and not self._progress.aloft

    def _synchronize(self, group: Group) -> None:
        """Do what is due at this step boundary. What is under way lands before the next is launched.

        What was brought to a round and missed it is brought to the very next: a cluster that trained on would walk out
        of step with the others, and miss one round after another. What is done here may move the parameters: a gradient
        in hand, of a program that caught an error in the middle of a round and went on, is of what they were.
        """
        if not (self._lands or self._launches or self._meeting.on):
            return
        self.gradients.spent = True
        with following(self._trainees.inner):
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
        self._progress.scheduled = self.schedule_step
        action(group)

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
                self.stop()
            raise

    def _joined(self, group: Group) -> int:
        """Be made equal to the others of a new group; gives the inner step before which all stand."""
        if self._meeting.siblings is not None and group.size > 1:
            raise ConfigError(
                f"{group.size} workers of cluster {self._peer.cluster} hold the same shard: with `within`, one may"
            )
        self._equal(group, partial(self._peer.phase, RECONFIG_PG))
        return self._progress.step

    def _equal(self, group: Group, told: Callable[[str], None] = lambda trigger: None) -> None:
        """Hold what all of a group hold, and have under way what is to be."""
        at, state = self._progress, self._weights.state
        before = (at.version, at.step)
        # As they are by now: a program may have split its parameter groups since, and a newcomer has them so.
        items = [*describe(state.entries, state.settings), *self.replica.describe()]
        heal(group, at, self.replica, state, items, self._turn, told, self._outer_round.withdraw)
        self.gradients.equal()
        if before != (at.version, at.step):
            self.gradients.spent = True
        if self._sampler is not None:
            self._sampler.regroup(group.rank, group.size)
        self._weights.agenda.landed(state.counters, state.committed)
        self._outer_round.resume(group)

    def _scheduled(self, ahead: int = 0) -> int:
        """How far the mesh has trained as this worker's own mesh has it, so many steps further."""
        state, at = self._weights.state, self._progress
        agreed = self._pace.agreed(state.counters, aloft=at.aloft > 0) if state.version else 0
        return max(at.scheduled, agreed + at.since + ahead)
