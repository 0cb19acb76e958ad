"""A cluster behind a line so slow that a usual probe does not get through in its time, and pairs that exchange much."""

from __future__ import annotations

import torch

import ictp2p
from sim import World
from sim.training import Training

RATE = 26_000.0
"""Bytes/s."""


def _train(training: Training) -> None:
    """Phases of a minute; what a pair exchanges takes the slow line 100 s each way, where a round has two minutes."""
    model = torch.nn.Linear(800, 800)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with ictp2p.NoLoCo(training, model, inner, sync_every=2):
        while True:
            model(torch.ones(1, 800)).square().mean().backward()
            training.compute(30.0)
            inner.step()
            inner.zero_grad()


def test_a_pair_over_a_line_that_a_usual_probe_overtaxes_gets_through_and_the_others_go_on() -> None:
    """Regression: each probe failed, so the line had no figure, and each attempt over it ended at the same deadline."""
    with World(seed=1, profile="lan") as world:
        world.links(delay=0.05, bandwidth=5e7)
        for name in "ab":
            world.cluster(name, workers=1, program=_train)
        world.cluster("z", workers=1, program=_train, at=600.0, up=RATE, down=RATE)
        world.run_to(2000.0)
        late = [commit for commit in world.commits() if commit.at > 1250.0]
    assert len(late) >= 3, "of pairs that take up to 200 s"
    assert any("z" in commit.participants for commit in late)
