"""What the data connections ask of the control plane, and what they tell it, on stand-ins for both."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.config import Config, Timeouts
from ictp2p.core.cards import PeerCard
from ictp2p.core.packets import Channel
from ictp2p.disk import MemoryDisk
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.security import PlainSecurity
from ictp2p.errors import ConnectionLost, HandshakeFailed, Unreachable
from ictp2p.gossip.links import ProbeWanted
from ictp2p.identity import Identity
from ictp2p.runtime.data_plane import DataPlane
from ictp2p.telemetry import Telemetry
from ictp2p.types import Address, ClusterId, Direction, PeerId, Transfer

HERE, THERE = ClusterId("here"), ClusterId("there")
PEERS = [PeerId(letter * 32) for letter in "bcdef"]


class Directory:
    """Nobody is known but whom the test names."""

    def __init__(self) -> None:
        self.peers: dict[PeerId, PeerCard] = {}
        self.homes: dict[PeerId, ClusterId] = {}
        self.here: Address | None = Address("10.0.0.1", 1)

    def endpoint(self, peer: PeerId) -> Address | None:
        return self.peers[peer].endpoint() if peer in self.peers else None

    def reached_at(self, peer: PeerId) -> Address | None:
        return self.here

    def cluster_of(self, peer: PeerId) -> ClusterId | None:
        return self.homes.get(peer)

    def leader_of(self, cluster: ClusterId) -> PeerId | None:
        return next((peer for peer, home in self.homes.items() if home == cluster), None)


class Stack:
    """A core and its driver in one; `measured` has what the links machine was told, `invited` who was asked to dial."""

    def __init__(self) -> None:
        self.core = self
        self.directory = Directory()
        self.m = SimpleNamespace(links=self)
        self.hop: PeerId | None = None
        self.near: list[PeerId] = []
        self.quiet: set[PeerId] = set()
        self.measured: list[tuple[Any, ...]] = []
        self.invited: list[PeerId] = []

    def clock(self) -> float:
        return 7.0

    def relay(self, target: PeerId, size: int) -> PeerId | None:
        return self.hop if size > 2**20 else None

    def neighbours(self) -> list[PeerId]:
        return self.near

    def silent(self) -> set[PeerId]:
        return self.quiet

    def call(self, channel: Channel, act: Any) -> None:
        assert channel is Channel.LINKS
        act(self.clock())

    def invite(self, peer: PeerId, _ticket: bytes, _now: float) -> list[PeerId]:
        return [peer]

    def execute(self, invitations: list[PeerId]) -> None:
        self.invited += invitations

    def transferred(self, *told: Any) -> list[Any]:
        self.measured.append(told)
        return []


def plane(stack: Stack, **values: Any) -> DataPlane:
    config = Config.local(cluster=HERE, token="a token that only the tests know", **values)
    identity = Identity.load(MemoryDisk())
    driver: Any = stack
    network: Any = TcpNetwork()
    return DataPlane(
        config, identity, driver, network, PlainSecurity(identity, b"f" * 8), Telemetry(stack.clock), bytes
    )


async def test_whose_card_is_not_known_gets_no_key_and_whose_address_is_not_known_is_not_dialed() -> None:
    stack = Stack()
    data = plane(stack)
    with pytest.raises(HandshakeFailed, match=PEERS[0]):
        data._keys(PEERS[0], b"context")
    with pytest.raises(Unreachable, match=PEERS[0]):
        await data._dial(PEERS[0], 1.0)
    stack.directory.peers[PEERS[0]] = PeerCard(PEERS[0], THERE, "", bytes(32))
    with pytest.raises(Unreachable, match=PEERS[0]):
        await data._dial(PEERS[0], 1.0)


def test_both_ends_agree_on_keys_from_each_other_s_card() -> None:
    stacks = Stack(), Stack()
    ends = [plane(stack) for stack in stacks]
    for stack, end in zip(stacks, reversed(ends), strict=True):
        identity = end._identity
        stack.directory.peers[identity.peer_id] = PeerCard(identity.peer_id, THERE, "", identity.bulk_public)
    first, second = (end._keys(other.bulk.me, b"context") for end, other in zip(ends, reversed(ends), strict=True))
    assert (first.sending, first.receiving) == (second.receiving, second.sending)
    first.check(second.proof)
    second.check(first.proof)
    with pytest.raises(HandshakeFailed, match="does not prove"):
        first.check(first.proof)


def test_a_member_that_spreads_a_card_of_another_s_with_its_own_key_does_not_pass_for_it() -> None:
    """Regression: cards that members pass on are taken from anybody, and that was all that data connections went by."""
    stack, member = Stack(), Stack()
    end, forger, true = plane(stack), plane(member)._identity, Identity.generate()
    stack.directory.peers[true.peer_id] = PeerCard(true.peer_id, THERE, "", forger.bulk_public)
    agreed = end._keys(true.peer_id, b"context")
    for proof in (forger.bulk_proof, true.bulk_proof):
        with pytest.raises(HandshakeFailed, match="does not prove"):
            agreed.check(proof)


def test_of_a_peer_that_encrypts_where_this_one_does_not_people_are_told_once_for_its_cluster() -> None:
    """Regression: rounds went on without one of the two, each by itself, and nobody was told why, or that they did."""
    stack = Stack()
    data = plane(stack, encrypt=False)
    stack.directory.homes = dict.fromkeys(PEERS[:2], THERE)
    for peer in PEERS[:3]:  # the last one is no member: anybody on the way can say that it is one
        data._differs(peer)
    (told,) = data._telemetry.events("warning")
    assert told.fields["text"] == (
        f"no tensors pass between this peer, with encrypt = false, and {PEERS[0]} of there, with true: give all peers "
        "of the mesh the same"
    )


@given(
    hop=st.sampled_from([None, *PEERS]),
    near=st.lists(st.sampled_from(PEERS), unique=True),
    quiet=st.frozensets(st.sampled_from(PEERS)),
)
def test_nobody_is_a_relay_to_itself_and_the_way_of_the_route_comes_first(
    hop: PeerId | None, near: list[PeerId], quiet: frozenset[PeerId]
) -> None:
    stack = Stack()
    stack.hop, stack.near, stack.quiet = hop, near, set(quiet)
    relays = plane(stack)._relays(PEERS[0])
    if PEERS[0] in quiet:
        assert relays[-1] == PEERS[0], "it is dialed, but only once the others were tried"
        relays = relays[:-1]
    assert PEERS[0] not in relays
    assert len(set(relays)) == len(relays)
    assert set(relays) == {peer for peer in (hop, *near) if peer not in (None, PEERS[0], *quiet - {hop})}
    assert hop in (None, PEERS[0]) or relays[0] == hop


@given(
    home=st.sampled_from([None, HERE, THERE]),
    direction=st.sampled_from(["in", "out"]),
    seconds=st.sampled_from([0.0, 0.5]),
)
def test_only_what_came_from_or_went_to_another_cluster_is_measured(
    home: ClusterId | None, direction: Direction, seconds: float
) -> None:
    stack = Stack()
    if home is not None:
        stack.directory.homes[PEERS[0]] = home
    data = plane(stack)
    transfer = Transfer(direction, 1000, seconds, False, 6.0)
    data._transferred(PEERS[0], transfer)
    assert stack.measured == ([(THERE, transfer, 7.0)] if home == THERE and seconds > 0 else [])
    assert data._telemetry.counters()[f"bulk_bytes_{direction}"] == 1000


async def test_a_second_probe_that_fails_is_a_warning_and_a_cluster_without_a_leader_is_not_probed() -> None:
    """Regression: each death was followed by a warning of the probe that it had cut short, which read as a fault."""
    stack = Stack()
    data = plane(stack, global_timeouts=Timeouts(connect=0.01, stall=0.01, form=0.01, complete=0.01))
    await data.probe(ProbeWanted(THERE, 1000, 30.0))
    stack.directory.homes[PEERS[0]] = THERE
    await data.probe(ProbeWanted(THERE, 1000, 30.0))
    assert stack.invited == [PEERS[0]]
    assert data._telemetry.events() == ()
    await data.probe(ProbeWanted(THERE, 1000, 30.0))
    assert [event.kind for event in data._telemetry.events()] == ["warning"]
    assert THERE in data._telemetry.events()[0].fields["text"]


@given(outcomes=st.lists(st.tuples(st.booleans(), st.sampled_from(PEERS[:2])), max_size=8))
async def test_a_probe_that_failed_before_one_that_worked_is_no_news(outcomes: list[tuple[bool, PeerId]]) -> None:
    """Nor is one to the leader before this one."""
    stack = Stack()
    data = plane(stack)
    told, before = 0, None
    for works, leader in outcomes:

        async def probe(*_: Any, works: bool = works, **__: Any) -> None:
            if not works:
                raise ConnectionLost("gone")

        data.bulk.probe = probe  # type: ignore[assignment]
        stack.directory.homes = {leader: THERE}
        await data.probe(ProbeWanted(THERE, 1000, 30.0))
        told += not works and before == leader
        before = None if works else leader
    assert len(data._telemetry.events()) == told


async def test_a_peer_that_closes_while_it_probes_or_dials_has_nothing_to_warn_of() -> None:
    """Regression: it warned of its neighbour, that "its own id was closed"."""
    stack = Stack()
    data = plane(stack)
    stack.directory.homes[PEERS[0]] = THERE

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))  # the preamble, which is the same both ways
        await reader.read()
        writer.close()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(echo, "127.0.0.1")
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        stack.directory.peers[PEERS[0]] = PeerCard(PEERS[0], THERE, address, bytes(32))
        await data.bulk.close()
        await data.probe(ProbeWanted(THERE, 1000, 30.0))
        await data.answer(PEERS[0], bytes(16))
        await asyncio.wait_for(gone.wait(), 5.0)
    assert data._telemetry.events() == ()


def test_nobody_is_asked_to_dial_where_there_is_no_address() -> None:
    """Regression: the other end warned of it, and the relay was tried only when the head start of that way was over."""
    stack = Stack()
    data = plane(stack)
    data._ask_dial(PEERS[0], b"ticket")
    assert stack.invited == [PEERS[0]]
    stack.directory.here = None
    with pytest.raises(Unreachable, match=PEERS[1]):
        data._ask_dial(PEERS[1], b"ticket")
    assert stack.invited == [PEERS[0]]


async def test_who_asked_to_be_dialed_in_vain_is_named() -> None:
    data = plane(Stack())
    await data.answer(PEERS[0], b"ticket")
    (event,) = data._telemetry.events()
    assert PEERS[0] in event.fields["text"]


def test_collectives_run_under_the_ceiling_if_there_is_one() -> None:
    free, limited = plane(Stack()), plane(Stack(), bulk_rate=1e6)
    assert free.bulk.profile.ceiling is None
    assert limited.bulk.profile.ceiling == 1e6
