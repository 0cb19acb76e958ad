"""What was dialed to find a lost quorum is given up again once there is one: workers are many, and descriptors few."""

from __future__ import annotations

import pytest

from sim import World

LAYOUT = {"a": 4, "b": 4, "c": 4}


def _most(world: World) -> int:
    return max(len(host.core.connected()) for host in world.running() if host.core is not None)


@pytest.mark.parametrize("cut", [False, True])
def test_after_a_restart_of_all_or_a_partition_nobody_is_connected_to_everybody(cut: bool) -> None:
    """Regression: each worker dialed all others while the quorum was lost, and kept what it had reached for good."""
    with World(seed=3, profile="lan", spare_quorum=False) as world:
        for name, workers in LAYOUT.items():
            world.cluster(name, workers=workers, train=False)
        world.run_until(world.believes_all, within=30)
        world.run_for(30.0)
        usual = max(LAYOUT.values()) - 1 + len(LAYOUT) - 1
        assert _most(world) <= usual
        if cut:
            world.partition(["a"])
            world.run_for(40.0)
            world.heal()
        else:
            for host in world.every_host():
                world.crash(host.name)
            for host in world.every_host():
                world.restart(host.name)
        world.run_until(world.believes_all, within=60)
        world.run_for(30.0)
        assert _most(world) <= usual
