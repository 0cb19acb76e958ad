"""What a campaign may ask of its crowd."""

from __future__ import annotations

import argparse
import random

import pytest

from benchmarks.chaos.simulated import Simulated
from ictp2p.errors import ConfigError


def test_a_crowd_without_lines_says_which_it_was_asked_to_cut_or_heal() -> None:
    crowd = Simulated(argparse.Namespace(seed=0, verbose=False), random.Random(0), lambda worker, event: None)
    with pytest.raises(ConfigError, match="cannot cut a-b: Simulated has no lines between clusters"):
        crowd.cut([("a", "b"), ("a", "c")], 1.0)
    with pytest.raises(ConfigError, match="cannot heal a-b: Simulated has no lines between clusters"):
        crowd._heal("a", "b")
    crowd.end()
