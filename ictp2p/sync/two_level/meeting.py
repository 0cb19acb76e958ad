"""When the ranks that hold the shards of a cluster's model wait for each other; never, where it is not sharded.

Before each inner step they agree on whether a round is due after it, and so whether they meet there. That is done once
a step, however often a rank's own group breaks in it: an exchange that one rank repeats would be answered by the next.

What follows the rounds that are agreed, as a learning rate does, has to be the same on all ranks of a model, and each
of them has rounds of its own: so it follows whoever is furthest.
"""

from __future__ import annotations

from typing import Any

import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.cluster.siblings import Exchange, ProcessGroup, Siblings, Step
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.model.sharding import check_ranks, check_shards, reshard
from ictp2p.sync.pace import AdaptivePace, Pace
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.values import Grouping


class Meeting:
    """A policy's part in it.

    Args:
        peer: told when this worker may leave, where all ranks do.
        model: that is trained.
        within: the ranks among which it is sharded, as a process group or a device mesh; None if it is not.
        sampler: the policy's.
        grouping: over whom its rounds average.
        pace: how often there are any.
        outer_schedule: what their outer rate follows.

    Raises:
        ConfigError: `within` is no such thing, does not go with the others, or is wanted.
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        within: Any,
        sampler: ElasticSampler | None,
        grouping: Grouping,
        pace: Pace,
        outer_schedule: object = None,
    ) -> None:
        reshard(model)
        check_shards(model, within=within is not None)
        if within is not None:
            _check(sampler, grouping, pace, outer_schedule)
        self._peer = peer
        self.siblings = None if within is None else _siblings(model, within)
        """The ranks, if there are any."""
        self.on = False
        """Whether they are waited for at this boundary."""
        self.scheduled = 0
        """What a schedule is at that all of them follow."""
        self._agreed: Step | None = None
        """On what comes after the step that is being taken."""
        self._asked = self._leaves = False

    def begin(self) -> None:
        """Training begins: all wait until all have a state."""
        self.on, self._agreed, self._leaves = self.siblings is not None, None, False
        self._peer.leave_together(None if self.siblings is None else False)

    def compare(self, trained: int | None, phase: int) -> str | None:
        """See that the shards of a model are of one time, where files are all that is left of it.

        A mesh that is further than a file takes no notice of it. So what counts is only what is of a rank's own: a mesh
        whose shard was lost, or is older on every disk, would begin anew with it beside the others'.

        Args:
            trained: steps behind what this rank begins from: 0 for fresh weights, None if its mesh had it already.
            phase: steps by which shards are apart at most, a round of one having come to nothing.

        Returns:
            What people should know, in words.

        Raises:
            ConfigError: they are further apart; ranks and steps are named.
        """
        said = [] if self.siblings is None else self.siblings.begin(trained)
        own = [(steps, rank) for rank, steps in enumerate(said) if steps is not None]
        if not own or max(own)[0] == min(own)[0]:
            return None
        (most, newer), (least, older) = max(own), min(own)
        found = (
            f"rank {newer} of this cluster begins from a shard of the model that was trained for {most} steps, "
            f"and rank {older} from {f'one of {least}' if least else 'fresh weights'}"
        )
        if most - least <= phase:
            return f"{found}: the checkpoints were not written at the same step"
        raise ConfigError(f"{found}: load checkpoints that were written at the same step, on all ranks or on none")

    def look(self) -> None:
        """See whether this worker was asked to leave, before it says anything of the next step.

        Raises:
            PeerClosed: it has left, or cannot go on.
        """
        self._asked = self.siblings is not None and self._peer.leaves

    def agree(self, *, due: bool, lands: bool, since: int, scheduled: int, weight: float, spent: bool) -> None:
        """Agree on the next step, and on what comes after it; see `Siblings.step`."""
        if self.siblings is not None:
            self._agreed = self.siblings.step(
                due=due,
                lands=lands,
                since=since,
                leaves=self._asked,
                scheduled=scheduled,
                weight=weight,
                spent=spent,
            )

    def due(self, mine: bool) -> bool:
        """Whether a round is due after it, by what was agreed, or as this worker sees it."""
        return mine if self._agreed is None else self._agreed.due

    def weight(self, mine: float) -> float:
        """What the gradient counts that it is taken with, which is of the batches of all ranks."""
        return mine if self._agreed is None else self._agreed.weight

    def stepped(self) -> None:
        """The step was taken."""
        if self._agreed is not None:
            self.on, self._leaves = self._agreed.meets, self._leaves or self._agreed.leaves
            self.scheduled = self._agreed.scheduled

    def over(self, scheduled: int) -> None:
        """All have landed, and go on; or leave, if one of them was asked to. This one's schedule is so far."""
        assert self.siblings is not None, "who is alone has no meetings"
        self.on, self.scheduled = False, self.siblings.most(scheduled)
        if self._leaves:
            self._peer.leave_together(True)

    def end(self) -> None:
        """Training has ended: whether this worker may leave is its own affair again, unless all leave."""
        if self.siblings is not None and not self._leaves:
            self._peer.leave_together(None)


def _check(sampler: ElasticSampler | None, grouping: Grouping, pace: Pace, outer_schedule: object) -> None:
    if sampler is not None:
        raise ConfigError("a sampler leases samples in one mesh, and with `within` each shard has its own: give none")
    if isinstance(pace, AdaptivePace):
        raise ConfigError(
            "an AdaptivePace is agreed in one mesh, and with `within` each shard has its own: give a number"
        )
    if outer_schedule is not None:
        raise ConfigError(
            "outer_schedule is of the rounds of one mesh, and with `within` each shard has its own, by which those "
            "of one model would step at several rates: give an outer optimizer of one rate"
        )
    if grouping != "all":
        raise ConfigError(f"rounds by {grouping} are drawn in one mesh, and with `within` each shard has its own")


def _siblings(model: torch.nn.Module, within: Any) -> Siblings:
    if isinstance(within, Exchange):
        return Siblings(within)
    group = ProcessGroup(within)
    check_ranks(model, group.ranks)
    return Siblings(group)
