"""What the measurements over networks and of campaigns compute; the runs themselves need root, and take minutes."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import heterogeneous
import pytest
import streams
import wan

from benchmarks.chaos import summary
from benchmarks.chaos.crowd import Worker
from ictp2p.collectives.planning import planner
from ictp2p.types import PeerId

NAMES = tuple(PeerId(f"{number:032x}") for number in range(8))


@pytest.fixture(scope="module")
def network() -> heterogeneous.Network:
    return heterogeneous.Network()


def test_ways_are_no_longer_than_over_others(network: heterogeneous.Network) -> None:
    delays = network.delays()
    for a in range(8):
        for b in range(8):
            assert delays[a][b] == delays[b][a]
            assert all(delays[a][b] <= delays[a][c] + delays[c][b] for c in range(8))
    assert max(map(max, delays)) <= 40.0, "one way, so round trips of 80 ms at most"


@pytest.mark.parametrize("only", [None, "ring", "star"])
def test_what_a_plan_puts_on_the_lines_is_no_less_than_the_bound_and_no_more_than_its_price(
    network: heterogeneous.Network, only: str | None
) -> None:
    request = network.request(NAMES, 1_000_000, only)
    made = planner.plan(request).plan
    bytes_alone = heterogeneous.fluid(request, made)
    assert made.bound * 0.999 <= bytes_alone <= made.seconds
    assert planner.predict(request, made) == pytest.approx(made.seconds, rel=0.01)


def test_the_slow_line_between_two_is_in_what_is_planned_for(network: heterogeneous.Network) -> None:
    free = replace(network, pairs={})
    star = planner.plan(network.request(NAMES, 1_000_000, "star")).plan
    assert heterogeneous.fluid(network.request(NAMES, 1_000_000), star) >= heterogeneous.fluid(
        free.request(NAMES, 1_000_000), star
    )
    assert network.request(NAMES, 1).links[NAMES[2], NAMES[4]].bandwidth == pytest.approx(5e6 / 8 * wan.PAYLOAD)


def test_measured_links_stand_beside_what_they_are(network: heterogeneous.Network) -> None:
    link = {"from": "c2", "to": "c4", "bandwidth_out": 5e5, "bandwidth_in": 4e5, "round_trip": 0.06}
    (row,) = heterogeneous.compared(network, [link])
    assert (row["from"], row["to"], row["measured"]) == (2, 4, 4.0)
    assert row["line"] == pytest.approx(5.0 * wan.PAYLOAD)
    assert row["way"] == pytest.approx(2 * network.delays()[2][4])


def test_the_slower_end_counts_and_the_first_turn_does_not() -> None:
    assert streams.slower([9.0, 1.0, 2.0, 3.0], [9.0, 4.0, 1.0, 1.0]) == 3.0


def test_lives_are_told_by_thirds() -> None:
    lives = [Worker(f"a/{n}", "a", 0, Path(), 0.0, descriptors=[5, 10 * n]) for n in range(1, 7)]
    assert summary.thirds([*lives, Worker("a/9", "a", 0, Path(), 0.0)], "descriptors") == [15.0, 35.0, 55.0]
    assert summary.across([1, 1, 2, 2, 3, 3]) == [1.0, 2.0, 3.0]
    assert summary.across([900] * 20 + [1] * 20 + [2] * 20 + [3] * 20) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("scene", wan.SCENES, ids=lambda scene: scene.name)
def test_a_line_is_measured_between_two_and_no_more(scene: wan.Scene) -> None:
    """Regression: with three ranks it waited for ten minutes."""
    assert wan.contenders(scene, ["none", wan.LINE]) == (("none", wan.LINE) if len(scene.up) == 2 else ("none",))
    assert wan.contenders(scene, None) == scene.contenders


@pytest.mark.parametrize("script", ["heterogeneous", "joining", "peers", "streams", "wan"])
def test_the_options_are_explained(script: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main()
    assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out
