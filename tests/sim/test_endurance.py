"""A world that lives on: one seed is one course, and what breaks is told."""

from __future__ import annotations

import pytest

from sim import endurance
from sim.invariants.finding import Breach, Finding
from sim.invariants.recovery import Recovery


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes between the times of chaos instead of hours."""
    monkeypatch.setattr(endurance, "QUIET", 300.0)
    monkeypatch.setattr(endurance, "BROKEN", (10.0, 300.0))


@pytest.mark.usefixtures("hasty")
def test_a_seed_gives_one_course_in_which_the_mesh_becomes_whole_each_time() -> None:
    told: list[str] = []
    first = endurance.endure(3, 0.01, lambda course: told.append(str(course)))
    assert not first.breach
    assert first == endurance.endure(3, 0.01)
    assert first.episodes == len(told) >= 1
    assert first.days >= 0.01
    assert first.version > 2
    assert first.peers >= 6
    assert first.longest["A11"] > 0
    assert told[-1].startswith("seed 3: 0.0")


@pytest.mark.usefixtures("hasty")
def test_what_broke_is_told_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(recovery: Recovery) -> None:
        raise Breach(Finding("A11", 1.0, "nobody came"), "seed 3")

    monkeypatch.setattr(Recovery, "run", broken)
    assert endurance.main(["3", "--days", "0.01"]) == 1
    said = capsys.readouterr().out
    assert "0 times of chaos" in said
    assert "nobody came" in said


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf"])
def test_days_that_cannot_be_are_named(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        endurance.main(["3", f"--days={days}"])
    assert f"--days {float(days):g} is not a number above 0" in capsys.readouterr().err
