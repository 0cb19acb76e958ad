from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim import World


@pytest.fixture
def world() -> Iterator[World]:
    """Three clusters of one worker that have found each other and are in a state, to be doctored."""
    with World(3) as made:
        for name in "abc":
            made.cluster(name, workers=1)
        made.run_until(made.settled, within=30)
        made.run_until(lambda: len({host.core.m.rounds.tip for host in made.hosts.values()}) == 1, within=30)
        yield made


@pytest.fixture
def broken(world: World):
    """The rules that were broken so far."""
    return lambda: [finding.rule for finding in world.auditor.findings]
