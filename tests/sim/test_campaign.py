"""Campaigns draw worlds that are scenario files, and leave what fails to be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.election import Past
from sim import report
from sim.campaign import drawn, main
from sim.command import main as simulate
from sim.scenario_file import read


@given(st.integers(0, 2**32))
def test_every_seed_draws_a_scenario_that_can_be_read(seed: int) -> None:
    assert drawn(seed) == drawn(seed)
    assert read(drawn(seed), "drawn").line == f"Campaign seed {seed}."


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
