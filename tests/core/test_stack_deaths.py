"""Who dies, or is cut off, and what the others make of it."""

from __future__ import annotations

import pytest

from ictp2p.core import commands, publication
from ictp2p.core.packets import Channel
from ictp2p.gossip import ledger
from ictp2p.gossip.messages import Status
from ictp2p.sync.rosters.devices import HOST
from ictp2p.sync.rounds import notices
from ictp2p.sync.rounds.participant import Contribution
from ictp2p.sync.values import Spec
from ictp2p.types import ClusterId, PeerId
from tests.core.control_planes import FORGET, Host, World, leaders, mesh

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
