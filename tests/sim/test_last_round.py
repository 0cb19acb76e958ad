"""Who is asked to leave after its next round, in a mesh in which none can come any more."""

from __future__ import annotations

import torch

import ictp2p
from ictp2p.config.values import PRESETS
from ictp2p.errors import PeerClosed
from sim import World
from sim.faults import Crash
from sim.training import Training

STALL = PRESETS["lan"]["global_timeouts"].stall
SOON = 3.0
"""Seconds in which somebody who waits looks again, more than once."""


def _train(training: Training) -> tuple[float, str]:
    """Train until this worker has to leave; when that was, and why."""
    model = torch.nn.Linear(8, 8)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        with ictp2p.DiLoCo(training, model, inner, sync_every=2):
            while True:
                model(torch.ones(1, 8)).square().mean().backward()
                training.compute(1.0)
                inner.step()
                inner.zero_grad()
    except PeerClosed as error:
        return training.clock(), str(error)


def test_it_leaves_after_the_stall_whether_it_leads_or_follows_or_was_never_let_in() -> None:
    """Regression: it waited for a quorum that was gone for good, until whoever had asked it killed it."""
    with World(seed=1, profile="lan") as world:
        gone, left = (world.cluster(name, workers=2, program=_train) for name in "ab")
        world.run_to(20.0)
        for host in gone:
            world.inject(Crash(host.name))
        newcomer = world.host("b", at=35.0)
        world.run_to(60.0)
        for host in (newcomer, *sorted(left, key=lambda host: host.leads)):
            training = host.training
            assert training is not None
            training.asked_to_leave()
            began = world.now
            world.run_for(STALL + SOON)
            assert training.over, f"{host.name} waits on"
            when, why = training.result
            assert when >= began + STALL
            assert "no quorum: 2 of 4 voters are suspected" in why
