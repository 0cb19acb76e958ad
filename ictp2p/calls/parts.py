"""`reduce`, `reduce_scatter` and `all_gather`: rounds in which participants do not all bring, or get, the same.

`reduce` names its root. The other two cut a vector by who takes part, which nobody knows before a round is open. So
they first hold a barrier: its decision names those who came. The round after it is for just these, in that order, and
commits with others in it only if somebody died or came in between; nothing moves in it then (`RoundRequest.among`),
every participant sees so by the same decision, and all of them do both again.

What is voted on is then that everybody holds its part, not what it is: it is another one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ictp2p.calls.chronicle import Past
from ictp2p.calls.completed import Completed
from ictp2p.calls.round_call import RoundCall
from ictp2p.calls.rounds import Barrier, SumCall
from ictp2p.calls.runner import Call
from ictp2p.calls.tensors import Addend, Bundle
from ictp2p.collectives.planning.halves import cuts
from ictp2p.errors import RoundTimeout
from ictp2p.sync.mesh import Group
from ictp2p.sync.values import Spec
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId

_TURNS = 8
"""How often a membership may change under a call of two rounds before it gives up."""

C = TypeVar("C", bound=RoundCall)
Run = Callable[[Call[Completed]], Completed]
"""Takes a call to its end."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The tensors of every cluster."""

    round: int
    """Number of the round; the same everywhere."""
    tensors: dict[ClusterId, list[Tensor]]
    """By cluster, in the order of the round: a list of as many tensors as each worker gave, of the same shapes."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """This cluster's part of a sum or mean."""

    round: int
    """Number of the round; the same everywhere."""
    clusters: tuple[ClusterId, ...]
    """Whose contributions are in it; the first of them has the first part, and so on."""
    start: int
    """First element of the part, in the flat vector of all tensors, each behind the one before."""
    stop: int
    """One past its last element."""
    part: Tensor
    """The `stop - start` elements, a flat tensor."""


class Reduce(SumCall):
    """The mean or sum of every worker's tensors, for one cluster."""

    alike = False

    def __init__(self, mesh: TrainingMesh, past: Past, addend: Addend, root: ClusterId, cluster: ClusterId) -> None:
        self._root = root == cluster
        nbytes = addend.bundle.nbytes if self._root else 0
        super().__init__(mesh, past, addend, kind="collect", name=f"reduce@{root}", nbytes=nbytes)

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """All of it, at the root."""
        return self._bundle.parts(result) if self._root else ()

    def _deliver(self, result: Tensor) -> None:
        if self._root:
            self._bundle.deliver(result)


class Scatter(SumCall):
    """Each participant's part of the mean or sum of every worker's tensors."""

    alike = False

    def __init__(
        self,
        mesh: TrainingMesh,
        past: Past,
        addend: Addend,
        clusters: Sequence[ClusterId],
        cluster: ClusterId,
    ) -> None:
        self.among = tuple(clusters)
        ends, place = cuts(addend.bundle.elements, len(clusters)), list(clusters).index(cluster)
        self.start, self.stop = ends[place], ends[place + 1]
        nbytes = (self.stop - self.start) * addend.dtype.itemsize
        super().__init__(mesh, past, addend, kind="scatter", name="reduce_scatter", nbytes=nbytes)
        self.part = torch.empty(0, dtype=self._dtype, device="cpu")

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """This cluster's part."""
        return [result.view(self._dtype)]

    def brought(self) -> tuple[int, int]:
        """None: all that is in the part is a sum."""
        return 0, 0

    def place(self, element: int) -> int:
        """The part is all that there is of the result."""
        return element - self.start

    def _deliver(self, result: Tensor) -> None:
        self.part = result.view(self._dtype).clone()  # the caller's, to be written: mates may be handed `result` yet


class Gather(RoundCall):
    """A copy of what each participant brings, which is its leader's."""

    def __init__(
        self,
        mesh: TrainingMesh,
        past: Past,
        bundle: Bundle,
        clusters: Sequence[ClusterId],
        cluster: ClusterId,
    ) -> None:
        self._bundle, self.among = bundle, tuple(clusters)
        self._start = list(clusters).index(cluster) * bundle.nbytes
        self.result = torch.empty(0, dtype=torch.uint8, device="cpu")
        nbytes = len(clusters) * bundle.nbytes
        spec = Spec("gather", "all_gather", "uint8", nbytes, "sum", "none", bundle.brief)
        super().__init__(mesh, past, spec, 1.0, nbytes)

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        return [self._bundle.copied()]

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """What all bring, one behind the other."""
        return [result]

    def brought(self) -> tuple[int, int]:
        """This cluster's row."""
        return self._start, self._start + self._bundle.nbytes

    def _deliver(self, result: Tensor) -> None:
        self.result = result


def reduce_scatter(run: Run, mesh: TrainingMesh, past: Past, addend: Addend, cluster: ClusterId) -> Scattered:
    """Reduce, and keep this cluster's part.

    Raises:
        RoundTimeout: the membership changed again and again; else as the rounds.
    """

    def call(clusters: tuple[ClusterId, ...]) -> Scatter:
        return Scatter(mesh, past, addend, clusters, cluster)

    done, scatter = _among(run, Barrier(mesh, past, "reduce_scatter", addend.bundle.brief), call)
    return Scattered(done.round, done.clusters, scatter.start, scatter.stop, scatter.part)


def all_gather(run: Run, mesh: TrainingMesh, past: Past, bundle: Bundle, cluster: ClusterId) -> Gathered:
    """Collect what every cluster brings.

    Raises:
        RoundTimeout: the membership changed again and again; else as the rounds.
    """

    def call(clusters: tuple[ClusterId, ...]) -> Gather:
        return Gather(mesh, past, bundle, clusters, cluster)

    done, gather = _among(run, Barrier(mesh, past, "all_gather", bundle.brief), call)
    rows = gather.result.view(len(done.clusters), bundle.nbytes)
    return Gathered(
        done.round, {name: bundle.shaped(row.clone()) for name, row in zip(done.clusters, rows, strict=True)}
    )


def _among(run: Run, barrier: Barrier, make: Callable[[tuple[ClusterId, ...]], C]) -> tuple[Completed, C]:
    """Learn who is there, then do it with just these."""
    for _ in range(_TURNS):
        found = run(barrier)
        call = make(found.clusters)
        done = run(call)
        if done.clusters == found.clusters:
            return done, call
    raise RoundTimeout(f"the clusters that take part changed {_TURNS} times in the middle of a call")
