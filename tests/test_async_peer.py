"""Whole peers on real sockets, TLS and all, several in one event loop."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Timeouts
from ictp2p.core.commands import Failed
from ictp2p.disk import FileDisk
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.preamble import PREAMBLE_SIZE, Preamble, Verdict
from ictp2p.errors import (
    AddressInUse,
    ConfigError,
    HandshakeFailed,
    LocalProtocolError,
    MeshMismatch,
    PeerClosed,
    RoundAborted,
    RoundMissed,
    StateError,
    StatusRefused,
    Unreachable,
    VersionMismatch,
)
from ictp2p.machine import Notice
from ictp2p.runtime.reduction import Outcome
from ictp2p.runtime.state_provider import KIND, Question
from ictp2p.status import fetch_status
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.types import Address, PeerId
from tests.meshed import ELEMENTS, TOKEN, all_training, config, knows, mesh, reduction, training, until


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


@pytest.mark.parametrize("ending", ["close", "leave"])
@pytest.mark.parametrize("seeds", [(), ("127.0.0.1:1",)], ids=["as it begins", "at the door"])
async def test_a_peer_that_is_closed_while_it_starts_starts_no_more(ending: str, seeds: tuple[str, ...]) -> None:
    """Regression: it went on, and lived after it had been closed; or knocked until its time was up."""
    peer = AsyncPeer(
        config("a", join=seeds, global_timeouts=Timeouts(connect=0.2, stall=2.0, form=50.0, complete=60.0))
    )
    starting = asyncio.create_task(peer.start())
    await (until(lambda: hasattr(peer, "participation")) if seeds else asyncio.sleep(0))
    assert not await getattr(peer, ending)()
    with pytest.raises(PeerClosed):
        await starting
    with pytest.raises(PeerClosed):
        await peer.start()


async def test_a_peer_is_started_once_and_is_none_the_worse_for_a_second_time() -> None:
    """Regression: another core began on the same disk and the first one was closed by nobody, or a port was taken."""
    async with AsyncPeer(config("a")) as peer:
        address, core = peer.address, peer.core
        with pytest.raises(LocalProtocolError, match="a peer is started once"):
            await peer.start()
        assert (peer.address, peer.core) == (address, core)
        assert peer.status()["peer"] == peer.id
    starting = asyncio.create_task((later := AsyncPeer(config("b"))).start())
    await asyncio.sleep(0)
    with pytest.raises(LocalProtocolError, match="a peer is started once"):
        await later.start()
    await starting
    await later.leave()


async def test_a_subscriber_that_raises_does_so_at_its_own_cost() -> None:
    """Regression: the others heard nothing, a neighbour lost its connection, and a peer that had failed stayed open."""
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    async with mesh("a", "b") as (peer, other):
        heard: list[Notice] = []

        def raises(notice: Notice) -> None:
            raise ZeroDivisionError

        peer.subscribe(raises)
        peer.subscribe(heard.append)
        connection = peer.driver.connection(other.id)
        other.set_training(True)
        await until(lambda: bool(heard) and any(c["training"] for c in peer.status()["clusters"]))
        assert peer.driver.connection(other.id) is connection
        peer._fail(StateError("no space left"))
        await until(lambda: isinstance(heard[-1], Failed))
        await peer.close()
        assert not peer._tasks, "it is closed"
    assert {type(error) for error in told} == {ZeroDivisionError}


async def test_a_close_that_was_given_up_does_not_keep_a_failed_peer_from_being_closed(tmp_path: Path) -> None:
    """Regression: whoever closed it then was cancelled, each time, and it was never closed to its end."""
    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await peer.start()
    peer._fail(StateError("no space left"))
    closing = asyncio.create_task(peer.close())
    await asyncio.sleep(0)  # it waits by now
    closing.cancel()
    await asyncio.wait([closing])
    await peer.close()
    FileDisk(tmp_path).close()


async def test_what_one_part_raises_as_it_is_closed_leaves_no_other_open(tmp_path: Path) -> None:
    """Regression: the port stayed open, the tasks ran on and the folder was held."""

    async def fails() -> None:
        raise OSError("no")

    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await peer.start()
    await peer.bulk.close()
    peer.bulk.close = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no"):
        await peer.leave()
    assert not peer._tasks
    FileDisk(tmp_path).close()
    await (again := await TcpNetwork().serve(asyncio.Protocol, peer.address)).settled()
    again.close()


async def test_a_leave_that_is_cancelled_closes_the_peer(tmp_path: Path) -> None:
    """Regression: it went on listening and held its folder, and nobody was left to close it."""
    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    entered = asyncio.Event()

    async def life() -> None:
        async with peer:
            peer.driver.stop()  # nobody is going to release it
            entered.set()

    living = asyncio.create_task(life())
    await entered.wait()
    await asyncio.sleep(0)  # it waits for its release by now
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    FileDisk(tmp_path).close()


async def test_a_peer_that_never_started_can_be_left() -> None:
    """Regression: it raised an AttributeError."""
    assert not await AsyncPeer(config("a")).leave()


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


async def test_who_has_left_need_not_leave_again() -> None:
    """Regression: it waited for its release once more, in vain, and told people that it had none."""
    async with AsyncPeer(config("a")) as peer:
        told: list[str] = []
        peer.telemetry.subscribe(lambda event: told.append(event.kind))
        first = await peer.leave()
        told.clear()
        assert await peer.leave() == first
    assert told == []


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


async def test_a_stranger_is_refused_and_both_sides_say_why() -> None:
    async with mesh("a") as (founder,):
        stranger = AsyncPeer(config("b", founder, token="not the token of this mesh"))
        with pytest.raises(HandshakeFailed, match="mesh"):
            await stranger.start()
        await until(lambda: bool(founder.refusals))
        assert "mesh" in str(founder.refusals[0])
        assert founder.refusals[0].__traceback__ is None
        assert founder.core.connected() == []


@pytest.mark.parametrize("verdict", [Verdict.BUSY, Verdict.WELCOME])
async def test_a_seed_that_is_busy_or_dies_in_the_handshake_is_asked_again(verdict: Verdict) -> None:
    knocked = asyncio.Event()

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs = Preamble.decode(await reader.readexactly(PREAMBLE_SIZE))
        writer.write(replace(theirs, verdict=verdict).encode())
        await reader.read(1)  # the beginning of TLS, or the end
        writer.close()
        knocked.set()

    door = await asyncio.start_server(turn_away, "127.0.0.1", 0)
    seed = "{}:{}".format(*door.sockets[0].getsockname())
    newcomer, founder = AsyncPeer(config("b", join=(seed,))), AsyncPeer(config("a", listen=seed))
    entering = asyncio.create_task(newcomer.start())
    try:
        await knocked.wait()
        door.close()
        await founder.start()
        await entering
        await until(lambda: knows(founder, {"b"}))
    finally:
        await newcomer.close()
        await founder.close()


async def test_an_unreachable_seed_is_named_in_bounded_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    waits = Timeouts(connect=1.0, stall=1.0, form=1.0, complete=5.0)
    peer = AsyncPeer(config("a", join=(f"127.0.0.1:{port}",), global_timeouts=waits))
    with pytest.raises(Unreachable, match=str(port)):
        await peer.start()


async def test_a_port_that_is_taken_is_named() -> None:
    async with mesh("a") as (founder,):
        second = AsyncPeer(config("b", founder, listen=str(founder.address)))
        with pytest.raises(AddressInUse, match=str(founder.address.port)):
            await second.start()


async def test_a_peer_of_another_version_is_told_so() -> None:
    async with mesh("a") as (founder,):
        reader, writer = await asyncio.open_connection(*founder.address)
        writer.write(b"ICTP" + bytes([200, 201, 1, 0]) + bytes(24))
        answer = await asyncio.wait_for(reader.readexactly(32), 5)
        assert answer[:4] == b"ICTP"
        writer.close()
        await until(lambda: bool(founder.refusals))
        assert isinstance(founder.refusals[0], VersionMismatch)


async def test_garbage_on_the_port_hurts_nobody() -> None:
    async with mesh("a", "b") as peers:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(4096), b"ICTP", b"\xff" * 33):
            _, writer = await asyncio.open_connection(*peers[0].address)
            writer.write(garbage)
            writer.close()
        await all_training(peers)
        outcomes = await asyncio.gather(*(p.reduce(reduction(1.0)) for p in peers))
        assert outcomes[0].participants == ("a", "b")


async def test_the_status_says_who_is_there_and_costs_nobody_anything() -> None:
    async with mesh("a", "b") as peers:
        status = await fetch_status(str(peers[0].address), TOKEN, 5.0)
        assert {c["cluster"] for c in status["clusters"]} == {"a", "b"}
        assert status["peer"] == peers[0].id
        assert status["leader"] == peers[0].id
        assert status["voters"]
        with pytest.raises(HandshakeFailed):
            await fetch_status(str(peers[0].address), "not the token of this mesh", 5.0)
        with pytest.raises(ConfigError):
            await fetch_status("nowhere", TOKEN, 5.0)
        await until(lambda: len(peers[0].core.connected()) == 1)


async def test_who_asked_for_the_status_has_hung_up_when_it_has_it() -> None:
    class Watched(TcpNetwork):
        async def connect(self, factory, address, timeout, **options):  # type: ignore[no-untyped-def]
            transport, protocol = await super().connect(factory, address, timeout, **options)
            sockets.append(transport.get_extra_info("socket"))
            return transport, protocol

    sockets: list[socket.socket] = []
    async with mesh("a") as (founder,):
        await fetch_status(str(founder.address), TOKEN, 5.0, Watched())
        assert [sock.fileno() for sock in sockets] == [-1]


async def test_who_is_not_told_the_status_is_told_why() -> None:
    """Regression: of a status beyond what may wait for its reader, parts were dropped, and its observer timed out."""
    async with mesh("a") as (founder,):
        founder.status = lambda: {"peer": "x" * (9 << 20)}  # type: ignore[method-assign]
        with pytest.raises(StatusRefused, match=r"the status has 9437196 bytes, and at most 8388608 are sent"):
            await fetch_status(str(founder.address), TOKEN, 5.0)
        founder.status = lambda: {"peer": "x" * ((8 << 20) - 12)}  # type: ignore[method-assign]
        assert len((await fetch_status(str(founder.address), TOKEN, 5.0))["peer"]) == (8 << 20) - 12


async def test_a_peer_that_leaves_gives_up_its_vote_and_is_not_mourned() -> None:
    async with mesh("a", "b") as peers:
        await all_training(peers)
        await asyncio.gather(*(p.reduce(reduction(1.0)) for p in peers))
        await peers[1].leave()
        await until(lambda: "b" not in peers[0].core.m.mesh.alive())
        statuses = [e.fields["status"] for e in peers[0].telemetry.events("member") if e.fields["member"] == "b"]
        assert statuses[-1] == "left"
        assert "dead" not in statuses
        alone = await peers[0].reduce(reduction(4.0))
        assert alone.participants == ("a",)


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
