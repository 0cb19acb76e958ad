"""A worker's gradient, from when it is in hand to the step that is taken with the average.

It is averaged inside the cluster by weight (`cluster.averaging`), in as many groups as that takes; what it counts is
known here. It counts nothing once it is *spent*: computed for parameters that are not those any more, or of a step that
is in the model already.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ictp2p.fsm import TRAINING
from ictp2p.sync.cluster import scaling
from ictp2p.sync.cluster.averaging import NOTHING, Averager, Heads
from ictp2p.sync.cluster.groups import Moved
from ictp2p.sync.cluster.likeness import Likeness
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.mesh import Group, Mesh
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.samples.sampler import ElasticSampler


class Gradients:
    """Those of one worker, step after step.

    Args:
        peer: the connection to the mesh.
        inner: the optimizer that steps with them.
        weights: the model.
        progress: how far this worker is; kept up to date.
        sampler: says of which samples they are.
        sharded: whether other ranks hold other shards of the model, and step with this one.
        warn: tells people.
    """

    def __init__(
        self,
        peer: Mesh,
        inner: torch.optim.Optimizer,
        weights: Weights,
        progress: Progress,
        sampler: ElasticSampler | None,
        *,
        sharded: bool,
        warn: Callable[[str], None],
    ) -> None:
        self._peer, self._inner, self._progress = peer, inner, progress
        self._sampler, self._sharded = sampler, sharded
        self._averager = Averager(weights.trained, weights.buffers.values())
        self._likeness = Likeness(inner, warn)
        self.weight = 1.0
        """What the worker's own batches count."""
        self.spent = False
        """Whether the one in hand must not count."""

    @property
    def dry(self) -> bool:
        """Whether there is nothing to train before a round has leased more samples."""
        return self._sampler is not None and self._sampler.dry

    def equal(self) -> None:
        """All workers of a new group hold the same model."""
        self._averager.agreed()

    def average(self, group: Group, weight: float, *, due: bool) -> Heads:
        """Average the one in hand.

        Args:
            group: the cluster's.
            weight: what it counts, if it is not spent.
            due: whether a round is due after the step, as this worker sees it.

        Returns:
            What all workers said, `due` among it.

        Raises:
            Moved: the group has to change first.
            LocalGroupError: it broke. Nothing is averaged.
        """
        self._peer.phase(TRAINING, "gradients")
        mark, left = (NOTHING, NOTHING) if self._sampler is None else (self._sampler.mark(), self._sampler.left())
        spent = self.spent or (self._sampler is not None and mark == NOTHING)
        heads = self._averager.heads(
            group,
            0.0 if spent else weight,
            self._progress.step,
            moves=self._peer.roster_moves(group.generation),
            due=due,
            mark=mark,
            left=left,
            options=self._likeness.digest(group),
            asks=self._likeness.asks,
        )
        if heads.moves:
            self._peer.phase(TRAINING, "pg_diff")
            raise Moved(self._progress.step)
        self._peer.phase(TRAINING, "pg_same")
        self._likeness.heard(group, heads)
        self._averager.average(group, heads)
        self._peer.phase(TRAINING, "averaged")
        return heads

    def averaged(self, heads: Heads) -> None:
        """The average is in hand: note what the step with it will have trained, if the optimizer takes it."""
        taken = scaling.look_again(self._inner, shards=self._sharded)
        if self._sampler is not None:
            self._sampler.stepped(heads.marks, heads.left, taken=taken)
        self._progress.averaged(heads.weight if taken else 0.0, due=heads.due or self.dry)
        self.spent = False
