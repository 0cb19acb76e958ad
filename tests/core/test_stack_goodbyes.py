"""Who leaves says so, hands over what it led, and says no more."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core import commands
from ictp2p.gossip.messages import Status
from ictp2p.types import ClusterId
from tests.core.control_planes import DELAY, Host, World, mesh


def test_a_cluster_that_leaves_is_told_apart_from_one_that_died() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    leaving = hosts["c"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.run(0.05)
    world.kill(leaving)
    world.run(3.0)
    statuses = [n.status for n in hosts["a"][0].seen if isinstance(n, commands.MemberChanged) and n.member == "c"]
    assert statuses == ["alive", "left"]


def test_a_leader_that_leaves_hands_its_cluster_over() -> None:
    world = World()
    hosts = mesh(world, "a", "b")
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.run(0.05)
    world.kill(leaving)
    world.run(1.0)
    assert hosts["b"][1].core.leading
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.ALIVE
    statuses = [n.status for n in hosts["a"][0].seen if isinstance(n, commands.MemberChanged) and n.member == "b"]
    assert statuses == ["alive"], "a goodbye is no ground for suspicion"
    assert not any(
        isinstance(n, commands.MemberChanged) and n.status == "left" and n.scope == "mesh" for n in hosts["a"][0].seen
    )


def test_a_half_of_a_cluster_that_stays_is_met_whatever_the_other_half_said_for_both() -> None:
    """Regression: its leader was connected, and so greeted nobody anew; who took it for gone answered it no more."""
    world = World()
    hosts = mesh(world, "a", "b")
    (stays, leaver), (other, met) = hosts["a"], hosts["b"]
    for one in (stays, met):
        for apart in (leaver, other):
            world.sever(one, apart)
    world.run(4.0)
    assert leaver.core.leading
    assert met.core.neighbours() == [world.id(stays)]
    world.do(leaver, leaver.core.leave(world.now))
    world.run(0.05)
    world.kill(leaver)
    world.cut -= {frozenset((world.id(other), world.id(met)))}
    world.run(10.0)
    assert commands.MemberChanged("mesh", "a", "left") in met.seen
    assert met.core.neighbours() == [world.id(stays)]
    assert met.core.m.mesh.alive() == stays.core.m.mesh.alive() == ("a", "b")


def test_who_left_for_its_cluster_is_not_taken_for_its_leader_by_what_it_said_before() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving, other = hosts["b"][0], hosts["a"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.run(0.05)
    assert other.core.directory.leader_of(ClusterId("b")) is None


def test_who_has_said_goodbye_does_not_greet_again_because_another_leads_its_cluster() -> None:
    """Regression: so others learned of an heir that had said goodbye as well, and named it for a day."""
    world = World()
    hosts = mesh(world, "a", "b")
    first, heir = hosts["b"]
    world.do(first, first.core.leave(world.now))
    world.run(DELAY * 4 / 3)
    world.do(heir, heir.core.leave(world.now))
    assert heir.core.leading
    world.run(2 * DELAY)
    for host in (first, heir):
        world.kill(host)
    world.run(1.0)
    other = hosts["a"][0].core
    assert other.m.mesh.members["b"].status is Status.LEFT
    assert other.directory.leader_of(ClusterId("b")) is None


def test_an_older_view_does_not_bring_back_a_cluster_that_has_left() -> None:
    """Regression: what it showed was learned again: the leader was named, and its links were ways for plans."""
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    (met,), (leaving,), (late,) = hosts.values()
    for other in (met, leaving):
        world.sever(late, other)
    world.do(leaving, leaving.core.leave(world.now))
    world.run(2 * DELAY)
    world.kill(leaving)
    assert late.core.m.mesh.members["b"].status is not Status.LEFT
    world.cut.clear()
    world.dial(late, met)
    world.run(1.0)
    for host in (met, late):
        assert host.core.m.mesh.members["b"].status is Status.LEFT
        assert host.core.directory.leader_of(ClusterId("b")) is None


def test_who_left_for_its_cluster_does_not_show_it_to_whom_it_still_lets_in() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    (leaving,), (other,) = hosts["b"], hosts["c"]
    world.sever(leaving, other)
    world.do(leaving, leaving.core.leave(world.now))
    world.run(3 * DELAY)
    assert other.core.m.mesh.members["b"].status is Status.LEFT
    world.cut.clear()
    world.dial(other, leaving)
    newcomer = world.add("d", seed=world.id(leaving))
    world.run(2 * DELAY)
    world.kill(leaving)
    world.run(2.0)
    assert newcomer.core.leading
    for host in (other, newcomer):
        assert host.core.directory.leader_of(ClusterId("b")) is None
        assert host.core.neighbours()


@settings(max_examples=20)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=3))
def test_a_cluster_whose_workers_all_leave_at_about_the_same_time_has_left(starts: list[int]) -> None:
    """Regression: each counted on another to stay and be led on, so nobody said goodbye for the cluster: it died."""
    world = World()
    hosts = mesh(world, "a", "b", workers=len(starts))
    leaving, gone = hosts["b"], [10**9] * len(starts)
    for moment in range(60):
        for number, host in enumerate(leaving):
            if moment == starts[number]:
                world.do(host, host.core.resign(world.now))
            elif moment < gone[number] and resigned(host):
                world.do(host, host.core.leave(world.now))
                gone[number] = moment
            elif moment == gone[number] + 6:  # what it said has left before its kernel closes its connections
                world.kill(host)
        world.run(DELAY / 3)
    assert not any(host.alive for host in leaving)
    world.run(5.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.LEFT


def resigned(host: Host) -> bool:
    return any(isinstance(n, commands.Resigned) for n in host.seen)


def test_a_leader_that_resigns_waits_for_its_heir_and_not_for_the_dead() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c")
    old, heir = hosts["b"]
    world.do(old, old.core.resign(world.now))
    assert not resigned(old)
    world.run(5 * DELAY)
    assert resigned(old)
    assert old.core.leader == world.id(heir)
    last, mate = hosts["c"]
    world.do(last, last.core.resign(world.now))
    world.kill(mate)
    assert resigned(last)
    world.do(last, last.core.leave(world.now))
    world.run(0.5)
    assert hosts["a"][0].core.m.mesh.members["c"].status is not Status.LEFT, "its mate may live, cut off from it"


def test_a_leader_that_said_goodbye_says_no_more_while_its_connections_end() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.do(leaving, leaving.core.lost(world.id(hosts["a"][0]), world.now))
    assert not leaving.core.m.mesh.active


def test_a_stack_that_has_left_stays_silent_whatever_still_happens() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.do(leaving, leaving.core.set_training(True, world.now))
    world.do(leaving, leaving.core.readdress("10.0.0.9:1", world.now))
    world.run(1.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.LEFT
