"""`sync_state` while workers die and come back: who comes takes what the others have come to, and nobody goes back."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from sim import World
from sim.training import Training
from tests.sim.calls import Caller


@pytest.mark.parametrize("clusters", ["a", "ab"])
def test_who_comes_back_to_lead_takes_what_its_mates_have_come_to(clusters: str) -> None:
    """Regression: it took the state that was agreed on last, and so did they: what they had done since was lost."""
    counts: defaultdict[tuple[str, int], list[int]] = defaultdict(list)

    def program(training: Training) -> None:
        host, caller, count = training.host, Caller(training), torch.zeros((), dtype=torch.int64)
        caller.gather(len(clusters), 60.0)
        while True:
            caller.sync_state({"count": count})
            counts[host.name, host.lives].append(int(count))
            training.compute(1.0)
            count += 1

    with World(seed=3, profile="local", spare_quorum=True) as world:
        world.links(delay=0.005, bandwidth=1e8)
        for cluster in clusters:
            world.cluster(cluster, workers=3 if cluster == "a" else 1, program=program)
        world.run_for(8.2)
        leader = world.leaders()["a"]
        survivor = next(host.name for host in world.of("a") if host.name != leader)
        lost = [host.name for host in world.of("a") if host.name != survivor]
        for name in lost:
            world.crash(name)
        world.run_for(0.1)
        for name in lost:
            world.restart(name)
        world.run_for(20.0)
    kept = counts[survivor, 1]
    assert kept == list(range(kept[0], kept[0] + len(kept)))
    assert len(kept) > 10
    assert all(counts[name, 2][-1] >= kept[-1] - 1 for name in lost)
