"""Two workers of one cluster that cannot dial each other: both lead it, and people are told why."""

from __future__ import annotations

import pytest

from ictp2p.core import unmet
from ictp2p.core.commands import MateUnmet
from tests.core.control_planes import Host, World, mesh

PATIENCE = unmet._PATIENCE


def told(host: Host) -> list[str]:
    """Whom people were told of as not met."""
    return [notice.mate for notice in host.seen if isinstance(notice, MateUnmet)]


def apart(world: World, seeds: tuple[Host, Host]) -> tuple[Host, Host]:
    """Two workers of one cluster that never meet, and the peers that they come in over."""
    one = world.add("split", seed=world.id(seeds[0]))
    world.run(2.0)
    other = world.add("split", seed=world.id(seeds[1]))
    world.sever(one, other)
    return one, other


def test_both_are_told_of_each_other_where_a_third_peer_has_introduced_them() -> None:
    """Regression: the one whom the mesh does not hear was told of a lost quorum, and of nothing else."""
    world = World()
    (founder,) = mesh(world, "a", workers=1)["a"]
    one, other = apart(world, (founder, founder))
    world.run(PATIENCE - 1.0)
    assert one.core.leading
    assert other.core.leading
    assert not told(one)
    assert not told(other)
    world.run(2.0)
    assert told(one) == [world.id(other)]
    assert told(other) == [world.id(one)]
    world.run(10 * PATIENCE)
    assert len(told(one) + told(other)) == 2, "once is enough"


def test_a_newcomer_is_told_of_the_leader_that_the_mesh_has_wherever_it_comes_in() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    one, other = apart(world, (hosts["a"][0], hosts["b"][0]))
    assert one.core.leading
    world.run(PATIENCE + 1.0)
    assert told(other) == [world.id(one)]


@pytest.mark.parametrize("goes", [False, True])
def test_of_whom_it_has_met_nobody_is_told_whatever_becomes_of_it(goes: bool) -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=3)
    if goes:
        world.kill(hosts["b"][0])
    world.run(2 * PATIENCE)
    assert not any(told(host) for group in hosts.values() for host in group)


def test_who_cannot_dial_a_worker_but_hears_of_it_from_another_one_is_not_told() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=2)
    late = world.add("b", seed=world.id(hosts["a"][0]))
    world.sever(late, hosts["b"][1])
    world.run(2 * PATIENCE)
    assert late.core.leader == world.id(hosts["b"][0])
    assert not any(told(host) for host in (late, *hosts["b"]))
