"""Who is killed around a commit and is back at once begins from what the others have agreed on by then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ictp2p
from sim import World
from sim.training import Training


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("pause", [0.5, 3.0])
def test_a_worker_that_restarts_quickly_does_not_begin_from_what_its_own_disk_knew(
    nth: int, pause: float, tmp_path: Path
) -> None:
    """Regression: its checkpoint was of that version, so it trained a phase from there, which no round took."""
    began: list[tuple[int, int]] = []

    def program(training: Training) -> None:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 4)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = ictp2p.DiLoCo(training, model, inner, sync_every=4)
        file, saved = tmp_path / training.host.cluster, 0
        if file.exists():
            policy.load(file)
        with policy:
            if training.host.lives > 1:
                began.append((policy.version, training.host.world.version()))
            while True:
                inner.zero_grad()
                model(torch.ones(1, 4)).square().mean().backward()
                training.compute(0.5)
                inner.step()
                if policy.version != saved:
                    policy.save(file)
                    saved = policy.version

    with World(seed=1, profile="wan") as world:
        world.links(delay=0.1, bandwidth=1e8)
        for name in "ab":
            world.cluster(name, workers=1, program=program)
        world.run_until(lambda: world.version() >= 5, 300.0, step=0.01)
        world.crash_on_save("b/0", nth)
        world.run_until(lambda: not world.hosts["b/0"].alive, 20.0, step=0.01)
        world.run_for(pause)
        world.restart("b/0")
        world.run_until(lambda: bool(began), 60.0)
        ((version, decided),) = began
        assert version == decided
