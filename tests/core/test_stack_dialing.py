"""Which of the dead are dialed, for how long, and where."""

from __future__ import annotations

import pytest

from ictp2p.core import commands, forgetting
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, Introduction, Packet, encode_packet
from ictp2p.machine import Message
from ictp2p.types import PeerId
from tests.core.control_planes import FORGET, Host, World, mesh


def dials_of(world: World, host: Host, seconds: float) -> set[PeerId]:
    """Whom one host dials within that time."""
    world.dialed.clear()
    world.run(seconds)
    return {peer for me, peer in world.dialed if me == world.id(host)}


def tell(world: World, host: Host, sender: Host, message: Message) -> None:
    """Have a host hear something from another that it is connected to."""
    me, card = world.id(host), sender.core.card
    packet = Packet(card.peer, card.cluster, me, 16, Channel.HELLO, CODECS[Channel.HELLO].encode(message))
    world.do(host, host.core.receive(card.peer, encode_packet(packet), world.now))


def test_a_dead_mate_is_dialed_far_longer_than_membership_remembers_the_dead_but_not_for_ever() -> None:
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", workers=3)
    survivor, victim = hosts["b"][0], hosts["b"][-1]
    world.kill(victim)
    world.run(5.0)
    assert world.id(victim) in dials_of(world, survivor, 60.0)
    world.run(24 * FORGET + 120.0)
    assert world.id(victim) not in dials_of(world, survivor, 60.0)
    for host in (*hosts["a"], *hosts["b"][:-1]):
        assert world.id(victim) not in host.core.directory.peers
        assert {world.id(h) for h in (*hosts["a"], *hosts["b"][:-1])} == set(host.core.directory.peers)


def test_whose_vote_is_missing_is_known_and_dialed_for_as_long_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two voters of one cluster the first is gone: nothing is decided, and so nobody takes its place."""
    monkeypatch.setattr(forgetting, "_FORMER", 0)
    world = World(forget_after=FORGET)
    (first, second), *_ = mesh(world, "a").values()
    world.run(5.0)
    assert first.core.m.rounds.tip is not None
    assert first.core.m.rounds.tip[1].voters == (world.id(first), world.id(second))
    world.kill(first)
    world.run(30 * FORGET)
    assert second.core.directory.in_words(world.id(first)) == f"{world.id(first)} of a at {first.address}"
    assert dials_of(world, second, 60.0) == {world.id(first)}


def test_of_many_dead_mates_only_the_last_are_dialed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: workers without a disk that are started anew for a day are thousands, and all of them were dialed."""
    monkeypatch.setattr(forgetting, "_FORMER", 1)
    world = World()
    hosts = mesh(world, "a", "b", workers=4)
    survivor, *_, last, first = hosts["b"]
    for victim in (first, last):
        world.kill(victim)
        world.run(100.0)
    assert dials_of(world, survivor, 60.0) == {world.id(last)}
    assert world.id(last) not in dials_of(world, hosts["a"][0], 60.0), "they are their mates' business"


def test_dead_clusters_are_not_dialed_for_ever_by_those_who_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each job of a scheduler may be a cluster of its own, and all that ever died were dialed."""
    monkeypatch.setattr(forgetting, "_LAST", 1)
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", "c", "d", workers=1)
    a, b, first, last = (hosts[name][0] for name in "abcd")
    for victim in (first, last):
        world.kill(victim)
        world.run(100.0)
    assert world.id(first) in dials_of(world, a, 60.0)
    world.run(50 * FORGET + 200.0)
    for host in (a, b):
        dialed = dials_of(world, host, 60.0)
        assert world.id(first) not in dialed
        assert world.id(last) in dialed
        assert set(host.core.directory.clusters) == {"a", "b", "d"}
        assert set(host.core.directory.peers) == {world.id(a), world.id(b), world.id(last)}


def test_who_is_cut_off_from_the_mesh_keeps_in_mind_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "_LAST", 0)
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", "c", workers=1)
    a, b, lone = (hosts[name][0] for name in "abc")
    for other in (a, b):
        world.sever(lone, other)
    world.run(60 * FORGET)
    assert set(a.core.directory.clusters) == {"a", "b"}
    assert set(lone.core.directory.clusters) == {"a", "b", "c"}
    world.cut.clear()
    world.run(30.0)
    assert set(a.core.m.mesh.alive()) | {"a"} == {"a", "b", "c"} == set(lone.core.m.mesh.alive()) | {"c"}


def test_a_mate_that_said_goodbye_long_ago_is_not_kept_in_mind() -> None:
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", workers=3)
    survivor, leaver = hosts["b"][0], hosts["b"][-1]
    world.do(leaver, leaver.core.leave(world.now))
    world.run(1.0)
    assert commands.MemberChanged("members", world.id(leaver), "left") in survivor.seen
    world.kill(leaver)
    world.run(24 * FORGET + 120.0)
    assert world.id(leaver) not in dials_of(world, survivor, 60.0)
    tell(world, survivor, hosts["a"][0], Introduction((leaver.core.card,)))
    assert world.id(leaver) in dials_of(world, survivor, 60.0), "the goodbye is forgotten too"


@pytest.mark.parametrize("clusters", ["abc", "aaa"], ids=["leader", "mate"])
def test_who_said_goodbye_and_is_back_is_dialed_by_one_that_it_cannot_dial(clusters: str) -> None:
    """Regression: after a leader's goodbye its greeting was waited for, which could never come."""
    world = World()
    founder = world.add(clusters[0], founder=True)
    world.run(1.0)
    leaver = world.add(clusters[1], seed=world.id(founder))
    hidden = world.add(clusters[2], seed=world.id(founder), dialable=False)
    world.run(5.0)
    world.do(leaver, leaver.core.leave(world.now))
    world.run(0.05)
    scope, member = ("members", world.id(leaver)) if clusters == "aaa" else ("mesh", "b")
    assert commands.MemberChanged(scope, member, "left") in hidden.seen
    world.kill(leaver)
    world.run(5.0)
    assert world.id(leaver) not in dials_of(world, hidden, 60.0)
    world.restart(leaver, seed=world.id(founder))
    world.run(5.0)
    assert world.id(leaver) in hidden.core.connected()


def test_a_cluster_that_was_said_to_have_left_by_one_half_of_it_is_dialed_once_a_worker_of_it_is_met() -> None:
    """Regression: two clusters, each of them torn, whose halves said goodbye for all of it never met again."""
    world = World()
    leaver, rest = mesh(world, "a", workers=2)["a"]
    hidden = world.add("b", seed=world.id(leaver), dialable=False)
    world.run(5.0)
    world.sever(rest, leaver)
    world.sever(rest, hidden)
    world.run(5.0)
    assert rest.core.leading
    world.do(leaver, leaver.core.leave(world.now))
    world.run(0.05)
    assert commands.MemberChanged("mesh", "a", "left") in hidden.seen
    world.kill(leaver)
    world.run(5.0)
    world.cut.clear()
    world.restart(leaver, seed=world.id(rest))
    world.run(5.0)
    assert world.id(rest) not in dials_of(world, hidden, 30.0)
    world.dial(hidden, leaver)  # as who sees no other cluster dials every address that it knows
    world.run(5.0)
    assert world.id(rest) in hidden.core.connected()
    assert rest.core.m.mesh.alive() == hidden.core.m.mesh.alive() == ("a", "b")


def test_a_dead_mate_is_not_dialed_where_a_living_one_has_its_address() -> None:
    """A worker without a disk that was started again is somebody else: to dial the former one reaches the new one."""
    world = World(forget_after=4 * FORGET)
    hosts = mesh(world, "a", "b", workers=3)
    survivor, victim = hosts["b"][0], hosts["b"][-1]
    address = victim.core.card.address
    world.kill(victim)
    world.run(5.0)
    assert world.id(victim) in dials_of(world, survivor, 20.0)
    again = world.add("b", seed=world.id(survivor))
    world.do(again, again.core.readdress(address, world.now))
    world.run(2.0)
    assert again.core.card.peer in survivor.core.connected()
    assert world.id(victim) not in dials_of(world, survivor, 60.0)
    assert world.id(victim) not in dials_of(world, again, 60.0)
    world.run(60.0)
    assert world.id(victim) not in survivor.core.m.members.members, "membership has forgotten it"
    assert world.id(victim) not in dials_of(world, survivor, 60.0)
    world.kill(again)
    world.run(5.0)
    assert {world.id(victim), world.id(again)} <= dials_of(world, survivor, 20.0)


def test_a_dead_cluster_is_not_dialed_where_a_living_worker_has_its_leaders_address() -> None:
    """Regression: jobs that ran on one host, one after the other: the last was called in the name of each before it."""
    world = World()
    hosts = mesh(world, "a", "b", "job1", workers=1)
    a, b, victim = (hosts[name][0] for name in ("a", "b", "job1"))
    world.kill(victim)
    world.run(5.0)
    assert world.id(victim) in dials_of(world, a, 20.0)
    job = world.add("job2", seed=world.id(a))
    world.run(2.0)
    world.do(job, job.core.readdress(victim.core.card.address, world.now))
    world.run(2.0)
    for host in (a, b, job):
        assert world.id(victim) not in dials_of(world, host, 20.0)
    world.kill(job)
    world.run(5.0)
    assert {world.id(victim), world.id(job)} <= dials_of(world, a, 20.0)
