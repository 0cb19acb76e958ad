"""Faults go to plain data and back, and do in a world what they say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, PeerFailed
from sim import FaultPlan, World, scenario_file
from sim.chance import Chance
from sim.chaos import chaos
from sim.faults import (
    FAULTS,
    Calm,
    ClockSkew,
    Crash,
    CrashOnSave,
    Cut,
    DiskFull,
    Heal,
    Join,
    Leave,
    LinkFlap,
    Pause,
    Restart,
    Resume,
    SlowNode,
    Swallow,
    SwizzleClog,
)
from sim.plan import from_dict, to_dict


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32))
def test_a_plan_survives_json(seed: int) -> None:
    plan = chaos(Chance(seed), ["a", "b", "c"], ["a/0", "a/1", "b/0", "c/0"], seconds=60)
    assert FaultPlan.from_json(plan.to_json()) == plan
    assert chaos(Chance(seed), ["a", "b", "c"], ["a/0", "a/1", "b/0", "c/0"], seconds=60) == plan


@pytest.mark.parametrize(
    "data",
    [
        {"fault": "Nonsense"},
        {"fault": "Crash"},
        {"fault": "Crash", "host": "a/0", "disk": "melted"},
        {"fault": "Crash", "host": 7},
        {"fault": "Crash", "host": "a/0", "colour": "red"},
        {"fault": "Loss", "a": "a", "b": "b", "probability": "much"},
    ],
)
def test_what_is_no_fault_is_refused_by_name(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"Nonsense|Crash|Loss"):
        from_dict(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"fault": "Crash"}, "fault Crash lacks host: it has host, disk, power"),
        ({"fault": "Loss", "b": "b"}, "fault Loss lacks a, probability: it has a, b, probability, one_way"),
    ],
)
def test_what_a_fault_lacks_is_named_by_its_fields(data: dict[str, Any], message: str) -> None:
    """Regression: Python's own words were passed on, of an `__init__` and its positional arguments."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_dict(data)


HUGE = 10**400
"""A whole number that no float can hold."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"fault": "SetBandwidth", "a": "a", "b": "up", "bandwidth": -1},
            "SetBandwidth.bandwidth = -1 must be above 0",
        ),
        ({"fault": "SetBandwidth", "a": "a", "b": "b", "bandwidth": math.nan}, "bandwidth = nan must be a number"),
        ({"fault": "SetDelay", "a": "a", "b": "b", "delay": math.inf}, "SetDelay.delay = inf must be finite"),
        ({"fault": "SetDelay", "a": "a", "b": "b", "delay": HUGE}, "must be finite"),
        ({"fault": "SetDelay", "a": "a", "b": "b", "delay": True}, "SetDelay.delay = True must be a number"),
        ({"fault": "SetDelay", "a": "a", "b": "b", "delay": 0, "jitter": -3.0}, "SetDelay.jitter = -3.0 must be at"),
        ({"fault": "Loss", "a": "a", "b": "b", "probability": 1.0}, "Loss.probability = 1.0 must be below 1"),
        ({"fault": "Corrupt", "a": "a", "b": "b", "probability": 2}, "Corrupt.probability = 2 must be below 1"),
        ({"fault": "ClockSkew", "host": "a/0", "rate": 0}, "ClockSkew.rate = 0 must be at least 0.01"),
        ({"fault": "ClockSkew", "host": "a/0", "rate": math.nan}, "ClockSkew.rate = nan must be a number"),
        ({"fault": "ClockSkew", "host": "a/0", "offset": 1e7}, "ClockSkew.offset = 10000000.0 must be at most"),
        ({"fault": "SlowNode", "host": "a/0", "cost": -1}, "SlowNode.cost = -1 must be at least 0"),
        ({"fault": "SlowNode", "host": "a/0", "factor": 0}, "SlowNode.factor = 0 must be above 0"),
        ({"fault": "CrashOnSave", "host": "a/0", "nth": 0}, "CrashOnSave.nth = 0 must be at least 1"),
        ({"fault": "DiskFull", "host": "a/0", "nth": -4}, "DiskFull.nth = -4 must be at least 1"),
        ({"fault": "LinkFlap", "a": "a", "b": "b", "times": -3}, "LinkFlap.times = -3 must be at least 1"),
        ({"fault": "LinkFlap", "a": "a", "b": "b", "times": HUGE}, "must be at most 100000"),
        ({"fault": "LinkFlap", "a": "a", "b": "b", "down": -3.0}, "LinkFlap.down = -3.0 must be at least 0"),
        ({"fault": "SwizzleClog", "hosts": ["a/0"], "hold": -1}, "SwizzleClog.hold = -1 must be at least 0"),
        ({"fault": "SwizzleClog", "hosts": []}, "SwizzleClog.hosts = [] must be a list of names, one at least"),
        ({"fault": "Partition", "side": []}, "Partition.side = [] must be a list of names, one at least"),
        ({"fault": "Join", "cluster": "a", "workers": 0}, "Join.workers = 0 must be at least 1"),
        ({"fault": "Cut", "a": "a", "b": "b", "how": "frob"}, "Cut.how = 'frob' must be one of blackhole, reset"),
    ],
)
def test_a_value_that_cannot_be_is_named_whichever_way_it_comes(data: dict[str, Any], message: str) -> None:
    """Regression: it was an error in the middle of the run, or no error at all."""
    steps = [{"at": 1, **data}]
    for read in (
        lambda: from_dict(data),
        lambda: FAULTS[data["fault"]](**{key: value for key, value in data.items() if key != "fault"}),
        lambda: FaultPlan.from_list(steps),
        lambda: FaultPlan.from_json(json.dumps(steps)),
        lambda: scenario_file.read({"cluster": [{"name": "a"}, {"name": "b"}], "fault": steps}, "wrong"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            read()


@pytest.mark.parametrize("at", [math.nan, math.inf, -1, HUGE, True, "soon", None])
def test_a_time_that_cannot_be_is_named(at: Any) -> None:
    with pytest.raises(ConfigError, match=r"Calm: at = "):
        FaultPlan.from_list([{"fault": "Calm", "at": at}])
    with World(1) as world, pytest.raises(ConfigError, match=r"Calm: at = "):
        world.after(at, Calm())


@pytest.mark.parametrize("text", ["{", "3", "{}", "[3]", '[{"fault": "Calm"}]'])
def test_what_is_no_plan_is_a_typed_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"plan|fault"):
        FaultPlan.from_json(text)


def _numbers() -> list[tuple[str, str]]:
    """Every number of every fault."""
    return [(name, item.name) for name, kind in FAULTS.items() for item in fields(kind) if "limits" in item.metadata]


@given(st.sampled_from(_numbers()), st.one_of(st.floats(), st.integers(), st.just(HUGE), st.just(-HUGE)))
def test_every_number_of_a_fault_has_limits_and_keeps_within_them(place: tuple[str, str], value: float) -> None:
    name, key = place
    kind = FAULTS[name]
    given = {item.name: ("a",) if "tuple" in str(item.type) else "a" for item in fields(kind) if item.type != "float"}
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    numbers = {item.name: 0.5 for item in fields(kind) if item.type == "float"}
    values = {key_: one for key_, one in {**given, **numbers}.items() if key_ in needed} | {key: value}
    try:
        fault = kind(**values)
    except ConfigError as error:
        assert str(error).startswith(f"{name}.{key} = {value!r} must be ")  # noqa: PT017 -- it may also be right
    else:
        assert FaultPlan.from_json(FaultPlan.of([(1.0, fault)]).to_json()).steps == ((1.0, fault),)
        assert getattr(fault, key) >= 0


def test_what_is_between_clusters_is_refused_where_one_is_not_there_and_changes_nothing() -> None:
    """Regression: a link to a cluster that was misspelt was made, and carried nothing."""
    with World(1) as world:
        world.cluster("a", workers=1)
        world.cluster("b", workers=1)
        for verb in (
            lambda: world.link("a", "bb", delay=0.5),
            lambda: world.link("bb", "*", delay=0.5),
            lambda: world.link("bb", "bb", delay=0.5),
            lambda: world.inject(Swallow("a", "bb")),
            lambda: world.access("bb", up=5.0),
            lambda: world.trunk("t", [("a", "b"), ("bb", "a")], 1e6),
            lambda: world.host("bb"),
        ):
            with pytest.raises(ConfigError, match=r"'bb' is no cluster: use one of a, b$"):
                verb()
        with pytest.raises(ConfigError, match="'a' is there already"):
            world.cluster("a")
        with pytest.raises(ConfigError, match="cluster name 'A' is not valid"):
            world.cluster("A")
        assert world.topology.every_link() == [world.topology.link("a", "a"), world.topology.link("b", "b")]
        assert world.topology.trunk_bandwidth == {}


def test_every_number_of_a_fault_says_what_it_may_be() -> None:
    numbers = [(name, item.name) for name, kind in FAULTS.items() for item in fields(kind) if item.type in _NUMBERS]
    assert numbers == _numbers()


_NUMBERS = ("int", "float")


def test_a_verb_refuses_what_its_fault_refuses_and_changes_nothing() -> None:
    with World(1) as world:
        world.cluster("a", workers=1, up=1e6)
        world.cluster("b", workers=1)
        for verb in (
            lambda: world.link("a", "b", delay=0.5, corrupt=1.0),
            lambda: world.links(bandwidth=-1.0),
            lambda: world.access("a", down=0.0, up=5.0),
            lambda: world.trunk("t", [("a", "b")], math.nan),
            lambda: world.skew("a/0", offset=1.0, rate=0.0),
            lambda: world.slow("a/0", cost=1.0, factor=-1.0),
            lambda: world.crash_on_save("a/0", 0),
            lambda: world.fill_disk("a/0", 0),
            lambda: world.join("a", workers=0),
            lambda: world.cluster("c", up=-1.0),
        ):
            with pytest.raises(ConfigError, match="must be"):
                verb()
        assert world.topology.link("a", "b").delay == world.topology.default.delay
        assert world.topology.sites["a"].up == 1e6
        assert world.topology.trunk_bandwidth == {}
        assert world.hosts["a/0"].skew == (0.0, 1.0)


def test_every_fault_is_listed_under_its_name() -> None:
    for name, kind in FAULTS.items():
        assert kind.__name__ == name
    assert from_dict(to_dict(Cut("a", "b", one_way=True))) == Cut("a", "b", one_way=True)


def test_a_draw_does_not_depend_on_other_questions() -> None:
    one, other = Chance(5), Chance(5)
    other.uniform("something", "else")
    assert one.uniform("loss", "a", "b") == other.uniform("loss", "a", "b")


def _two(seed: int = 1) -> World:
    world = World(seed)
    for name in "ab":
        world.cluster(name, workers=1)
    world.run_until(world.settled, within=30)
    return world


def test_a_short_pause_kills_nobody_and_a_cut_is_noticed_and_heals() -> None:
    with _two() as world:
        world.inject(Pause("b/0"))
        world.after(0.4, Resume("b/0"))
        world.run_for(3)
        assert world.members("a/0")["b"] == "ALIVE"
        world.inject(Cut("a", "b"))
        world.run_until(lambda: world.members("a/0")["b"] == "DEAD", within=30)
        world.inject(Heal())
        world.run_until(world.believes_all, within=30)


@pytest.mark.parametrize("written", [False, True])
def test_a_crash_while_saving_keeps_or_loses_exactly_that_value(written: bool) -> None:
    with _two() as world:
        host = world.hosts["b/0"]
        before, saves = dict(host.disk.values), host.disk.saves
        world.inject(CrashOnSave("b/0", written=written))
        world.run_until(lambda: not host.alive, within=30)
        assert host.disk.saves == saves + written
        assert (host.disk.values == before) is not written


def test_a_peer_whose_disk_is_full_stops_by_itself_and_is_back_when_it_starts_again() -> None:
    with _two() as world:
        host = world.hosts["b/0"]
        before, peer = dict(host.disk.values), host.peer
        assert peer is not None
        world.inject(DiskFull("b/0"))
        world.run_until(lambda: not host.alive, within=30)
        assert host.disk.values == before
        assert isinstance(peer.failure, PeerFailed)
        assert "No space left" in str(peer.failure)
        world.inject(Restart("b/0"))
        version = world.version()
        world.run_until(lambda: world.version() >= version + 3, within=60)
        assert set(world.commits()[-1].participants) == {"a", "b"}


def test_what_is_decided_by_a_vote_that_the_disk_did_not_take_is_not_trained_on() -> None:
    """Regression: its only voter's worker took up a state that was decided in memory alone, by the vote that failed."""
    with World(0, profile="lan") as world:
        world.cluster("a", workers=1, compute=1.0)
        world.run_for(2.5)
        host = world.hosts["a/0"]
        peer = host.peer
        assert peer is not None
        before = peer.agreed_state
        world.inject(DiskFull("a/0", nth=2))
        world.run_until(lambda: not host.alive, within=30)
        assert isinstance(peer.failure, PeerFailed)
        assert peer.agreed_state == before
        assert not list(world.trace.of("applied"))


def test_skewed_and_slow_hosts_take_part_all_the_same() -> None:
    with _two() as world:
        world.inject(ClockSkew("a/0", offset=1000.0, rate=1.05))
        world.inject(SlowNode("b/0", cost=0.002, factor=2.0))
        version = world.version()
        world.run_until(lambda: world.version() >= version + 3, within=60)
        assert set(world.commits()[-1].participants) == {"a", "b"}


def test_who_leaves_is_not_taken_for_dead() -> None:
    with _two() as world:
        world.inject(Leave("b"))
        world.run_until(lambda: world.members("a/0").get("b") == "LEFT", within=10)
        version = world.version()
        world.run_until(lambda: world.version() > version, within=30)


def test_who_is_killed_in_the_middle_of_leaving_has_not_left() -> None:
    """Regression: it stayed away when calm came, and its disk was needed for a quorum."""
    with _two() as world:
        for fault in (Leave("b/0"), Crash("b/0"), Calm()):
            world.inject(fault)
        world.run_until(lambda: world.hosts["b/0"].lives == 2, within=1)


def test_who_has_come_early_and_left_does_not_come_when_it_was_to() -> None:
    """Regression: it ran, and whoever saw that it was there was taken to be wrong (campaign seed 393)."""
    with _two() as world:
        world.cluster("c", workers=1, at=20.0)
        world.inject(Join("c"))
        world.run_until(lambda: world.members("a/0").get("c") == "ALIVE", within=10)
        world.inject(Leave("c"))
        world.run_for(40.0)
        assert (world.hosts["c/0"].alive, world.hosts["c/0"].lives) == (False, 1)


def test_a_fault_of_several_steps_is_in_the_plan_once() -> None:
    with _two() as world:
        faults = [LinkFlap("a", "b", times=2, down=0.1, up=0.1), SwizzleClog(("a/0", "b/0"), step=0.1, hold=0.1)]
        for fault in faults:
            world.inject(fault)
        world.run_for(1.0)
        assert [fault for _, fault in world.plan()] == faults
        assert sum(entry.kind == "fault" for entry in world.trace.entries) == 2 + 4 + 4, "its steps are in the trace"
