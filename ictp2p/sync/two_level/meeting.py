"""When the ranks that hold the shards of a cluster's model wait for each other; never, where it is not sharded.

Before each inner step they agree on whether a round is due after it, and so whether they meet there. That is done once
a step, however often a rank's own group breaks in it: an exchange that one rank repeats would be answered by the next
one.
"""

from __future__ import annotations

from typing import Any

from ictp2p.errors import ConfigError
from ictp2p.sync.cluster.siblings import Exchange, ProcessGroup, Siblings, Step
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.values import Grouping


class Meeting:
    """A policy's part in it.

    Args:
        peer: told when this worker may leave, where all ranks do.
        within: the ranks among which the model is sharded, as a process group or a device mesh; None if it is not.
        sampler: the policy's.
        grouping: over whom its rounds average.

    Raises:
        ConfigError: `within` is no such thing, or does not go with the others.
    """

    def __init__(self, peer: Mesh, within: Any, sampler: ElasticSampler | None, grouping: Grouping) -> None:
        if within is not None:
            _check(sampler, grouping)
        self._peer = peer
        self.siblings = None if within is None else _siblings(within)
        """The ranks, if there are any."""
        self.on = False
        """Whether they are waited for at this boundary."""
        self._agreed: Step | None = None
        """On what comes after the step that is being taken."""
        self._leaves = False

    def begin(self) -> None:
        """Training begins: all wait until all have a state."""
        self.on, self._agreed, self._leaves = self.siblings is not None, None, False
        self._peer.leave_together(None if self.siblings is None else False)

    def agree(self, *, due: bool, lands: bool, since: int) -> None:
        """Agree on what comes after the next step; see `Siblings.step`."""
        if self.siblings is not None:
            self._agreed = self.siblings.step(due=due, lands=lands, since=since, leaves=self._peer.leaves)

    def due(self, mine: bool) -> bool:
        """Whether a round is due after it, by what was agreed, or as this worker sees it."""
        return mine if self._agreed is None else self._agreed.due

    def stepped(self) -> None:
        """The step was taken."""
        if self._agreed is not None:
            self.on, self._leaves = self._agreed.meets, self._leaves or self._agreed.leaves

    def over(self) -> None:
        """All have landed, and go on; or leave, if one of them was asked to."""
        self.on = False
        if self._leaves:
            self._peer.leave_together(True)


def _check(sampler: ElasticSampler | None, grouping: Grouping) -> None:
    if sampler is not None:
        raise ConfigError("a sampler leases samples in one mesh, and with `within` each shard has its own: give none")
    if grouping != "all":
        raise ConfigError(f"rounds by {grouping} are drawn in one mesh, and with `within` each shard has its own")


def _siblings(within: Any) -> Siblings:
    return Siblings(within if isinstance(within, Exchange) else ProcessGroup(within))
