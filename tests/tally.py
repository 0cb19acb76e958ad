"""A model that counts how often each sample was trained, so that what a sampler promises stands in the parameters.

The gradient of a sample is one in a place of its own. So in every agreed state the parameters say which samples are in
it, and the leases, which are agreed in the same decision, say which should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch

from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.samples.leases import BLOCKS, DONE, EPOCH
from ictp2p.sync.samples.sampler import ElasticSampler


class Watched(ElasticSampler):
    """Checks in each agreed state that the parameters hold exactly those samples that are said to be done."""

    counting = 0
    """How many batches were in the last step of its cluster."""

    def stepped(self, marks: Sequence[int], left: Sequence[int] = (), *, taken: bool = True) -> None:
        super().stepped(marks, left, taken=taken)
        self.counting = len(marks)

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        super().landed(counters, tensors)
        expected = torch.full((self._size,), float(counters[EPOCH]))
        for block in (tensors[BLOCKS] == DONE).nonzero().flatten().tolist():
            expected[self._indices(counters[EPOCH], block)] += 1
        assert torch.equal(tensors["tally"], expected), "the model holds other samples than the leases say"


class Tally(torch.nn.Module):
    """Its gradient counts the samples of a batch."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.tally = torch.nn.Parameter(torch.zeros(size))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.tally[indices].sum()


class Count(torch.optim.Optimizer):
    """Undoes the mean over the workers of a cluster, so that each batch counts one."""

    def __init__(self, model: Tally, sampler: Watched) -> None:
        super().__init__(model.parameters(), {})
        self.sampler = sampler

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for param in self.param_groups[0]["params"]:
            if param.grad is not None:
                param.add_(param.grad, alpha=self.sampler.counting).round_()


class Summing(LocalSGD):
    """Adds contributions up, so that each sample counts one whoever else is in the round."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        contribution = self._outer_round._contribution
        contribution.spec = msgspec.structs.replace(contribution.spec, op="sum")
