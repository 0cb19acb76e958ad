"""Two clusters that meet at a third one, which stands still: another is there, and they go over that."""

from __future__ import annotations

import torch

import ictp2p
from sim import World
from sim.training import Training


def _train(training: Training) -> None:
    model = torch.nn.Linear(8, 8)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with ictp2p.NoLoCo(training, model, inner, sync_every=10):
        while True:
            model(torch.ones(1, 8)).square().mean().backward()
            training.compute(0.1)
            inner.step()
            inner.zero_grad()


def test_rounds_go_on_over_another_relay_once_one_stands_still() -> None:
    """Regression: its kernel took what was sent, so the connection over it never stalled, and each attempt used it."""
    with World(seed=2, profile="wan") as world:
        world.links(delay=0.02, bandwidth=1e7)
        for name in "abcd":
            world.cluster(name, workers=1, program=_train)
        world.cut("b", "c")
        world.run_to(60.0)
        before = world.version()
        world.pause("a/0")
        world.run_for(100.0)
        assert world.version() - before > 40, "of 100 that there is time for"
