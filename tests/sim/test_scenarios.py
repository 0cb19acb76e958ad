"""Every shipped scenario once, small; what one of them sees must also be able to be missing."""

from typing import Any

import pytest

from sim.faults import Crash
from sim.mesh import built
from sim.scenario import Scenario, found, play, shipped
from sim.scenarios import SCENARIOS
from sim.scenarios.follower_dies import Settings
from sim.stage import Stage

QUICK = {"megabytes": 0.2, "compute": 4}
SMALL: dict[str, dict[str, Any]] = {
    "follower_dies": {**QUICK, "clusters": 3, "rounds": 1},
    "leader_dies": {"compute": 4, "clusters": 4, "rounds": 1, "megabytes": 1},
    "cluster_joins": {**QUICK, "clusters": 4, "rounds": 2},
    "bandwidth_changes": {"rounds": 4},
    "partition_and_heal": {**QUICK, "clusters": 5, "minority": 2, "rounds": 1},
    "asymmetric_partition": {**QUICK, "clusters": 3, "rounds": 1},
    "flapping_link": {**QUICK, "clusters": 3, "times": 2},
    "nat_relay": {},
    "rolling_restart": {**QUICK, "clusters": 3, "workers": 1, "pause": 12},
    "heterogeneous_wan": {**QUICK, "clusters": 4, "rounds": 3},
    "large_mesh": {"clusters": 16, "quiet": 5},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_must_be_seen_is_seen(name: str) -> None:
    with play(shipped(name), 1, SMALL[name]) as stage:
        assert stage.breach is None
        assert [check for check in stage.checks if not check.ok] == []
        assert stage.ok
        assert len(stage.snapshots) >= 2


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_explains_itself(name: str) -> None:
    scenario = shipped(name)
    assert scenario.line.endswith(".")
    assert "must be seen" in " ".join(scenario.help.split())


def test_one_seed_gives_one_course() -> None:
    digests = []
    for seed in (5, 5, 6):
        with play(shipped("follower_dies"), seed, SMALL["follower_dies"]) as stage:
            digests.append(stage.world.trace.digest())
    assert digests[0] == digests[1] != digests[2]


def test_who_looks_on_changes_nothing() -> None:
    lines: list[str] = []
    with play(shipped("follower_dies"), 5, SMALL["follower_dies"], told=lambda _, text: lines.append(text)) as stage:
        watched = stage.world.trace.digest()
    with play(shipped("follower_dies"), 5, SMALL["follower_dies"]) as stage:
        assert stage.world.trace.digest() == watched
    assert any("Crash host=" in line for line in lines)
    assert "" in lines


def test_a_scenario_whose_cluster_dies_entirely_fails() -> None:
    def everybody_dies(stage: Stage, settings: Settings) -> None:
        world = built(stage, settings)
        for host in world.every_host():
            stage.fault(Crash(host.name))
        stage.await_commits(1, within=20)

    scenario = Scenario("doomed", "It cannot end well.", Settings, everybody_dies)
    with play(scenario, 1, {**QUICK, "clusters": 2}) as stage:
        assert not stage.ok
        assert stage.breach is not None
        assert "1 more committed rounds did not come true within 20 s" in stage.breach
        assert '"fault": "Crash"' in stage.breach


def test_waiting_for_rounds_with_somebody_needs_them_in_it() -> None:
    def waits(stage: Stage, settings: Settings) -> None:
        built(stage, settings)
        stage.await_commits(1, within=30)
        stage.await_commits(1, within=30, having=("atlantis",))

    with play(Scenario("waits", "It waits.", Settings, waits), 1, {**QUICK, "clusters": 2}) as stage:
        assert len(stage.committed()) >= 1
        assert "1 more committed rounds with atlantis did not come true" in str(stage.breach)


def test_a_check_that_is_not_met_fails_the_scenario_and_does_not_stop_it() -> None:
    def hopes(stage: Stage, settings: Settings) -> None:
        stage.open(profile="local").cluster("a", workers=1)
        stage.check("pigs fly", False, seen=0, wanted=1)
        stage.world.run_for(1.0)

    with play(Scenario("hope", "It hopes.", Settings, hopes), 1, {}) as stage:
        assert not stage.ok
        assert stage.breach is None
        assert stage.world.now == pytest.approx(1.0)


def test_a_scenario_that_checks_nothing_has_shown_nothing() -> None:
    def idle(stage: Stage, settings: Settings) -> None:
        stage.open(profile="local")

    with play(Scenario("idle", "It does nothing.", Settings, idle), 1, {}) as stage:
        assert not stage.ok


def test_a_name_with_a_suffix_is_a_file_and_any_other_a_scenario() -> None:
    assert found("leader_dies").name == "leader_dies"
    with pytest.raises(ValueError, match=r"scenario file nowhere\.toml cannot be read: No such file"):
        found("nowhere.toml")
