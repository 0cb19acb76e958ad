"""A training that hangs while its peer answers: the others go on, wait for it in each round, and say so."""

from __future__ import annotations

import torch

import ictp2p
from sim import World
from sim.training import Training

HANGS = 5
"""The step at which cluster `c` stands still."""


def _train(training: Training) -> None:
    model = torch.nn.Linear(8, 8)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with ictp2p.DiLoCo(training, model, inner, sync_every=2) as policy:
        while True:
            model(torch.ones(1, 8)).square().mean().backward()
            training.compute(60.0 if (training.cluster, policy.progress.step) == ("c", HANGS) else 1.0)
            inner.step()
            inner.zero_grad()


def test_the_others_say_which_cluster_hangs_and_go_on_with_it_when_it_is_back() -> None:
    with World(seed=1, profile="lan") as world:
        for name in "abc":
            world.cluster(name, workers=2 if name == "c" else 1, program=_train)
        world.run_to(130.0)
        told = list(world.trace.of("cluster_absent"))
        texts = {entry.fields["text"] for entry in world.trace.of("warning")}
        last = world.commits()[-1]
    assert {entry.host for entry in told} == {"a/0", "b/0", "c/0", "c/1"}
    assert {entry.fields["cluster"] for entry in told} == {"c"}
    assert len(told) == 4, "each says it once"
    assert any("Its training hangs" in text for text in texts)
    assert set(last.participants) == {"a", "b", "c"}
