"""Campaigns draw worlds that are scenario files, and leave what fails to be replayed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.election import Past
from sim import report
from sim.campaign import drawn, drawn_large, main
from sim.command import main as simulate
from sim.scenario_file import read


@given(st.integers(0, 2**32))
def test_every_seed_draws_a_scenario_that_can_be_read(seed: int) -> None:
    assert drawn(seed) == drawn(seed)
    assert read(drawn(seed), "drawn").line == f"Campaign seed {seed}."


@given(st.integers(0, 2**32), st.integers(9, 64))
def test_every_seed_draws_a_large_mesh_in_which_some_die_in_the_end(seed: int, size: int) -> None:
    document = drawn_large(seed, size)
    assert document == drawn_large(seed, size)
    assert read(document, "drawn").line == f"Campaign seed {seed}, {size} clusters."
    (calm,) = (n for n, step in enumerate(document["fault"]) if step["fault"] == "Calm")
    dead = {step["host"] for step in document["fault"][calm + 1 :] if step["fault"] == "Crash"}
    assert len(dead) == len(document["fault"]) - calm - 1 == math.ceil(0.15 * size)


def test_a_large_mesh_has_more_clusters_than_keep_a_connection_to_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["0", "1", "--clusters", "8"])
    assert "--clusters 8 is too few: need more than 8" in capsys.readouterr().err


def test_a_seed_is_tried_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "2", "--left", str(tmp_path)]) == 0
    assert "1 seeds, 0 failed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_seed_that_fails_is_left_to_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: terms are forgotten with the process."""
    monkeypatch.setattr(Past, "decode", classmethod(lambda cls, stored: cls()))
    seed = 0
    while main([str(seed), str(seed + 1), "--left", str(tmp_path)]) == 0:
        seed += 1
    left = tmp_path / f"sim-campaign-{seed}.json"
    assert f"ictp2p sim replay {left}" in capsys.readouterr().out
    assert report.load(left)["ok"] is False
    assert simulate(["replay", str(left), "--quiet", "--exact"]) == 1
    assert "The same course" in capsys.readouterr().out
