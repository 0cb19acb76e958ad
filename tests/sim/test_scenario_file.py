"""A scenario file is played: the documented example runs, and what was expected and is not there fails the run."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from ictp2p.errors import ConfigError
from sim.faults import FAULTS
from sim.scenario import play
from sim.scenario_file import load, read
from tests.sim.documented import DOCUMENT, EXAMPLE, PAGE


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    path = tmp_path / "coasts.toml"
    path.write_text(EXAMPLE)
    scenario = load(path)
    assert scenario.name == "coasts"
    assert scenario.line == "Two coasts and an island, whose cable breaks for half a minute."
    with play(scenario, 1, {}) as stage:
        assert stage.breach is None
        assert [check for check in stage.checks if not check.ok] == []
        assert stage.ok
        assert [type(fault).__name__ for _, fault in stage.world.history] == ["Partition", "Heal", "Join"]
        assert [shot.label for shot in stage.snapshots] == ["before the first fault", "at the end"]


def test_every_fault_is_documented() -> None:
    for name in FAULTS:
        assert f"\n| {name} |" in PAGE


def test_links_may_be_to_everybody_or_inside_and_what_comes_later_adds_to_what_was_said() -> None:
    document = {
        "run": {"seconds": 1, "profile": "local"},
        "links": {"delay": 0.03},
        "cluster": [{"name": "a", "workers": 1}, {"name": "b", "workers": 1}, {"name": "c", "workers": 1}],
        "link": [
            {"a": "a", "b": "*", "delay": 0.04},
            {"a": "b", "b": "a", "bandwidth": 1e6, "one_way": True},
            {"a": "c", "b": "c", "delay": 0.002},
        ],
    }
    with play(read(document, "links"), 1, {}) as stage:
        link = stage.world.topology.link
        assert [link(*pair).delay for pair in ("ab", "ba", "ac", "ca", "bc")] == [0.04, 0.04, 0.04, 0.04, 0.03]
        assert [link(*pair).bandwidth for pair in ("ab", "ba")] == [math.inf, 1e6]
        assert [link(*pair).delay for pair in ("aa", "cc")] == [1e-4, 0.002]
        assert [link(*pair).bandwidth for pair in ("aa", "cc")] == [1.25e9, 1.25e9]


def test_json_does_as_well(tmp_path: Path) -> None:
    path = tmp_path / "coasts.json"
    path.write_text(json.dumps(DOCUMENT))
    assert load(path).document == DOCUMENT


def test_settings_override_the_file_and_missed_expectations_fail() -> None:
    document = {"cluster": [{"name": "a", "workers": 1}], "expect": {"version": 1000, "within": 5}}
    with play(read(document, "alone"), 1, {"seconds": "7", "profile": "local", "compute": "1"}) as stage:
        assert stage.world.now < 20
        assert stage.world.version() > 2
        assert not stage.ok
        assert [check.what for check in stage.checks if not check.ok] == ["version of the state"]


def test_who_never_gets_in_is_named_and_the_run_fails() -> None:
    """Regression: the workers that had a state were equal, so all was well though a whole cluster stayed outside."""
    document = {
        "run": {"seconds": 10, "profile": "local", "compute": 1},
        "cluster": [{"name": "a", "workers": 1}, {"name": "b", "workers": 1}, {"name": "c", "workers": 1}],
        "fault": [{"at": 0, "fault": "Cut", "a": "c", "b": "*"}],
        "expect": {"within": 5},
    }
    with play(read(document, "outside"), 1, {}) as stage:
        assert not stage.ok
        assert "c/0 never got in" in str(stage.breach)


def test_without_training_everybody_must_know_everybody() -> None:
    document = {"run": {"seconds": 5, "profile": "local"}, "cluster": [{"name": n, "train": False} for n in ("a", "b")]}
    with play(read(document, "control"), 1, {}) as stage:
        assert stage.ok
        assert [check.what for check in stage.checks] == ["everybody knows everybody"]


LATE = [
    ({"fault": [{"at": 30, "fault": "Crash", "host": "b/0"}]}, "fault Crash at 30 s is after the run's end at 20 s"),
    ({"cluster": [{"name": "a"}, {"name": "b", "at": 30}]}, "cluster b comes at 30 s, which is after the run's end at"),
]


@pytest.mark.parametrize(("changes", "message"), LATE)
def test_what_is_to_happen_after_the_end_is_refused_before_anything_runs(changes: Any, message: str) -> None:
    """Regression: it did not happen, and nobody was told: the run ended well."""
    document = {"run": {"seconds": 20, "profile": "local"}, "cluster": [{"name": "a"}, {"name": "b"}], **changes}
    with pytest.raises(ConfigError, match=re.escape(message)):
        play(read(document, "late"), 1, {})
    with play(read(document, "late"), 1, {"seconds": "40", "compute": "1"}) as stage:
        assert stage.ok, "the end may be moved"
    with pytest.raises(ConfigError, match="after the run's end at 25 s"):
        play(read(document, "late"), 1, {"seconds": "25"})


@pytest.mark.parametrize(("name", "text"), [("x.toml", "about = "), ("x.json", "{"), ("x.toml", "[run]\nseconds = -1")])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"scenario file {tmp_path / name}: ")):
        load(tmp_path / name)
