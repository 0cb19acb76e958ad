"""The view that a newcomer is shown, however long it is."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim
from ictp2p.core import commands, meetings
from ictp2p.core.cards import MAX_WORKERS, PeerCard, encode_card
from ictp2p.core.directory import Directory
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import (
    INTRODUCED,
    Channel,
    Goodbye,
    Greeting,
    Introduction,
    MeshCopy,
    Packet,
    decode_packet,
    encode_packet,
)
from ictp2p.gossip.messages import Record, Sight, Status, SwimState
from ictp2p.types import ClusterId, PeerId
from tests.core.control_planes import Host, World, mesh


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 5000))
def test_a_view_is_split_into_parts_that_fit_and_say_all_of_it_in_order(lengths: list[int], size: int) -> None:
    seal = bytes(32), bytes(64)
    records = [Record(f"m{n}" * 8, 1 << 40, 1 << 40, bytes(length), *seal) for n, length in enumerate(lengths)]
    sights = tuple(Sight(record, Status.ALIVE) for record in records)
    split = meetings.parts(SwimState(sights), size)
    assert tuple(sight for part in split for sight in part.sights) == sights
    assert all(part.sights for part in split) or not sights
    for part in split:
        assert len(part.sights) <= 1 or len(msgspec.msgpack.encode(part)) <= size


def test_who_is_shown_a_view_in_parts_is_in_when_it_has_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame has a limit: the cards of many large clusters do not fit into one."""
    monkeypatch.setattr(meetings, "_PART", 1)
    world = World()
    names = ("a", "b", "c", "d")
    hosts = mesh(world, *names, workers=1)
    shown: list[tuple[bool, bool]] = []
    newcomer = world.add("e", seed=world.id(hosts["b"][0]))
    receive = newcomer.core.receive

    def noted(peer: PeerId, frame: bytes, now: float) -> list[commands.Command]:
        done, packet = receive(peer, frame, now), decode_packet(frame)
        message = CODECS[packet.channel].decode(packet.body)
        if isinstance(message, MeshCopy):
            shown.append((message.more, commands.MeshLearned() in [*newcomer.seen, *done]))
        return done

    monkeypatch.setattr(newcomer.core, "receive", noted)
    world.run(5.0)
    first = shown[: [more for more, _ in shown].index(False) + 1]
    assert len(first) == len(names)
    assert [joined for _, joined in first] == [False] * (len(names) - 1) + [True]
    for group in hosts.values():
        assert group[0].core.m.mesh.alive() == newcomer.core.m.mesh.alive() == (*names, "e")


def test_a_followers_card_of_its_cluster_replaces_no_newer_one_of_the_same_claim() -> None:
    """Regression: it said of a cluster that trained that it did not, until that changed for another reason."""
    world = World()
    hosts = mesh(world, "a", "b", workers=2)
    a, follower = hosts["a"][0].core, world.id(hosts["b"][1])
    newest = a.directory.clusters[ClusterId("b")]
    for older, taken in [
        (msgspec.structs.replace(newest, training=not newest.training), False),
        (msgspec.structs.replace(newest, term=newest.term - 1), False),
        (msgspec.structs.replace(newest, term=newest.term + 1), True),
    ]:
        body = CODECS[Channel.HELLO].encode(MeshCopy(CODECS[Channel.MESH].encode(SwimState(())), encode_card(older)))
        packet = Packet(follower, ClusterId("b"), world.id(hosts["a"][0]), 16, Channel.HELLO, body)
        a.receive(follower, encode_packet(packet), world.now)
        assert (a.directory.clusters[ClusterId("b")] == older) is taken


def test_a_leader_who_never_saw_a_death_is_told_of_it_by_mates_who_did() -> None:
    """Regression: who had lost its disk counts from one again, and mates of the others held it for dead for good."""
    with sim.World(seed=0, profile="local") as world:
        for cluster, workers in (("a", 1), ("b", 3), ("c", 1)):
            world.cluster(cluster, workers=workers)
        world.run_for(8.0)
        world.restart("c/0", power=True)
        world.run_for(5.0)
        world.crash("c/0", disk="lost")
        world.crash("a/0")
        world.run_for(8.0)
        world.restart(world.leaders()["b"], power=True)
        world.run_for(5.0)
        assert world.leaders()["b"] == "b/0", "the same one leads, and knows of nobody's past"
        world.restart("c/0")
        world.restart("a/0")
        world.run_for(15.0)
        assert world.believes_all()


def test_an_old_copy_of_a_disk_is_noticed_where_a_cluster_has_no_other_worker() -> None:
    """Regression: nobody knew its life, and of the term in which it had led it only heard that there was one."""
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    seed, host = world.id(hosts["a"][0]), hosts["b"][0]
    life, copy = host.life, deepcopy(host.disk)
    for _ in range(3):  # its own disk is the newest there is: that the mesh names it and a term is no news
        world.kill(host)
        host = world.restart(host, seed=seed)
        world.run(3.0)
        assert host.core.leading
    assert not any(isinstance(notice, commands.IdentityTaken) for notice in host.seen)
    world.kill(host)
    host.life, host.disk = life, copy
    again = world.restart(host, seed=seed)
    world.run(0.1)
    assert commands.IdentityTaken(str(host.address)) in again.seen


def test_who_has_no_leader_yet_learns_the_last_term_also_from_whom_it_meets_second() -> None:
    """Regression: let in by a follower that had not heard of it, it led in a term that rounds had bound already."""
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    b, host = hosts["b"][0], hosts["a"][0]
    stale = b.core.m.mesh.state()
    for _ in range(3):
        world.kill(host)
        host = world.restart(host, seed=world.id(b))
        world.run(3.0)
    known = b.core.directory.clusters[ClusterId("a")].term
    world.kill(host)
    world.run(10.0)
    newcomer = world.add("a", seed=world.id(b))
    receive = newcomer.core.receive
    shown = list[SwimState]()

    def behind(peer: PeerId, frame: bytes, now: float) -> list[commands.Command]:
        packet = decode_packet(frame)
        message = CODECS[packet.channel].decode(packet.body)
        if isinstance(message, MeshCopy) and not shown:
            shown.append(stale)
            old = CODECS[Channel.HELLO].encode(MeshCopy(CODECS[Channel.MESH].encode(stale), b""))
            frame = encode_packet(msgspec.structs.replace(packet, body=old))
        return receive(peer, frame, now)

    newcomer.core.receive = behind  # type: ignore[method-assign]
    world.run(0.1)
    assert shown
    assert not newcomer.core.leading
    assert newcomer.core.m.election.term < known
    tell(world, b, newcomer, MeshCopy(CODECS[Channel.MESH].encode(b.core.m.mesh.state()), b""))
    assert newcomer.core.m.election.term == known
    world.run(5.0)
    assert newcomer.core.leading
    assert newcomer.core.m.election.term > known


def introduced(n: int, cluster: str = "a", first: int = 0) -> tuple[PeerCard, ...]:
    """Cards of workers that are nowhere."""
    return tuple(PeerCard(PeerId(f"{first + i:032x}"), ClusterId(cluster), "", bytes(32)) for i in range(n))


def tell(world: World, source: Host, target: Host, *told: Introduction | MeshCopy) -> list[commands.Command]:
    """Have `source` say something to `target`; give what that does."""
    done: list[commands.Command] = []
    for message in told:
        body = CODECS[Channel.HELLO].encode(message)
        packet = Packet(world.id(source), source.core.card.cluster, world.id(target), 16, Channel.HELLO, body)
        done += target.core.receive(world.id(source), encode_packet(packet), world.now)
    return done


def test_an_introduction_is_believed_about_our_own_cluster_and_of_no_more_than_it_can_have() -> None:
    """Regression: a hundred frames of cards of nobody took 340 MB, and the loop for seconds."""
    world = World()
    hosts = mesh(world, "a", "b", workers=2)
    a, b = hosts["a"][0], hosts["b"][0]
    before = dict(a.core.directory.peers)
    tell(world, b, a, Introduction(introduced(INTRODUCED, "c")), Introduction(introduced(3, "b")))
    assert a.core.directory.peers == before
    frames = [Introduction(introduced(INTRODUCED, first=n)) for n in range(0, 2 * MAX_WORKERS, INTRODUCED)]
    done = tell(world, b, a, *frames)
    assert not any(isinstance(each, commands.Hangup) for each in done)
    assert a.core.directory.count(ClusterId("a")) == MAX_WORKERS
    last = PeerId(f"{MAX_WORKERS - 3:032x}")  # two are the cluster's own
    assert last in a.core.directory.peers
    moved = PeerCard(last, ClusterId("a"), "10.0.0.9:9000", bytes(32))
    tell(world, b, a, Introduction((moved,)))
    assert a.core.directory.peers[last] == moved, "who is known already takes no room"


def test_a_longer_introduction_or_one_with_an_address_without_end_is_refused() -> None:
    world = World()
    hosts = mesh(world, "a", "b", workers=1)
    a, b = hosts["a"][0], hosts["b"][0]
    endless = PeerCard(PeerId("e" * 32), ClusterId("a"), f"{'h' * 400}:7000", bytes(32))
    for wrong in (introduced(INTRODUCED + 1), (endless,)):
        done = tell(world, b, a, Introduction(wrong))
        assert any(isinstance(each, commands.Hangup) and each.peer == world.id(b) for each in done)
    assert a.core.directory.count(ClusterId("a")) == 1


def test_a_newcomer_is_introduced_to_a_cluster_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who introduce it keep the limit that those who hear of it have."""
    monkeypatch.setattr(meetings, "INTRODUCED", 2)
    world = World()
    first = mesh(world, "a", workers=1)["a"][0]
    mates = [world.add("b", seed=world.id(first)) for _ in range(5)]
    world.run(2.0)
    last = world.add("b", seed=world.id(first))
    heard: list[int] = []
    receive = last.core.receive

    def noted(peer: PeerId, frame: bytes, now: float) -> list[commands.Command]:
        packet = decode_packet(frame)
        message = CODECS[packet.channel].decode(packet.body)
        if isinstance(message, Introduction):
            heard.append(len(message.cards))
        return receive(peer, frame, now)

    monkeypatch.setattr(last.core, "receive", noted)
    world.run(5.0)
    assert max(heard) == 2
    assert {world.id(mate) for mate in mates} < last.core.directory.peers.keys()
    assert sum(heard) >= len(mates)


def test_of_whom_the_directory_has_forgotten_nothing_is_kept() -> None:
    me, other = (PeerCard(PeerId(c * 32), ClusterId(c), "", bytes(32)) for c in "ab")
    directory, machines = Directory(me), SimpleNamespace(rounds=SimpleNamespace(greet=lambda *_: []))
    context: Any = SimpleNamespace(card=me, cluster=me.cluster, directory=directory, m=machines, now=0.0)
    context.run = context.send = lambda *_: None
    nobody: Any = ()
    meeting = meetings.Meetings(context, nobody, nobody, nobody)
    for message in (Greeting(other, other.peer, 1), Goodbye()):
        meeting.receive(other.peer, message)
    assert meeting.departed == {other.peer}
    del directory.peers[other.peer]
    meeting.forget()
    assert not meeting.departed
    assert not meeting._claims
