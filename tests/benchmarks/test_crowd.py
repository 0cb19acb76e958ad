"""What a campaign may ask of its crowd."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pytest

from benchmarks.chaos.audit import Audit
from benchmarks.chaos.crowd import Worker
from benchmarks.chaos.simulated import Simulated
from ictp2p.errors import ConfigError


def test_a_crowd_without_lines_says_which_it_was_asked_to_cut_or_heal() -> None:
    crowd = Simulated(argparse.Namespace(seed=0, verbose=False), random.Random(0), lambda worker, event: None)
    with pytest.raises(ConfigError, match="cannot cut a-b: Simulated has no lines between clusters"):
        crowd.cut([("a", "b"), ("a", "c")], 1.0)
    with pytest.raises(ConfigError, match="cannot heal a-b: Simulated has no lines between clusters"):
        crowd._heal("a", "b")
    crowd.end()


def test_connections_are_told_apart_from_what_else_is_open_and_bounded_by_the_workers() -> None:
    """Regression: what grew with the number of workers passed for a leak of descriptors."""
    crowd = Simulated(argparse.Namespace(seed=0, verbose=False), random.Random(0), lambda worker, event: None)
    crowd.workers += [Worker(f"{name}/0", name, slot, Path(), 0.0) for slot, name in enumerate("abc")]
    frugal, greedy, _ = crowd.workers
    for _ in range(50):
        for worker, connections in ((frugal, 8), (greedy, 9)):
            taken = {"descriptors": 20 + connections, "connections": connections, "memory": 1 << 20}
            crowd._note(worker, {"kind": "alive", **taken})
    Audit().close(crowd)
    crowd.end()
    assert set(frugal.descriptors + greedy.descriptors) == {20}
    assert crowd.problems == [f"0.00 s: b/0 kept {[4.5] * 5} connections for each other worker"]
