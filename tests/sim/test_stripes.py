"""Ways whose line one connection does not fill, in worlds: several do, and sums stay exact whoever dies meanwhile."""

from __future__ import annotations

from itertools import combinations

import pytest

from ictp2p.bulk import tuning
from ictp2p.bulk.stripes import COUNT, MOST, Stripes
from ictp2p.edge.preamble import Kind
from sim import World
from sim.faults import KillLeader, ResetConnections, Restart

DELAY, LINE, WINDOW = 0.05, 125e6, 4e6
"""A Gbit/s over 100 ms, of which buffers let one connection carry a third."""


def connections(world: World, a: str, b: str) -> int:
    """Count those that carry tensors between two clusters."""
    ends = [end for end in world.internet.endpoints if end.kind == Kind.BULK]
    return sum((end.local.split("/")[0], end.remote.split("/")[0]) == (a, b) for end in ends)


def striped(world: World, a: str, b: str) -> bool:
    """Say whether there are more of them than two ends make that dial at once."""
    return connections(world, a, b) >= COUNT


def last_round(world: World) -> float:
    """Give the seconds of the last round that was committed."""
    ended = max(entry.at for entry in world.trace.entries if entry.kind == "round_committed")
    return ended - max(entry.at for entry in world.trace.entries if entry.kind == "round_opened" and entry.at < ended)


@pytest.mark.parametrize(("line", "window"), [(LINE, WINDOW), (LINE / 10, 1e9)])
def test_several_connections_carry_more_where_one_does_not_fill_the_line_and_only_there(
    line: float, window: float
) -> None:
    size = 0.96 * line
    with World(1, profile="wan", elide=True) as world:
        world.links(delay=DELAY, bandwidth=line, window=window)
        for name in "ab":
            world.cluster(name, workers=1, compute=8.0, elements=int(size / 4))
        world.run_until(lambda: world.version() >= 4, 200.0)
        assert striped(world, "a", "b") == (window == WINDOW)
        assert last_round(world) < 2.2 * size / line, "one connection alone takes three times the line's time"


def test_there_are_more_as_long_as_buffers_are_the_bound_and_until_the_line_is() -> None:
    size = 0.96 * LINE
    with World(1, profile="wan", elide=True) as world:
        world.links(delay=DELAY, bandwidth=LINE, window=WINDOW / 4)
        for name in "ab":
            world.cluster(name, workers=1, compute=8.0, elements=int(size / 4))
        world.run_until(lambda: world.version() >= 2, 200.0)
        assert last_round(world) > 8 * size / LINE, "a probe had no reason to try several"
        world.run_until(lambda: world.version() >= 7, 200.0)
        assert connections(world, "a", "b") == 2 * MOST
        assert last_round(world) < 2.2 * size / LINE


def test_there_are_more_as_long_as_losses_are_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 100 ms a loss in a thousand packets leaves one connection half a megabyte a second."""
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: False)  # no probe tries several
    with World(1, profile="wan", elide=True) as world:
        world.links(delay=DELAY, bandwidth=LINE, loss=1e-3)
        for name in "ab":
            world.cluster(name, workers=1, compute=8.0, elements=2_000_000)
        world.run_until(lambda: world.version() >= 2, 200.0)
        alone = last_round(world)
        world.run_until(lambda: world.version() >= 9, 400.0)
        assert connections(world, "a", "b") == 2 * MOST
        assert last_round(world) < alone / 5


def test_a_comparison_that_a_round_cut_short_is_made_later_and_again_for_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stripes, "lacking", lambda stripes, first: False)  # else the account of buffers does it as well
    with World(1, profile="wan", elide=True) as world:
        world.links(delay=DELAY, bandwidth=LINE, window=WINDOW)
        for name in "ab":
            world.cluster(name, workers=1, compute=1.0, elements=1_500_000)
        world.run_until(lambda: world.version() >= 2, 60.0)
        assert not striped(world, "a", "b"), "a round came first"
        for _ in range(2):
            world.run_until(lambda: striped(world, "a", "b"), 200.0)
            world.inject(ResetConnections("a", "b"))
            world.run_for(1.0)
            assert not striped(world, "a", "b")


@pytest.mark.parametrize("seed", range(3))
def test_whoever_dies_while_chunks_go_over_several_connections_the_sums_stay_exact(seed: int) -> None:
    with World(seed, profile="wan") as world:
        world.links(delay=DELAY, bandwidth=LINE, window=WINDOW, loss=0.001)
        for name in "abc":
            world.cluster(name, workers=2, compute=8.0, elements=1_500_000)
        pairs = list(combinations("abc", 2))
        world.run_until(lambda: any(striped(world, *pair) for pair in pairs), 200.0)
        a, b = next(pair for pair in pairs if striped(world, *pair))
        before = world.version()
        for fault in (ResetConnections(a, b), KillLeader(a)):
            seen = len(world.trace.entries)
            world.run_until(lambda seen=seen: any(e.kind == "round_opened" for e in world.trace.entries[seen:]), 60.0)
            world.run_for(0.5)
            world.inject(fault)
            world.run_for(10.0)
        world.inject(Restart(f"{a}/0"))
        world.run_until(lambda: world.version() >= before + 3, 200.0)
