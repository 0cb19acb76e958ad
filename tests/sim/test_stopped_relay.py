"""Two clusters that meet at a third one, which stands still: another is there, and they go over that."""

from __future__ import annotations

import ictp2p
from sim import World
from tests.sim.test_training import learner


def test_rounds_go_on_over_another_relay_once_one_stands_still() -> None:
    """Regression: its kernel took what was sent, so the connection over it never stalled, and each attempt used it."""
    program = learner(ictp2p.NoLoCo, 10**6, sync_every=10)
    with World(seed=2, profile="wan") as world:
        world.links(delay=0.02, bandwidth=1e7)
        for name in "abcd":
            world.cluster(name, workers=1, program=program)
        world.cut("b", "c")
        world.run_to(60.74)
        before = world.version()
        world.pause("a/0")
        world.run_for(100.0)
        assert world.version() - before > 40, "of 100 that there is time for"
