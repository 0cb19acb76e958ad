"""`all_reduce`, `broadcast` and `barrier`: one round of the mesh each (`round_call`); `parts` has the calls of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ictp2p.calls.chronicle import Past
from ictp2p.calls.round_call import RoundCall
from ictp2p.calls.tensors import Addend, Bundle, local_sum, name_of
from ictp2p.sync.mesh import Group
from ictp2p.sync.values import FIRST_ROUND, Spec
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId


class SumCall(RoundCall):
    """A round that adds up what all workers bring, whoever gets the result.

    Args:
        mesh: the training side.
        past: of earlier calls.
        addend: what this worker brings.
        kind: of the round, and so who gets what (`Spec.kind`).
        name: of the call; the others must bring the same.
        nbytes: how much of the result comes here.
        codec: how elements travel.
    """

    adds_up = True

    def __init__(
        self,
        mesh: TrainingMesh,
        past: Past,
        addend: Addend,
        *,
        kind: Literal["reduce", "collect", "scatter"],
        name: str,
        nbytes: int,
        codec: str = "none",
    ) -> None:
        bundle = self._bundle = addend.bundle
        self._dtype = addend.dtype
        spec = Spec(kind, name, name_of(bundle.tensors[0]), bundle.elements, addend.op, codec, bundle.brief)
        super().__init__(mesh, past, spec, addend.weight, nbytes)

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        """What the workers of a cluster bring together: their tensors' sum, each times its share in a mean."""
        if group.size == 1:
            return self._bundle.readable()
        flat = self._bundle.copied().view(self._dtype)
        local_sum(group, flat, self.weight / weight if self.spec.op == "avg" else None)
        return self._bundle.parts(flat.view(torch.uint8))


class AllReduce(SumCall):
    """The mean or sum of every worker's tensors."""

    def __init__(self, mesh: TrainingMesh, past: Past, addend: Addend, codec: str = "none") -> None:
        nbytes = addend.bundle.nbytes
        super().__init__(mesh, past, addend, kind="reduce", name="all_reduce", nbytes=nbytes, codec=codec)

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """The tensors, one behind the other."""
        return self._bundle.parts(result)

    def _deliver(self, result: Tensor) -> None:
        self._bundle.deliver(result)


class Broadcast(RoundCall):
    """A copy of one cluster's tensors, which are its leader's."""

    def __init__(self, mesh: TrainingMesh, past: Past, bundle: Bundle, root: ClusterId) -> None:
        self._bundle = bundle
        spec = Spec("broadcast", f"broadcast@{root}", "uint8", bundle.nbytes, "sum", "none", bundle.brief)
        super().__init__(mesh, past, spec, 1.0, bundle.nbytes)

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        return [self._bundle.copied()] if group.rank == 0 else ()

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """All of it, as bytes."""
        return [result]

    def _deliver(self, result: Tensor) -> None:
        self._bundle.deliver(result)


class Barrier(RoundCall):
    """Nothing but everybody's presence; before another call, so that all know who takes part."""

    def __init__(self, mesh: TrainingMesh, past: Past, before: str = "", brief: bytes = b"") -> None:
        name = before + FIRST_ROUND if before else "barrier"
        super().__init__(mesh, past, Spec("barrier", name, "uint8", 0, "sum", "none", brief), 1.0, 0)
