"""Who is connected to whom, and how the others are reached."""

from __future__ import annotations

import itertools

import pytest

from ictp2p.core import commands
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import MAX_HOPS, Channel, Need, Packet, decode_packet, encode_packet
from ictp2p.gossip.messages import Status
from ictp2p.runtime.reporting import clusters_of
from ictp2p.sync.agreement.chain import Agreement
from ictp2p.types import ClusterId, PeerId, Transfer
from tests.core.control_planes import Host, World, mesh


def sparse_mesh(seed: int, kind: type[World] = World) -> tuple[World, list[Host]]:
    """More one-worker clusters than are all connected to each other, settled."""
    world = kind(seed, complete=8)
    hosts = mesh(world, *(f"c{i:02}" for i in range(24)), workers=1)
    world.run(20.0)
    return world, [group[0] for group in hosts.values()]


def test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody() -> None:
    world, hosts = sparse_mesh(6)
    degrees = [len(host.open) for host in hosts]
    assert max(degrees) <= 4 + 2 * 5 + 2, "the first one let everybody in, and has let go of them"
    assert sum(degrees) < 14 * len(hosts)
    for host in hosts:
        others = {other.core.card.cluster for other in hosts} - {host.core.card.cluster}
        assert set(host.core.m.mesh.alive()) >= others
        assert {r.destination for r in host.core.m.routes.routes() if r.traffic_class == 0} == others
        assert all(host.core.next_hop(world.id(other)) is not None for other in hosts if other is not host)
        suspicions = [n for n in host.seen if isinstance(n, commands.MemberChanged) and n.status == "suspect"]
        assert not suspicions, "to part is no failure"


class Listening(World):
    """Notes what everybody says last of the need of its connections."""

    def __init__(self, seed: int, complete: int) -> None:
        super().__init__(seed, complete)
        self.said: dict[tuple[PeerId, PeerId], bool] = {}

    def do(self, host: Host, todo: list[commands.Command]) -> None:
        for command in todo:
            if isinstance(command, commands.Transmit):
                packet = decode_packet(command.frame)
                message = CODECS[packet.channel].decode(packet.body)
                if isinstance(message, Need):
                    self.said[self.id(host), command.peer] = message.wanted
        super().do(host, todo)


def test_who_needs_a_connection_says_so_again_on_the_one_that_takes_its_place() -> None:
    """Who hears nothing on it would take it for one that leads nowhere."""
    world, _ = sparse_mesh(6, Listening)
    assert isinstance(world, Listening)
    needed = [pair for pair, wanted in sorted(world.said.items()) if wanted and pair[1] in world.hosts[pair[0]].open]
    assert needed
    for me, peer in needed:
        world.said.clear()
        for one, other in ((me, peer), (peer, me)):
            world.do(world.hosts[one], world.hosts[one].core.opened(other, world.now))
        world.run(0.1)
        assert world.said.get((me, peer))


def test_a_sparse_mesh_closes_over_the_dead_and_takes_them_back() -> None:
    world, hosts = sparse_mesh(2)
    dead, living = hosts[3:7], hosts[:3] + hosts[7:]
    for host in dead:
        for other in living:
            world.sever(host, other)
    world.run(30.0)
    names = {host.core.card.cluster for host in living}
    for host in living:
        assert set(host.core.m.mesh.alive()) == names
        assert {host.core.card.cluster, *(r.destination for r in host.core.m.routes.routes())} == names
    world.cut.clear()
    world.run(30.0)
    for host in hosts:
        assert len(host.core.m.mesh.alive()) == len(hosts)
        assert max(len(host.open) for host in hosts) <= 16


@pytest.mark.parametrize("dialable", [False, True])
def test_models_for_who_cannot_be_dialed_go_over_the_widest_relay(dialable: bool) -> None:
    world = World()
    relays = mesh(world, "any", "wide", workers=1)
    seed = world.id(relays["any"][0])
    p, q = (world.add(name, seed=seed, dialable=dialable) for name in "pq")
    world.sever(p, q)
    world.run(3.0)
    for host, other in itertools.permutations((relays["wide"][0], p, q), 2):
        measure(world, host, other.core.card.cluster)
    world.run(3.0)
    anywhere, widest = seed, world.id(relays["wide"][0])
    assert p.core.relay(world.id(q), 2**28) == (anywhere if dialable else widest)
    assert p.core.next_hop(world.id(q)) == p.core.relay(world.id(q), 0) == anywhere


def measure(world: World, host: Host, neighbour: ClusterId) -> None:
    """A transfer shows that much of the link to a neighbour."""
    effects = host.core.m.links.transferred(neighbour, Transfer("out", 2**26, 1.0, False, world.now), world.now)
    world.do(host, host.core.call(Channel.LINKS, effects, world.now))


def test_clusters_that_cannot_dial_each_other_talk_over_a_third() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    world.sever(hosts["b"][0], hosts["c"][0])
    world.run(2.0)
    b, c = hosts["b"][0].core, hosts["c"][0].core
    assert b.m.routes.next_hop("c") == "a"
    assert b.next_hop(c.card.peer) == world.id(hosts["a"][0])
    ticket = bytes(16)
    world.do(hosts["b"][0], b.invite(c.card.peer, ticket, world.now))
    world.run(0.1)
    assert commands.BulkInvited(b.card.peer, ticket) in hosts["c"][0].seen
    assert b.m.mesh.members["c"].status is Status.ALIVE


@pytest.mark.parametrize("both", [True, False])
def test_a_leader_whose_line_is_cut_is_gone_around_though_its_connection_stands(both: bool) -> None:
    """Regression: what was said went into the connection until TCP gave it up, and a program missed its call."""
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    b, c = hosts["b"][0], hosts["c"][0]
    world.swallowed = {(world.id(b), world.id(c)), *([(world.id(c), world.id(b))] if both else [])}
    world.run(3.0)  # five intervals of half a second, the greatest age of an echo, and one to tell of it
    assert world.id(c) in b.open
    for here, there in ((b, c), (c, b)):
        assert here.core.next_hop(world.id(there)) == world.id(hosts["a"][0])
        assert here.core.silent() == {world.id(there)}
        world.do(here, here.core.invite(world.id(there), bytes(16), world.now))
        world.run(0.1)
        assert commands.BulkInvited(world.id(here), bytes(16)) in there.seen
    world.swallowed.clear()
    world.run(3.0)
    for here, there in ((b, c), (c, b)):
        assert here.core.silent() == set()
        assert here.core.next_hop(world.id(there)) == world.id(there)


def test_a_connection_that_has_ended_is_no_silent_one() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    b, c = hosts["b"][0], hosts["c"][0]
    world.swallowed = {(world.id(b), world.id(c)), (world.id(c), world.id(b))}
    world.run(3.0)
    world.sever(b, c)
    assert b.core.silent() == c.core.silent() == set()


def test_two_who_take_each_other_for_the_leader_do_not_pass_a_packet_to_and_fro_for_long() -> None:
    """Regression: the hops that stand on a packet were believed, be they a million."""
    world = World()
    one, other = mesh(world, "a", workers=2)["a"]
    absent = PeerId("f" * 32)
    for host, leader in ((one, other), (other, one)):
        host.core.m.election._leader = world.id(leader)
        host.core.directory.learn_peer(PeerCard(absent, ClusterId("x"), "", bytes(32)))
    frame = encode_packet(Packet(world.id(other), ClusterId("a"), absent, 10**6, Channel.BULK, b""))
    for turns, (host, sender) in enumerate(itertools.cycle(((one, other), (other, one)))):
        told = [c for c in host.core.receive(world.id(sender), frame, world.now) if isinstance(c, commands.Transmit)]
        passed_on = [c.frame for c in told if decode_packet(c.frame).target == absent]
        if not passed_on:
            break
        (frame,) = passed_on
        assert turns < MAX_HOPS


def test_a_link_that_was_slow_and_is_gone_makes_nobody_wait_for_its_other_end() -> None:
    """What was measured last of a link that ended was never measured again: probes allowed for it ten times as long."""
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    b, c = hosts["b"][0], hosts["c"][0]
    prober = b.core.m.mesh._prober
    usual = prober._patience_for("a")
    b.core.m.mesh.measured("c", 3.0, 1.0)
    assert prober._patience_for("c") > 2 * usual
    world.sever(b, c)
    assert prober._patience_for("c") == usual


def test_a_peer_that_only_dials_out_is_reached_over_what_it_dialed() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    world.add("nat", seed=world.id(hosts["a"][0]), dialable=False)
    world.run(3.0)
    for name in ("a", "b"):
        assert hosts[name][0].core.m.mesh.members["nat"].status is Status.ALIVE
        assert hosts[name][0].core.directory.leader_of(ClusterId("nat")) in hosts[name][0].open


def test_a_leader_that_takes_office_again_remembers_what_keeps_its_routes_free_of_loops() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    core = hosts["b"][0].core
    distances = {key: core.m.routes.sources.distance(key) for key in (("a", 0), ("c", 0))}
    assert all(d is not None for d in distances.values())
    before = core.m.routes.seqno
    world.do(hosts["b"][0], core.call(Channel.ELECTION, core.m.election.seen(7, core.card.peer, world.now), world.now))
    assert core.m.election.term > 7
    assert core.m.routes.seqno >= 8 << 32 > before
    assert {key: core.m.routes.sources.distance(key) for key in distances} == distances
    world.run(2.0)
    assert core.m.routes.next_hop("a") == "a"
    assert hosts["a"][0].core.m.routes.next_hop("b") == "b"


def test_a_mate_who_plans_is_shown_what_links_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a coordinator that was led by another planned for links as if none had ever been measured."""
    world = World()
    hosts = mesh(world, "a", "b")
    (leader, planner), (_, other) = hosts["a"], hosts["b"]
    assert leader.core.leading
    monkeypatch.setattr(Agreement, "coordinator", property(lambda self: world.id(planner)))
    world.run(10.0)
    measure(world, leader, ClusterId("b"))
    world.run(10.0)

    def seen(host: Host) -> float:
        return host.core.directory.clusters[ClusterId("a")].links[0].bandwidth_out

    assert seen(leader) == seen(planner) > 0.0 == seen(other)


def test_the_status_of_a_follower_names_no_version_that_its_leader_no_longer_tells_it() -> None:
    """Regression: it named the one of hundreds of rounds ago, beside its own."""
    world = World()
    leader, follower = mesh(world, "a", "b")["a"]
    assert leader.core.leading
    assert [row["state_version"] for row in clusters_of(leader.core, 0.0)] == [0, 0]
    assert [row["state_version"] for row in clusters_of(follower.core, 0.0)] == [None, None]


def test_every_worker_shows_where_each_leader_can_be_asked() -> None:
    """What only leaders know could not be asked of them: nobody showed where another cluster's leader is."""
    hosts = mesh(World(), "a", "b")
    where = [str(group[0].address) for group in hosts.values()]
    for host in (host for group in hosts.values() for host in group):
        assert [row["address"] for row in clusters_of(host.core, 0.0)] == where
