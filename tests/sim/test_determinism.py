"""One seed, one course: in two interpreters, under two hash seeds, for every scenario that is shipped.

Both interpreters play everything, small, and print one trace hash for each. Chaos comes on top, which no scenario has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
SMALL = {
    "megabytes": 0.02, "compute": 2, "clusters": 3, "workers": 1, "rounds": 1, "minority": 1, "times": 1, "quiet": 1,
    "adapt": 1, "minutes": 0.2, "seeds": 1,
}  # fmt: skip
"""Settings that make a scenario short, as far as it goes, where it has them. It may then not see all that it should,
which is no matter here."""
STORY = """
import dataclasses, json, sys
from sim.campaign import drawn
from sim.scenario import play, shipped
from sim.scenario_file import read
small, names = json.loads(sys.argv[1]), json.loads(sys.argv[2])
plays = [(shipped(name), 1) for name in names] + [(read(drawn(seed), str(seed)), seed) for seed in (1,)]
for scenario, seed in plays:
    fields = [field for field in dataclasses.fields(scenario.settings) if field.name in small]
    given = {field.name: max(small[field.name], field.metadata["limits"].least) for field in fields}
    with play(scenario, seed, given) as stage:
        print(scenario.name, stage.world.trace.digest(), stage.world.trace.deliveries)
"""


def _played(hashing: str) -> list[list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(ROOT)}
    story = [sys.executable, "-c", STORY, json.dumps(SMALL), json.dumps(SCENARIOS)]
    ran = subprocess.run(story, env=environment, capture_output=True, text=True, check=True, timeout=200)
    return [line.split() for line in ran.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_trace_is_a_function_of_the_seed_alone() -> None:
    first, second = _played("0"), _played("77")
    assert first == second
    assert [name for name, *_ in first] == [*SCENARIOS, "1"]
    assert len({trace for _, trace, _ in first}) == len(first), "each has a course of its own"
    assert all(int(messages) > 100 for *_, messages in first)
