"""Whole peers on real sockets, TLS and all, several in one event loop: rounds, states, and the ways between them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.edge.network import TcpNetwork
from ictp2p.errors import (
    MeshMismatch,
    RoundAborted,
    RoundMissed,
    Unreachable,
)
from ictp2p.runtime.reduction import Outcome
from ictp2p.runtime.state_provider import KIND, Question
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.types import Address, PeerId
from tests.meshed import ELEMENTS, all_training, config, knows, mesh, reduction, training, until


async def test_three_clusters_average_and_hold_the_same_bits() -> None:
    async with mesh("a", "b", "c") as peers:
        await all_training(peers)
        works = [reduction(float(n)) for n in (1, 2, 6)]
        outcomes = await asyncio.gather(*(p.reduce(w) for p, w in zip(peers, works, strict=True)))
        assert {o.digest for o in outcomes} == {outcomes[0].digest}
        for work, outcome in zip(works, outcomes, strict=True):
            assert torch.equal(work.outputs[0], torch.full((ELEMENTS,), 3.0))
            assert outcome.participants == ("a", "b", "c")
        assert torch.equal(works[0].inputs[0], torch.full((ELEMENTS,), 1.0))


def show(peer: AsyncPeer, host: str) -> None:
    """Have a peer take a connection whose end here is at `host`, and which leads nowhere."""
    peer.driver._place = lambda connection: None  # type: ignore[method-assign]
    connection = SimpleNamespace(local=Address(host, 1), peer_id=PeerId("nobody"), process=b"")
    peer.control.adopt(connection)  # type: ignore[arg-type]


async def test_where_a_peer_can_be_dialed_is_told_as_its_connections_show_it() -> None:
    """The second one is no address of this machine, so the third takes its place."""
    async with AsyncPeer(config("a", listen="0.0.0.0:0")) as peer:
        for host in ("127.0.0.1", "192.0.2.7", "192.0.2.8"):
            show(peer, host)
            assert peer.core.card.endpoint() == Address(host, peer.address.port)
            assert peer.control.host == host


@pytest.mark.parametrize("given", [{"listen": "127.0.0.1:0"}, {"listen": "0.0.0.0:0", "advertise": "127.0.0.1:7"}])
async def test_an_address_that_was_given_is_the_one_that_is_told(given: dict[str, str]) -> None:
    async with AsyncPeer(config("a", **given)) as peer:
        before = peer.core.card.address
        show(peer, "192.0.2.7")
        assert peer.core.card.address == before != ""


async def test_behind_a_nat_a_cluster_meets_at_the_machines_own_address() -> None:
    """Regression: at the NAT's nobody can listen, so its workers never formed a group, and never trained."""
    async with AsyncPeer(config("a", listen="0.0.0.0:0", advertise="203.0.113.9:7")) as peer:
        show(peer, "127.0.0.1")
        assert peer.core.card.address == "203.0.113.9:7"
        assert peer.control.host == "127.0.0.1"


async def test_a_round_ends_the_probes_that_hold_its_links() -> None:
    async with mesh("a", "b") as peers:
        await all_training(peers)
        bulk = peers[0].bulk
        bulk.profile = replace(bulk.profile, probe=60.0)
        connection = await bulk.connection(peers[1].id, 5.0)
        connection.pace(1e6)  # until the round: what is left of the probe would be sent in no time
        probing = asyncio.create_task(bulk.probe(peers[1].id, 256 * 2**20, timeout=15.0))
        await asyncio.gather(*(p.reduce(reduction(1.0)) for p in peers))
        result = await probing
        assert result.limited
        assert result.size < 64 * 2**20


async def test_who_sends_a_state_ends_its_probes_and_begins_none() -> None:
    async with mesh("a", "b") as (provider, newcomer):
        await all_training([provider, newcomer])
        state = GlobalState([entry("weight", torch.zeros(3))])
        state.seal({})
        state.commit(7)
        provider.serve_state(state)
        bulk = provider.bulk
        bulk.profile = replace(bulk.profile, probe=60.0)
        connection = await bulk.connection(newcomer.id, 5.0)
        connection.pace(1e6)  # until the chunk: what is left of the probe would be sent in no time
        probing = asyncio.create_task(bulk.probe(newcomer.id, 256 * 2**20, timeout=15.0))
        question = msgspec.msgpack.encode(Question(state.digest, (0,)))
        assert await newcomer.bulk.request(provider.id, KIND, question, memoryview(bytearray(64)), timeout=15.0)
        result = await probing
        assert result.limited
        assert result.size < 64 * 2**20
        assert provider.core.m.links._reserved_until > provider.clock()


async def test_a_participant_that_dies_in_mid_reduce_costs_one_attempt() -> None:
    async with mesh("a", "b", "c") as peers:
        await all_training(peers)
        dying = peers[2]
        works = [replace(reduction(float(n), 4_000_000), progress=None) for n in (1, 3, 5)]
        died = asyncio.Event()
        works[0] = replace(works[0], progress=lambda start, stop: died.set())
        rounds = [asyncio.create_task(p.reduce(w)) for p, w in zip(peers, works, strict=True)]
        await died.wait()
        await dying.close()
        survivors: list[Outcome] = list(await asyncio.gather(*rounds[:2]))
        with pytest.raises(Exception, match="closed"):
            await rounds[2]
        for outcome, work in zip(survivors, works, strict=False):
            expected = 2.0 if outcome.participants == ("a", "b") else 3.0
            assert torch.equal(work.outputs[0], torch.full((4_000_000,), expected))
        assert survivors[0].participants == survivors[1].participants
        assert survivors[0].digest == survivors[1].digest


async def test_a_round_that_went_on_without_us_is_missed_not_wrong() -> None:
    async with mesh("a", "b") as peers:
        training(peers[0])
        await until(lambda: any(c["training"] for c in peers[1].status()["clusters"]))
        alone = await peers[0].reduce(reduction(1.0))
        assert alone.participants == ("a",)


async def test_what_differs_from_the_others_is_refused_by_name() -> None:
    async with mesh("a", "b", "c") as peers:
        await all_training(peers)
        works = [reduction(1.0), reduction(1.0), reduction(1.0, name="another")]
        rounds = [asyncio.create_task(p.reduce(w)) for p, w in zip(peers, works, strict=True)]
        with pytest.raises(MeshMismatch, match="another"):
            await rounds[2]
        assert [o.participants for o in await asyncio.gather(*rounds[:2])] == [("a", "b")] * 2


async def test_a_follower_cannot_reduce_and_takes_over_when_its_leader_dies() -> None:
    async with mesh("a", "b") as peers:
        follower = AsyncPeer(config("b", peers[0]))
        try:
            await follower.start()
            assert not follower.core.leading
            with pytest.raises(RoundAborted, match="does not lead"):
                await follower.reduce(reduction(1.0))
            await peers[1].close()
            await until(lambda: follower.core.leading)
            await until(lambda: peers[0].core.directory.leader_of(follower.cluster) == follower.id)
        finally:
            await follower.close()


async def test_peers_that_cannot_dial_each_other_reduce_over_a_third() -> None:
    blocked: set[tuple[int, int]] = set()

    class Firewall(TcpNetwork):
        """Refuses to dial between two of the peers."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        async def connect(self, factory, address, timeout, **options):  # type: ignore[no-untyped-def]
            target = next((n for n, p in enumerate(peers) if p.address == address), -1)
            if (self.number, target) in blocked:
                raise Unreachable(f"{address} is behind a firewall")
            return await super().connect(factory, address, timeout, **options)

    peers: list[AsyncPeer] = []
    blocked |= {(1, 2), (2, 1)}
    try:
        for number, name in enumerate(("hub", "b", "c")):
            peer = AsyncPeer(config(name, *peers[:1]), network=Firewall(number))
            await peer.start()
            peers.append(peer)
        await until(lambda: all(knows(p, {"hub", "b", "c"}) for p in peers))
        await until(lambda: peers[1].core.m.routes.next_hop("c") == "hub")
        training(*peers[1:])
        await until(lambda: all(sum(c["training"] for c in p.status()["clusters"]) == 2 for p in peers))
        works = [reduction(1.0), reduction(3.0)]
        outcomes = await asyncio.gather(*(p.reduce(w) for p, w in zip(peers[1:], works, strict=True)))
        assert outcomes[0].participants == ("b", "c")
        assert all(torch.equal(w.outputs[0], torch.full((ELEMENTS,), 2.0)) for w in works)
    finally:
        for peer in peers:
            await peer.close()


def test_rounds_missed_are_their_own_error() -> None:
    assert not issubclass(RoundMissed, RoundAborted)


async def test_peers_that_do_not_encrypt_alike_say_so() -> None:
    async with mesh("a") as (a,):
        b = AsyncPeer(config("b", a, encrypt=False))
        try:
            await b.start()
            await until(lambda: knows(a, {"b"}) and knows(b, {"a"}))
            with pytest.raises(Unreachable):
                await a.bulk.connection(b.id, 2.0)
            assert any("with encrypt = false" in told.fields["text"] for told in b.telemetry.events("warning"))
        finally:
            await b.close()
