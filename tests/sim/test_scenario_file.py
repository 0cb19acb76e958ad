"""The format of scenario files: the documented example runs, and what cannot be is named."""

import copy
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ictp2p.errors import ConfigError
from sim.faults import FAULTS
from sim.scenario import play
from sim.scenario_file import load, read

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
EXAMPLE = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
assert EXAMPLE is not None
DOCUMENT = tomllib.loads(EXAMPLE[1])


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    path = tmp_path / "coasts.toml"
    path.write_text(EXAMPLE[1] if EXAMPLE else "")
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


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("run", "seconds"), -1, "run.seconds = -1 must be above 0"),
        (("run", "seconds"), "long", "run.seconds = 'long' must be a number"),
        (("run", "profile"), "moon", "run.profile = 'moon' must be one of local, lan, wan"),
        (("run", "elements"), 1.5, "run.elements = 1.5 must be a whole number"),
        (("run", "elide"), 1, "run.elide = 1 must be true or false"),
        (("run", "second"), 1, "run.second is not known: use compute, seconds"),
        (("colour",), "red", "colour is not known"),
        (("about",), " ", "about = ' ' must say something"),
        (("run",), 3, "run must be a table, not 3"),
        (("links", "loss"), 1.0, "links.loss = 1.0 must be below 1"),
        (("links", "speed"), 1.0, "links.speed is not known"),
        (("cluster",), [], "cluster is missing"),
        (("cluster",), {"name": "a"}, "cluster = {'name': 'a'} must be a list"),
        (("cluster", 0, "at"), 3.0, "cluster[0] founds the mesh"),
        (("cluster", 1, "workers"), 0, "cluster[1].workers = 0 must be at least 1"),
        (("cluster", 1, "name"), "boston", "cluster[1].name = 'boston' is there already"),
        (("cluster", 1, "name"), "Sea ttle", "cluster[1].name = 'Sea ttle' cannot be"),
        (("cluster", 1, "up"), float("nan"), "cluster[1].up = nan must be a number"),
        (("cluster", 3, "at"), 3.0, "cluster[3].at = 3.0 and waits cannot both be"),
        (("link", 0, "a"), "atlantis", "link[0].a = 'atlantis' names 'atlantis', which is no cluster"),
        (("link", 0, "delay"), -1, "link[0].delay = -1 must be at least 0"),
        (("trunk", 0, "bandwidth"), 0, "trunk[0].bandwidth = 0 must be above 0"),
        (("trunk", 0, "pairs"), [], "trunk[0].pairs = [] must name who shares the trunk"),
        (("trunk", 0, "pairs"), [["boston"]], "has ['boston'], which is no pair"),
        (("fault", 0, "fault"), "Meteor", "fault[0]: fault 'Meteor' is not known"),
        (("fault", 0, "side"), ["atlantis"], "fault Partition at 20 s: side = 'atlantis' is not there"),
        (("fault", 0, "side"), ["boston/2"], "fault Partition at 20 s: side = 'boston/2' is not there"),
        (("fault", 0, "at"), -1, "fault[0]: fault Partition: at = -1 must be at least 0"),
        (("fault", 0, "side"), [], "fault[0]: Partition.side = [] must be a list of names"),
        (("run", "seconds"), math.inf, "run.seconds = inf must be finite"),
        (("run", "compute"), 10**400, "must be finite"),
        (("run", "elements"), 10**400, "must be at most"),
        (("cluster", 1, "workers"), 10**9, "cluster[1].workers = 1000000000 must be at most 1000"),
        (("expect", "within"), math.inf, "expect.within = inf must be finite"),
        (
            ("fault", 1),
            {"at": 40, "fault": "Loss", "a": "boston/0", "b": "*", "probability": 0.1},
            "fault Loss at 40 s: a = 'boston/0' is not there",
        ),
        (("fault", 2, "cluster"), "*", "fault Join at 55 s: cluster = '*' is not there"),
        (("expect", "participants"), ["atlantis"], "expect.participants = ['atlantis'] names 'atlantis'"),
        (("expect", "participants"), "boston", "expect.participants = 'boston' must be a list of texts"),
    ],
)
def test_what_cannot_be_is_named(place: tuple[str | int, ...], value: object, message: str) -> None:
    document: Any = copy.deepcopy(DOCUMENT)
    at = document
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(document, "wrong")


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


def test_a_cluster_that_would_never_come_is_refused() -> None:
    document = {"cluster": [{"name": "a"}, {"name": "b", "waits": True}]}
    with pytest.raises(ConfigError, match="cluster 'b' waits for a Join fault, and there is none that names it"):
        read(document, "idle")


def test_a_required_value_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=re.escape("cluster[0].name is missing")):
        read({"cluster": [{}]}, "wrong")


@pytest.mark.parametrize(("name", "text"), [("x.toml", "about = "), ("x.json", "{"), ("x.toml", "[run]\nseconds = -1")])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"scenario file {tmp_path / name}: ")):
        load(tmp_path / name)
