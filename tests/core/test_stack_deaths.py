"""Who dies, leaves, or is cut off, and what the others make of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core import commands, forgetting, publication
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, Introduction, Packet, encode_packet
from ictp2p.gossip import ledger
from ictp2p.gossip.messages import Status
from ictp2p.machine import Message
from ictp2p.sync.rosters.devices import HOST
from ictp2p.sync.rounds import notices
from ictp2p.sync.rounds.participant import Contribution
from ictp2p.sync.values import Spec
from ictp2p.types import ClusterId, PeerId
from tests.core.control_planes import DELAY, Host, World, leaders, mesh

FORGET = 10.0
BARRIER = Spec("barrier", "test", "float32", 0, "sum", "none")


def train(world: World, hosts: dict[str, list[Host]]) -> None:
    for group in hosts.values():
        for host in group:
            world.do(host, host.core.set_training(True, world.now))
    world.run(0.5)


def ready(world: World, host: Host) -> None:
    core = host.core
    contribution = Contribution(core.card.cluster, core.card.peer, core.m.election.term, 1.0, BARRIER, None)
    world.do(host, core.call(Channel.ROUNDS, core.m.rounds.ready(contribution, world.now), world.now))


def vote(world: World, host: Host) -> None:
    """Finish whatever attempt was opened last."""
    opened = [n.open for n in host.seen if isinstance(n, notices.RoundOpened)][-1]
    effects = host.core.m.rounds.completed(opened.round, opened.attempt, b"same", world.now)
    world.do(host, host.core.call(Channel.ROUNDS, effects, world.now))


def test_a_workers_death_changes_nothing_outside_its_cluster_but_the_card() -> None:
    world = World()
    hosts = mesh(world, "a", "b")
    world.kill(hosts["b"][1])
    world.run(2.0)
    leader = hosts["a"][0].core
    assert leader.directory.clusters[ClusterId("b")].leader == world.id(hosts["b"][0])
    assert len(leader.directory.clusters[ClusterId("b")].workers) == 1
    assert leader.m.mesh.members["b"].status is Status.ALIVE


def test_a_leaders_death_is_known_at_once_and_its_follower_takes_over_within_a_second() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c")
    world.kill(hosts["b"][0])
    world.run(0.05)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.SUSPECT
    world.run(1.0)
    heir = hosts["b"][1].core
    assert heir.leading
    assert heir.m.election.term == 2
    for host in (hosts["a"][0], hosts["c"][0], hosts["a"][1]):
        assert host.core.directory.leader_of(ClusterId("b")) == heir.card.peer
        assert host.core.m.mesh.members["b"].status is Status.ALIVE


def test_a_round_survives_the_death_of_a_participant_that_is_voter_and_coordinator() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c")
    train(world, hosts)
    for host in leaders(hosts):
        ready(world, host)
    world.run(0.2)
    coordinator = next(h for h in leaders(hosts) if h.core.m.rounds.agreement.is_coordinator)
    assert all(any(isinstance(n, notices.RoundOpened) for n in h.seen) for h in leaders(hosts))
    world.kill(coordinator)
    survivors = [h for h in leaders(hosts) if h is not coordinator]
    for host in survivors:
        opened = next(n.open for n in host.seen if isinstance(n, notices.RoundOpened))
        effects = host.core.m.rounds.failed(
            opened.round, opened.attempt, "its connection was reset", (world.id(coordinator),), world.now
        )
        world.do(host, host.core.call(Channel.ROUNDS, effects, world.now))
    world.run(1.0)
    (heir,) = (h for group in hosts.values() for h in group if coordinator in group and h is not coordinator)
    ready(world, heir)
    world.run(0.5)
    for host in (*survivors, heir):
        vote(world, host)
    world.run(0.5)
    for host in (*survivors, heir):
        committed = [n for n in host.seen if isinstance(n, notices.RoundCommitted)]
        assert [(n.open.round, n.open.attempt, n.holding) for n in committed] == [(1, 2, True)]


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


def test_of_two_claimants_of_one_term_the_mesh_believes_the_one_whom_the_cluster_obeys() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    pair = sorted((world.add("late"), world.add("late")), key=world.id)
    loser, winner = pair
    world.sever(loser, winner)
    world._connect(world.id(loser), world.id(hosts["a"][0]))
    world._connect(world.id(winner), world.id(hosts["b"][0]))
    world.run(3.0)
    assert [h.core.m.election.term for h in pair if h.core.leading] == [1, 1]
    for training in (True, False, True):  # the loser has had more to say, so its record is the newer one
        world.do(loser, loser.core.set_training(training, world.now))
        world.run(0.5)
    world.cut.clear()
    world.run(5.0)
    assert [h.core.leading for h in pair] == [False, True]
    for name in ("a", "b"):
        core = hosts[name][0].core
        assert core.m.mesh.members["late"].status is Status.ALIVE
        assert core.directory.clusters[ClusterId("late")].leader == world.id(winner)


def test_a_leader_that_said_goodbye_says_no_more_while_its_connections_end() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.do(leaving, leaving.core.lost(world.id(hosts["a"][0]), world.now))
    assert not leaving.core.m.mesh.active


def test_a_healed_mesh_partition_becomes_one_mesh() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    world.sever(hosts["a"][0], hosts["b"][0])
    world.run(5.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.DEAD
    world.cut.clear()
    world.run(12.0)
    for name, other in (("a", "b"), ("b", "a")):
        assert hosts[name][0].core.m.mesh.members[other].status is Status.ALIVE


@pytest.mark.parametrize("calls", [True, False])
def test_a_cluster_whose_leader_has_not_begun_takes_part_where_its_workers_call(calls: bool) -> None:
    """Regression: until it had, the others went on without them."""
    world = World()
    hosts = mesh(world, "a", "b")
    leader, mate = hosts["b"]
    wanted = mate.core.m.rosters.wants(True, world.now, HOST, calls)
    world.do(mate, mate.core.call(Channel.ROSTER, wanted, world.now))
    world.run(0.5)
    assert hosts["a"][0].core.directory.clusters[ClusterId("b")].training is calls, "a policy's round is lost on nobody"
    world.kill(mate)
    world.run(5.0)
    assert leader.core.leading
    assert not hosts["a"][0].core.directory.clusters[ClusterId("b")].training, "nobody is left who calls"


def test_a_stack_that_has_left_stays_silent_whatever_still_happens() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.do(leaving, leaving.core.set_training(True, world.now))
    world.do(leaving, leaving.core.readdress("10.0.0.9:1", world.now))
    world.run(1.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.LEFT


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


def test_a_leader_that_said_goodbye_and_is_back_is_dialed_by_one_that_it_cannot_dial() -> None:
    """Regression: after a goodbye its greeting was waited for, which could never come."""
    world = World()
    founder = world.add("a", founder=True)
    world.run(1.0)
    leaver = world.add("b", seed=world.id(founder))
    hidden = world.add("c", seed=world.id(founder), dialable=False)
    world.run(5.0)
    world.do(leaver, leaver.core.leave(world.now))
    world.run(0.05)
    assert commands.MemberChanged("mesh", "b", "left") in hidden.seen
    world.kill(leaver)
    world.run(5.0)
    assert world.id(leaver) not in dials_of(world, hidden, 60.0)
    world.restart(leaver, seed=world.id(founder))
    world.run(5.0)
    assert world.id(leaver) in hidden.core.neighbours()


def test_a_mate_that_said_goodbye_and_is_back_is_dialed_by_one_that_it_cannot_dial() -> None:
    world = World()
    founder = world.add("a", founder=True)
    world.run(1.0)
    leaver = world.add("a", seed=world.id(founder))
    hidden = world.add("a", seed=world.id(founder), dialable=False)
    world.run(5.0)
    world.do(leaver, leaver.core.leave(world.now))
    world.run(0.05)
    world.kill(leaver)
    world.run(5.0)
    world.restart(leaver, seed=world.id(founder))
    world.run(5.0)
    assert world.id(leaver) in hidden.core.connected()


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


@pytest.mark.parametrize("restarted", [False, True])
def test_who_came_after_a_clusters_death_believes_its_next_leader_in_a_lower_term(restarted: bool) -> None:
    """Its disks were lost and its terms forgotten: who had only been shown the dead never was its neighbour again."""
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", "c", workers=1)
    a, victim = hosts["a"][0], hosts["b"][0]
    seen = victim.core.m.election.seen(50, PeerId(""), world.now)
    world.do(victim, victim.core.call(Channel.ELECTION, seen, world.now))
    world.run(1.0)
    world.kill(victim)
    world.run(5.0)
    if restarted:
        world.kill(hosts["c"][0])
        world.run(0.5)
    late = world.add("c" if restarted else "late", seed=world.id(a))
    world.run(24 * FORGET)
    assert late.core.leading
    assert "b" not in {*a.core.m.mesh.members, *late.core.m.mesh.members}
    again = world.add("b", seed=world.id(a))
    world.run(5.0)
    assert again.core.m.election.term < 50
    for host in (a, late):
        assert host.core.directory.leader_of(ClusterId("b")) == world.id(again)
        assert host.core.neighbour(ClusterId("b")) == world.id(again)


def test_a_cluster_whose_card_is_too_long_stays_in_the_mesh_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its card grew too long for a record: nobody but its own leader knew, and with the next leader it was gone."""
    world = World()
    hosts = mesh(world, "a", "b", workers=6)
    observer, leader = hosts["a"][0], hosts["b"][0]
    for module in (publication, ledger):
        monkeypatch.setattr(module, "MAX_PAYLOAD", 500)
    world.kill(leader)
    world.run(10.0)
    (heir,) = (host for host in hosts["b"] if host.alive and host.core.leading)
    card = observer.core.directory.clusters[ClusterId("b")]
    assert observer.core.m.mesh.members["b"].status is Status.ALIVE
    assert (card.leader, card.term) == (world.id(heir), 2)
    (told,) = (n for n in heir.seen if isinstance(n, commands.Crowded))
    assert told.workers == 5
    assert 0 < len(card.workers) <= told.listed < 5, "its links have been measured since, and take room too"
    own = heir.core.own_view()
    assert own is not None
    assert len(own.workers) == 5, "inside the cluster all are known"
    world.do(heir, heir.core.set_training(True, world.now))
    world.run(2.0)
    assert observer.core.directory.clusters[ClusterId("b")].training, "what changes is told all the same"
