"""Ways that carry small packets and lose large ones without a word (RFC 2923)."""

from __future__ import annotations

import pytest

from sim import World
from tests.sim.test_cut_lines import Story

STALL = 15.0
"""Seconds without progress after which `Config.wan` gives a connection up."""


@pytest.mark.parametrize("seed", range(3))
def test_a_way_that_begins_to_lose_large_packets_costs_one_stall(seed: int) -> None:
    """Regression: in namespaces every second call took one, and some went on without a cluster."""
    with World(seed=seed, profile="wan") as world:
        story = Story(world)
        world.run_for(10.0)
        world.link("a", "b", swallows=True)
        world.run_for(90.0)
        story.over = True
        assert not story.errors
        longest = sorted(story.took)[-5:]
        assert longest[0] < 4.0, "the call after that, on all four"
        assert STALL < longest[-1] < STALL + 4.0


@pytest.mark.parametrize("hidden", ["", "cd"])
def test_where_large_packets_are_lost_from_the_start_no_call_waits_for_them(hidden: str) -> None:
    """Control connections never have any, and data connections show in their handshake whether they pass."""
    with World(seed=1, profile="wan") as world:
        world.links(swallows=True)
        story = Story(world, hidden=hidden)
        world.run_for(60.0)
        story.over = True
        assert not story.errors
        assert max(story.took) < 6.0
