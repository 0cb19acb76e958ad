"""What the mesh agrees on next is computed alike by all, whatever else their programs do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.mirror import MirrorDescent

OUTER: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None] = {
    "nesterov": None,
    "delayed": lambda params: DelayedNesterov(params, every=2),
    "mirror": lambda params: MirrorDescent(params, mirror="p-norm"),
    "of torch": lambda params: torch.optim.RMSprop(params, lr=1e-3),
}


@pytest.fixture
def flushing() -> Iterator[None]:
    """A thread that takes subnormal numbers for zero, as a library built with `-ffast-math` may have it."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine flushes none")
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


def flushes() -> bool:
    return (torch.tensor([1e-40]) * 1).item() == 0.0


class Model(torch.nn.Module):
    """A parameter and a buffer that training hardly moved any more."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))
        self.register_buffer("seen", torch.zeros(size))


def agreed(size: int, outer: str, *, flush: bool, arriving: bool = False) -> bytes:
    weights = Weights(Model(size), OUTER[outer], [])
    weights.average.fill_(1e-39)
    torch.set_flush_denormal(flush)
    if arriving:
        weights.restart(())
        weights.arrived(0, weights.average.numel())
    digest = weights.finish(())
    assert flushes() == flush, "the thread has its mode again"
    torch.set_flush_denormal(False)
    weights.commit(1)
    return digest


@pytest.mark.parametrize("size", [5, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize("outer", OUTER)
def test_numbers_next_to_zero_count_whatever_a_program_takes_them_for(flushing: None, size: int, outer: str) -> None:
    """Regression: hosts of which one flushed them agreed until a momentum had become so small, and then no more."""
    assert agreed(size, outer, flush=True) == agreed(size, outer, flush=False)


@pytest.mark.parametrize("size", [5, 3_000_000], ids=["small", "large"])
def test_they_count_while_an_average_arrives_as_well(flushing: None, size: int) -> None:
    assert agreed(size, "nesterov", flush=True, arriving=True) == agreed(size, "nesterov", flush=False)
