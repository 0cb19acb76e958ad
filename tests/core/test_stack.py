"""Whole control planes on a fake network in virtual time: no asyncio, no sockets, every command looked at.

`World` executes what each stack commands. A link exists where both ends are up and one of them can dial the other;
messages take a fixed delay and arrive in order per pair, as on a TCP connection.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core import commands, planning
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import CODECS, Machines, Settings
from ictp2p.core.packets import Channel, MeshCopy, Packet, decode_packet, encode_packet
from ictp2p.core.stack import Core
from ictp2p.disk import MemoryDisk
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.messages import Status
from ictp2p.identity import Identity
from ictp2p.machine import Machine, Notice, Persist
from ictp2p.sync import notices
from ictp2p.sync.participant import Contribution
from ictp2p.sync.values import Spec, genesis
from ictp2p.types import Address, ClusterId, PeerId

DELAY = 0.002
BARRIER = Spec("barrier", "test", "float32", 0, "sum", "none")


def machines_of(core: Core) -> list[Machine]:
    m = core.m
    return [m.members, m.mesh, m.links, m.routes, m.election, m.rosters, m.rounds]


@dataclass
class Host:
    """One process."""

    core: Core
    disk: MemoryDisk
    address: Address
    alive: bool = True
    dialable: bool = True
    open: set[PeerId] = field(default_factory=set)
    seen: list[Notice] = field(default_factory=list)


class World:
    """Hosts, links and time."""

    def __init__(self, seed: int = 0, complete: int = 32) -> None:
        self.complete = complete
        self.rng = random.Random(seed)
        self.now = 0.0
        self.hosts: dict[PeerId, Host] = {}
        self.cut: set[frozenset[PeerId]] = set()
        self._queue: list[tuple[float, int, PeerId, str, tuple[object, ...]]] = []
        self._count = itertools.count()
        self._timers: dict[PeerId, float] = {}

    def add(self, cluster: str, *, founder: bool = False, seed: PeerId | None = None, dialable: bool = True) -> Host:
        identity = Identity.from_bytes(self.rng.randbytes(32), self.rng.randbytes(32))
        disk = MemoryDisk()
        address = Address("10.0.0.1", 1000 + len(self.hosts))
        card = PeerCard(identity.peer_id, ClusterId(cluster), str(address) if dialable else "", identity.bulk_public)
        machines = Machines(
            identity,
            ClusterId(cluster),
            Settings.named("local", "local", restore_after=20.0),
            disk,
            1,
            random.Random(self.rng.getrandbits(32)),
            planner=lambda request: planning.make_plan(host.core.directory, request),
            validate=planning.check_plan,
        )
        host = Host(Core(machines, card, random.Random(1), complete=self.complete), disk, address, dialable=dialable)
        self.hosts[identity.peer_id] = host
        self.do(host, host.core.start(1 << 32, self.now))
        if founder:
            value = genesis(bytes(8), identity.peer_id)
            self.do(host, host.core.call(Channel.ROUNDS, machines.rounds.bootstrap(value, self.now), self.now))
            self.do(host, host.core.joined(self.now))
        if seed is not None:
            self._connect(identity.peer_id, seed)
        return host

    def id(self, host: Host) -> PeerId:
        return host.core.card.peer

    def do(self, host: Host, todo: list[commands.Command]) -> None:
        """Execute commands; a dead host's are never asked for."""
        me = self.id(host)
        for command in todo:
            match command:
                case commands.Transmit(peer=peer, frame=frame):
                    if peer in host.open:
                        self._post(DELAY, peer, "frame", me, frame)
                case commands.Dial(peer=peer):
                    self._post(DELAY, me, "dial", peer)
                case commands.Hangup(peer=peer):
                    self._disconnect(me, peer)
                case Persist(key=key, value=value):
                    host.disk.save(key, value)
                case Notice():
                    host.seen.append(command)
        due = host.core.next_timeout()
        if due is not None:
            self._timers[me] = due
        # The stack remembers what its machines want, and asks again only those that got an input: none may be late.
        wanted = [machine.next_timeout() for machine in machines_of(host.core)]
        assert all(time is None or (due is not None and due <= time) for time in wanted)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            timers = [(t, p) for p, t in self._timers.items() if self.hosts[p].alive]
            timer = min(timers, default=(float("inf"), PeerId("")))
            event = self._queue[0][0] if self._queue else float("inf")
            if min(timer[0], event) > end:
                self.now = end
                return
            if event <= timer[0]:
                self.now, _, target, kind, arguments = heapq.heappop(self._queue)
                self._happen(target, kind, arguments)
            else:
                self.now = max(self.now, timer[0])
                host = self.hosts[timer[1]]
                self.do(host, host.core.handle_timeout(self.now))

    def kill(self, host: Host) -> None:
        """SIGKILL: its kernel closes the connections, and refuses new ones."""
        host.alive = False
        for peer in sorted(host.open):
            self._disconnect(self.id(host), peer)

    def sever(self, a: Host, b: Host) -> None:
        """No connection between the two any more, nor ever."""
        self.cut.add(frozenset((self.id(a), self.id(b))))
        self._disconnect(self.id(a), self.id(b))

    def _happen(self, target: PeerId, kind: str, arguments: tuple[object, ...]) -> None:
        host = self.hosts[target]
        if not host.alive:
            return
        if kind == "frame":
            peer, frame = arguments
            if peer in host.open:
                self.do(host, host.core.receive(PeerId(str(peer)), frame, self.now))  # type: ignore[arg-type]
        elif kind == "dial":
            self._connect(target, PeerId(str(arguments[0])))

    def _connect(self, a: PeerId, b: PeerId) -> None:
        one, other = self.hosts[a], self.hosts[b]
        if b in one.open:
            return
        if not other.alive or not other.dialable or frozenset((a, b)) in self.cut:
            refused = not other.alive
            self.do(one, one.core.dial_failed(b, refused, self.now))
            return
        one.open.add(b)
        other.open.add(a)
        self.do(one, one.core.opened(b, self.now))
        self.do(other, other.core.opened(a, self.now))

    def _disconnect(self, a: PeerId, b: PeerId) -> None:
        for me, peer in ((a, b), (b, a)):
            host = self.hosts[me]
            if peer in host.open:
                host.open.discard(peer)
                if host.alive:
                    self.do(host, host.core.lost(peer, self.now))
                    assert peer not in host.core.neighbours(), "no route leads over what has ended"

    def _post(self, delay: float, target: PeerId, kind: str, *arguments: object) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._count), target, kind, arguments))


def mesh(world: World, *clusters: str, workers: int = 2) -> dict[str, list[Host]]:
    """Clusters by name, each with its workers, all up and known to each other; leaders first."""
    founder = world.add(clusters[0], founder=True)
    world.run(1.0)
    hosts: dict[str, list[Host]] = {name: [] for name in clusters}
    hosts[clusters[0]].append(founder)
    for name in clusters:
        while len(hosts[name]) < workers:
            hosts[name].append(world.add(name, seed=world.id(founder)))
    world.run(3.0)
    for workers_of in hosts.values():
        workers_of.sort(key=lambda host: not host.core.leading)
    return hosts


def leaders(hosts: dict[str, list[Host]]) -> list[Host]:
    return [h for group in hosts.values() for h in group if h.alive and h.core.leading]


def train(world: World, hosts: dict[str, list[Host]]) -> None:
    for group in hosts.values():
        for host in group:
            world.do(host, host.core.set_training(True, False, b"", world.now))
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


def test_workers_find_their_cluster_and_clusters_each_other_through_one_seed() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c")
    assert len(leaders(hosts)) == 3
    for group in hosts.values():
        for host in group:
            assert host.core.leader == world.id(group[0])
            known = set(host.core.m.mesh.alive()) | {host.core.card.cluster}
            assert known == {"a", "b", "c"}
            assert host.core.m.rounds.tip is not None


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


def sparse_mesh(seed: int) -> tuple[World, list[Host]]:
    """More one-worker clusters than are all connected to each other, settled."""
    world = World(seed, complete=8)
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
    effects = host.core.m.links.transferred(neighbour, "out", 2**26, 1.0, False, world.now)
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


def test_a_peer_that_only_dials_out_is_reached_over_what_it_dialed() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    world.add("nat", seed=world.id(hosts["a"][0]), dialable=False)
    world.run(3.0)
    for name in ("a", "b"):
        assert hosts[name][0].core.m.mesh.members["nat"].status is Status.ALIVE
        assert hosts[name][0].core.directory.leader_of(ClusterId("nat")) in hosts[name][0].open


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


def test_two_halves_of_a_cluster_that_met_through_different_seeds_become_one() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    one = world.add("late", seed=world.id(hosts["a"][0]))
    world.run(0.001)
    two = world.add("late", seed=world.id(hosts["b"][0]))
    world.run(5.0)
    assert one.core.leader == two.core.leader
    assert sum(h.core.leading for h in (one, two)) == 1
    assert len(hosts["a"][0].core.directory.clusters[ClusterId("late")].workers) == 2


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
        world.do(loser, loser.core.set_training(training, False, b"", world.now))
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


def test_a_steady_mesh_neither_suspects_nor_changes_leaders() -> None:
    world = World()
    hosts = mesh(world, "a", "b", "c")
    for group in hosts.values():
        for host in group:
            host.seen.clear()
    world.run(30.0)
    for group in hosts.values():
        for host in group:
            assert not [n for n in host.seen if isinstance(n, commands.MemberChanged | LeaderChanged)]


def test_a_greeting_in_anothers_name_ends_the_connection() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    a, b = hosts["a"][0], hosts["b"][0]
    forged = Packet(world.id(a), ClusterId("a"), world.id(a), 1, Channel.HELLO, b"")
    with pytest.raises(RemoteProtocolError, match="relayed"):
        a.core.receive(world.id(b), encode_packet(forged), world.now)


@given(body=st.binary(max_size=300), channel=st.sampled_from(list(Channel)))
@settings(max_examples=100, deadline=None)
def test_garbage_in_any_channel_hurts_nobody_but_its_sender(body: bytes, channel: Channel) -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    a, b = hosts["a"][0].core, hosts["b"][0].core
    packet = Packet(b.card.peer, ClusterId("b"), a.card.peer, 1, channel, body)
    done = a.receive(b.card.peer, encode_packet(packet), world.now)
    hung_up = [c for c in done if isinstance(c, commands.Hangup)]
    assert all(c.peer == b.card.peer for c in hung_up)
    assert decode_packet(encode_packet(packet)) == packet
    world.do(hosts["a"][0], done)
    world.run(1.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.ALIVE


def test_a_stack_that_has_left_stays_silent_whatever_still_happens() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    leaving = hosts["b"][0]
    world.do(leaving, leaving.core.leave(world.now))
    world.do(leaving, leaving.core.set_training(True, False, b"", world.now))
    world.do(leaving, leaving.core.readdress("10.0.0.9:1", world.now))
    world.run(1.0)
    assert hosts["a"][0].core.m.mesh.members["b"].status is Status.LEFT


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


class Watched(World):
    """Notes when a leader shows a mate its view of the mesh."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[float] = []

    def do(self, host: Host, todo: list[commands.Command]) -> None:
        for command in todo:
            if isinstance(command, commands.Transmit) and command.peer in self.hosts:
                packet = decode_packet(command.frame)
                mates = self.hosts[command.peer].core.card.cluster == host.core.card.cluster
                if mates and packet.channel is Channel.HELLO:
                    self.shown += [self.now] * isinstance(CODECS[Channel.HELLO].decode(packet.body), MeshCopy)
        super().do(host, todo)


def test_many_who_come_at_once_are_shown_to_the_mates_together_and_nobody_is_left_out() -> None:
    world = Watched()
    leader = world.add("a", founder=True)
    mate = world.add("a", seed=world.id(leader))
    world.run(5.0)
    world.shown.clear()
    others = [world.add(name, seed=world.id(leader)) for name in "bcdefgh"]
    world.run(10.0)
    assert set(mate.core.m.mesh.members) == {other.core.card.cluster for other in others} | {"a"}
    assert world.shown
    assert all(b - a >= 0.25 - 1e-9 for a, b in itertools.pairwise(world.shown))
