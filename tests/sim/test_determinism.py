"""One seed, one course: in two interpreters, under two hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORY = """
from sim import World
from sim.chance import Chance
from sim.chaos import chaos
world = World({seed}, spare_state=True)
for name in "abc":
    world.cluster(name)
world.run_until(world.settled, within=30)
kinds = ("crash", "kill_leader", "restart", "pause", "resume", "cut", "heal", "reset", "loss", "delay", "bandwidth")
world.schedule(chaos(Chance({seed}), list(world.clusters), list(world.hosts), seconds=10, kinds=kinds))
world.run_for(12)
print(world.trace.digest(), world.trace.deliveries)
world.close()
"""


def _run(seed: int, hashing: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(ROOT)}
    story = [sys.executable, "-c", STORY.format(seed=seed)]
    return subprocess.run(story, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_trace_is_a_function_of_the_seed_alone() -> None:
    first = _run(1, "0")
    assert first == _run(1, "77")
    assert first != _run(2, "0")
