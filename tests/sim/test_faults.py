"""Faults go to plain data and back, and do in a world what they say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import PeerFailed
from sim import FaultPlan, World
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
    Leave,
    LinkFlap,
    Pause,
    Restart,
    Resume,
    SlowNode,
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


def test_a_fault_of_several_steps_is_in_the_plan_once() -> None:
    with _two() as world:
        faults = [LinkFlap("a", "b", times=2, down=0.1, up=0.1), SwizzleClog(("a/0", "b/0"), step=0.1, hold=0.1)]
        for fault in faults:
            world.inject(fault)
        world.run_for(1.0)
        assert [fault for _, fault in world.plan()] == faults
        assert sum(entry.kind == "fault" for entry in world.trace.entries) == 2 + 4 + 4, "its steps are in the trace"
