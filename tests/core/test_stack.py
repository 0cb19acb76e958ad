"""Whole control planes at rest: who finds whom, who is told what, and what is refused."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core import commands
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, Greeting, Introduction, MeshCopy, Packet, decode_packet, encode_packet
from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.messages import Status
from ictp2p.machine import Effects
from ictp2p.sync.messages import Leave
from ictp2p.types import ClusterId, PeerId
from ictp2p.wire import MAX_CONTROL_BODY
from tests.core.control_planes import Host, World, leaders, mesh


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


@pytest.mark.parametrize("forged", [True, False])
def test_nobody_is_hung_up_on_for_what_another_says_in_its_name(forged: bool) -> None:
    """Regression: a packet that was passed on names a source that nobody has proven."""
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    a, b, c = (hosts[name][0] for name in "abc")
    packet = Packet(world.id(c), ClusterId("c"), world.id(a), 3, Channel.ROUNDS, b"garbage")
    bearer = b if forged else c
    done = a.core.receive(world.id(bearer), encode_packet(packet), world.now)
    violations = [(each.bearer, each.source) for each in done if isinstance(each, commands.Violated)]
    assert violations == [(world.id(bearer), world.id(c))], "who is named is told apart from who is proven"
    assert [each.peer for each in done if isinstance(each, commands.Hangup)] == ([] if forged else [world.id(c)])


def test_nobody_is_hung_up_on_for_what_this_peer_gets_wrong_over_its_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an error of ours cost the sender its connection, and was told as its fault."""
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    a, b = hosts["a"][0], hosts["b"][0]

    def stumble(*_: object) -> Effects:
        raise LocalProtocolError("cannot propose")

    monkeypatch.setattr(a.core.m.rounds, "receive", stumble)
    body = CODECS[Channel.ROUNDS].encode(Leave(0))
    packet = encode_packet(Packet(world.id(b), ClusterId("b"), world.id(a), 1, Channel.ROUNDS, body))
    done = a.core.receive(world.id(b), packet, world.now)
    told = [each for each in done if isinstance(each, commands.Violated)]
    assert [(each.bearer, each.source) for each in told] == [(world.id(a), world.id(a))]
    assert f"over a ROUNDS packet of {world.id(b)}: cannot propose" in told[0].text
    assert not [each for each in done if isinstance(each, commands.Hangup)]


def test_of_what_one_peer_brings_little_is_told_however_much_of_it_is_malformed() -> None:
    """Regression: each was a line in the log, and nothing ends the connection to who only passes them on."""
    world = World()
    hosts = mesh(world, "a", "b", "c", workers=1)
    a, b, c = (hosts[name][0] for name in "abc")
    told: list[tuple[float, PeerId]] = []
    for second in range(90):
        for bearer, source in ((b, c), (c, b)):
            packet = Packet(world.id(source), ClusterId("x"), world.id(a), 3, Channel.ROUNDS, b"garbage")
            done = a.core.receive(world.id(bearer), encode_packet(packet), world.now + second)
            told += [(second, each.bearer) for each in done if isinstance(each, commands.Violated)]
    assert told == [(at, world.id(bearer)) for at in (0, 60) for bearer in (b, c)]


@pytest.mark.parametrize("name", ["", "nobody", "e" * 31, "E" * 32, "e" * 32 + "\n"])
def test_a_packet_of_what_no_peer_is_called_is_malformed(name: str) -> None:
    """Regression: a READY of such a one got into an OPEN that nobody could read."""
    frame = encode_packet(Packet(PeerId(name), ClusterId("c"), PeerId("a" * 32), 3, Channel.ROUNDS, b""))
    with pytest.raises(RemoteProtocolError, match="malformed packet"):
        decode_packet(frame)


def test_a_status_that_is_longer_than_a_frame_comes_in_parts() -> None:
    """Regression: that of some hundred clusters raised where it was sent, and its observer heard nothing."""
    world = World()
    host = mesh(world, "a", workers=1)["a"][0]
    observer = PeerId("e" * 32)
    world.do(host, host.core.opened(observer, world.now))
    document = bytes(range(256)) * 12_000
    done = host.core.tell_status(observer, document, world.now)
    frames = [each.frame for each in done if isinstance(each, commands.Transmit) and each.peer == observer]
    parts = [CODECS[Channel.HELLO].decode(decode_packet(each).body) for each in frames]
    assert max(map(len, frames)) < MAX_CONTROL_BODY
    assert b"".join(part.document for part in parts) == document
    assert [part.more for part in parts] == [*([True] * (len(parts) - 1)), False]


@pytest.mark.parametrize("address", ["nowhere", "192.0.2.7:99999"])
def test_a_card_that_cannot_be_dialed_is_refused_wherever_it_stands(address: str) -> None:
    """Regression: it was remembered, and raised a ConfigError out of an input that had nothing to do with it."""
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    a, b = hosts["a"][0], hosts["b"][0]
    wrong = msgspec.structs.replace(b.core.card, address=address)
    mate = PeerCard(PeerId("e" * 32), ClusterId("a"), address, bytes(32))
    for message in (Greeting(wrong, wrong.peer, 1), Introduction((mate,))):
        body = CODECS[Channel.HELLO].encode(message)
        packet = Packet(world.id(b), ClusterId("b"), world.id(a), 16, Channel.HELLO, body)
        done = a.core.receive(world.id(b), encode_packet(packet), world.now)
        assert any(isinstance(each, commands.Hangup) and each.peer == world.id(b) for each in done)
    assert mate.peer not in a.core.directory.peers


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
