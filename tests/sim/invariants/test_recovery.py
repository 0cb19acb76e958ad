"""Each rule of liveness is seen to be broken, and a world that heals breaks none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ictp2p.config.values import PRESETS
from ictp2p.routing.table import Choice, RouteTable
from sim import Breach, World
from sim.invariants.bounds import Bounds, bounds
from sim.invariants.recovery import Recovery


def test_a_world_that_heals_recovers_and_knows_of_the_next_death(world: World) -> None:
    world.partition(["a"])
    world.run_for(10)
    world.calm()
    recovery = Recovery(world)
    recovery.run()
    assert list(recovery.seconds) == ["E5", "G4", "R9", "R8", "R7", "A7", "A11"]
    recovery.crash(world.hosts["c/0"])
    assert recovery.seconds["G1"] > recovery.seconds["A11"]


SHORT = Bounds(led=5.0, known=8.0, routed=12.0, committed=25.0, complete=35.0, crash=10.0)
"""Deadlines for worlds that miss them anyway."""


def _fails(world: World, rule: str) -> None:
    recovery = Recovery(world)
    recovery._bounds = SHORT
    with pytest.raises(Breach) as raised:
        recovery.run()
    assert raised.value.finding.rule == rule


def test_e5_a_cluster_without_a_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(world.hosts["b/0"].core.m.election), "in_office", property(lambda self: False))
    monkeypatch.setattr(type(world.hosts["b/0"].core), "leading", property(lambda self: False))
    _fails(world, "E5")


def test_g4_views_that_never_become_equal(world: World) -> None:
    world.cut("a", "b")
    world.run_for(20)  # c goes on vouching for both, but their own connection is cut
    world.cut("a", "c")
    world.run_for(20)
    _fails(world, "G4")


def test_r9_a_cluster_that_nobody_reaches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RouteTable.choose

    def blind(self: RouteTable, key: tuple[str, int], now: float) -> Choice | None:
        if key[0] == "c":
            self.chosen.pop(key, None)
            return None
        return real(self, key, now)

    monkeypatch.setattr(RouteTable, "choose", blind)
    world.restart("b/0")
    _fails(world, "R9")


def test_r8_a_route_to_who_is_gone(world: World) -> None:
    choice = world.hosts["a/0"].core.m.routes.table.chosen["b", 0]
    world.hosts["a/0"].core.m.routes.table.chosen["atlantis", 0] = choice
    world.audit = False  # it is no loop and no breach of safety, but let nothing else find it first
    _fails(world, "R8")


def test_r7_a_detour(world: World) -> None:
    world.run_for(3)
    table = world.hosts["a/0"].core.m.routes.table
    table.chosen["c", 0] = table.chosen["c", 0]._replace(metric=10 * table.chosen["c", 0].metric)
    table.choose = lambda key, now: table.chosen.get(key)  # type: ignore[method-assign]
    _fails(world, "R7")


def test_a7_a_mesh_that_does_not_go_on(world: World) -> None:
    world.hosts["a/0"].worker.workload = replace(world.hosts["a/0"].worker.workload, compute=1e6)
    for host in world.hosts.values():
        host.slowness = 1e6
    world.run_for(30)  # what had begun ends
    _fails(world, "A7")


def test_a11_a_cluster_that_is_left_out(world: World) -> None:
    world.hosts["c/0"].slowness = 1e6
    world.run_for(5)
    _fails(world, "A11")


def test_g1_a_death_that_is_not_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    recovery = Recovery(world)
    recovery.run()
    recovery._bounds, recovery._began = SHORT, world.now
    monkeypatch.setattr(type(world.hosts["a/0"].core.m.mesh._table), "overdue", lambda self, now: [])
    with pytest.raises(Breach, match="G1"):
        recovery.crash(world.hosts["c/0"])


@pytest.mark.parametrize("profile", sorted(PRESETS))
def test_bounds_are_made_of_the_profiles(profile: str) -> None:
    with World(1, profile=profile) as world:
        world.cluster("a")
        world.cluster("b")
        mine = bounds(world)
        assert 0 < mine.led < mine.known < mine.complete
        assert mine.led < mine.routed
        assert mine.committed < mine.complete
