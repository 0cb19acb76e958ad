from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.streams import PROBE_CHUNK
from ictp2p.collectives.channel import ParticipantLost
from ictp2p.errors import ConfigError, ConnectionLost, PeerClosed, StateError, Unreachable
from ictp2p.types import PeerId
from tests.garbage import LARGE, uncollected

Meshes = Callable[..., Any]
BLOB = bytes(range(256)) * 12_000


async def blob(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(BLOB), 1_000_000):
        yield BLOB[start : start + 1_000_000]


async def hung(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
    yield b"some"
    await asyncio.Event().wait()


async def broken(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
    yield b"some"
    raise StateError(f"no state {payload.decode()} for {peer[-2:]}")


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_request_fills_its_destination(mesh: Meshes, sealed: bool) -> None:
    world = mesh(2, profile=replace(BulkProfile(), sealed=sealed))
    a, b = world.names
    world.bulks[b].serve("blob", blob)
    destination, seen = bytearray(len(BLOB) + 10), []
    got = await world.bulks[a].request(b, "blob", b"", destination, timeout=5, progress=seen.append)
    assert got == len(BLOB)
    assert destination == BLOB + bytes(10)
    assert seen == sorted(seen)
    assert seen[-1] == len(BLOB)
    assert (BLOB[100:2000] in world.links[0][2].other.sent) is (not sealed)


async def test_many_requests_share_one_connection(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    for each in (a, b):
        world.bulks[each].serve("blob", blob)
    buffers = [bytearray(len(BLOB)) for _ in range(8)]
    asks = [(a, b), (b, a)] * 4
    await world.bulks[a].connection(b, 1)
    await asyncio.gather(
        *(world.bulks[x].request(y, "blob", b"", into, timeout=5) for (x, y), into in zip(asks, buffers, strict=True))
    )
    assert all(into == BLOB for into in buffers)
    assert len(world.links) == 1
    assert not world.bulks[a]._users
    assert not world.bulks[b]._users


@pytest.mark.parametrize(
    ("kind", "size", "error", "message"),
    [
        ("nothing", 10, StateError, "'nothing' is not served"),
        ("broken", 10, StateError, "StateError: no state x for 00"),
        ("blob", 10, StateError, r"reply bytes \[0, 262144\) at 0 of 10"),
        ("hung", 10, ConnectionLost, "did not finish 'hung' within 0.6 s"),
    ],
)
async def test_a_failed_request_says_why(
    mesh: Meshes, kind: str, size: int, error: type[Exception], message: str
) -> None:
    world = mesh(2)
    a, b = world.names
    for served, handler in (("broken", broken), ("blob", blob), ("hung", hung)):
        world.bulks[b].serve(served, handler)
    with pytest.raises(error, match=message):
        await world.bulks[a].request(b, kind, b"x", bytearray(size), timeout=0.6)
    assert not world.bulks[a]._users
    for _ in range(20):
        await asyncio.sleep(0)
    assert not world.bulks[b]._users, "the serving side goes on"


@pytest.mark.parametrize("limit", [None, 3])
async def test_a_peer_serves_a_bounded_number_of_requests_of_each_kind(mesh: Meshes, limit: int | None) -> None:
    world = mesh(2, profile=replace(BulkProfile(), served=2))
    (a, b), most = world.names, limit or 2
    world.bulks[b].serve("hung", hung, limit)
    world.bulks[b].serve("blob", blob)
    held = [asyncio.ensure_future(world.bulks[a].request(b, "hung", b"", bytearray(9), timeout=5)) for _ in range(most)]
    await world.bulks[a].connection(b, 1)
    for _ in range(20):
        await asyncio.sleep(0)
    with pytest.raises(StateError, match=f"{most} requests of 'hung' are served already"):
        await world.bulks[a].request(b, "hung", b"", bytearray(9), timeout=5)
    assert await world.bulks[a].request(b, "blob", b"x", bytearray(len(BLOB)), timeout=5) == len(BLOB)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert await world.bulks[a].request(b, "blob", b"x", bytearray(len(BLOB)), timeout=5) == len(BLOB)
    assert not +world.bulks[b]._desks[await world.bulks[b].connection(a, 1)]._served


@pytest.mark.parametrize("harm", ["kill", "stop"])
async def test_a_peer_that_dies_or_stops_while_serving_is_noticed(mesh: Meshes, harm: str) -> None:
    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("hung", hung)
    asked = asyncio.ensure_future(world.bulks[a].request(b, "hung", b"", bytearray(9), timeout=30))
    await world.bulks[a].connection(b, 1)
    await asyncio.sleep(0.01)
    getattr(world, harm)(1)
    with pytest.raises(ConnectionLost, match="killed" if harm == "kill" else "sent nothing for 0.4 s"):
        await asked


async def test_a_handler_that_thinks_for_long_is_not_taken_for_dead(mesh: Meshes) -> None:
    async def slow(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(1.2)
        yield b"done"

    world = mesh(2)
    world.bulks[world.names[1]].serve("slow", slow)
    into = bytearray(4)
    assert await world.bulks[world.names[0]].request(world.names[1], "slow", b"", into, timeout=5) == 4
    assert into == b"done"


async def test_of_who_has_fallen_silent_the_connections_that_nobody_uses_are_given_up(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, c = world.names
    idle, busy = [await world.bulks[a].connection(each, 1) for each in (b, c)]
    await asyncio.sleep(1.1 * world.bulks[a].profile.stall)
    young = await world.bulks[a]._pool.another(b)
    probing = asyncio.ensure_future(world.bulks[a].probe(c, 64_000_000, timeout=5))
    while busy.written < 2 * PROBE_CHUNK:
        await asyncio.sleep(0)
    for each in (b, c):
        world.bulks[a].distrust(each)
    assert idle.closed
    assert not busy.closed
    assert not young.closed, "it was made since, so the way is open"
    world.bulks[a].distrust(b, restarted=True)
    assert young.closed, "but to a process that has ended"
    world.bulks[a].stop_probes()
    await probing
    world.bulks[a].distrust(c)
    assert busy.closed
    assert await world.bulks[a].connection(c, 1) is not busy


async def test_whoever_may_have_died_has_less_time_to_show_itself_where_something_is_under_way(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, c = world.names
    idle, busy = [await world.bulks[a].connection(each, 1) for each in (b, c)]
    await asyncio.sleep(1.1 * world.bulks[a].profile.stall)
    probing = asyncio.ensure_future(world.bulks[a].probe(c, 64_000_000, timeout=5))
    while busy.written < 2 * PROBE_CHUNK:
        await asyncio.sleep(0)
    for each in (b, c):
        world.bulks[a].hasten(each)
    assert not idle.closed, "it may be in use at the other end"
    assert [each._liveness._distrusted for each in (idle, busy)] == [False, True]
    world.bulks[a].stop_probes()
    await probing


async def test_who_is_reached_over_another_is_not_given_up_for_its_silence(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, c = world.names
    world.blocked |= {(a, b), (b, a)}
    world.via[a] = [c]
    relayed = await world.bulks[a].connection(b, 5)
    assert relayed.relayed
    await asyncio.sleep(1.1 * world.bulks[a].profile.stall)
    world.bulks[a].distrust(b)
    assert not relayed.closed


async def test_a_paced_connection_keeps_its_rate(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(BulkProfile(), rate=4e6))
    result = await world.bulks[world.names[0]].probe(world.names[1], 1_500_000, timeout=5)
    assert result.size / result.seconds < 4.6e6


async def test_both_ends_dialing_at_once_is_no_race(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    for each in (a, b):
        world.bulks[each].serve("blob", blob)
    into = [bytearray(len(BLOB)) for _ in range(2)]
    await asyncio.gather(
        world.bulks[a].request(b, "blob", b"", into[0], timeout=5),
        world.bulks[b].request(a, "blob", b"", into[1], timeout=5),
    )
    assert into == [BLOB, BLOB]
    one, two = await world.bulks[a].connection(b, 1), await world.bulks[b].connection(a, 1)
    assert one.dialed
    assert not two.dialed


async def test_closing_lets_what_was_written_arrive(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("blob", blob)
    into = bytearray(len(BLOB))
    await world.bulks[a].connection(b, 1)
    connection = await world.bulks[b].connection(a, 1)
    asked = asyncio.ensure_future(world.bulks[a].request(b, "blob", b"", into, timeout=5))
    while connection.written < 3_000_000:
        await asyncio.sleep(0)
    other = await world.bulks[a].connection(b, 1)
    assert other.received < connection.written
    await world.bulks[b].close()
    await asyncio.gather(asked, return_exceptions=True)
    assert other.received == connection.written
    with pytest.raises(PeerClosed):
        await world.bulks[b].connection(a, 1)
    assert "connections=0" in repr(world.bulks[b])


async def test_a_connection_to_oneself_is_a_mistake(mesh: Meshes) -> None:
    world = mesh(1)
    with pytest.raises(ConfigError, match="to itself"):
        await world.bulks[world.names[0]].connection(world.names[0], 1)


async def test_nobody_there_is_named_with_every_way_that_failed(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (1, 0), (2, 1))
    world.deaf.add(world.names[1])
    world.via[world.names[0]] = [world.names[2]]
    with pytest.raises(Unreachable) as caught:
        await world.bulks[world.names[0]].connection(world.names[1], 5)
    for part in ("00 cannot dial 01", "did not dial us within 0.4 s", "refused: "):
        assert part in str(caught.value)


async def test_a_connection_that_ends_before_it_is_used_is_told_in_words(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh(2)
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    connection.fail(ConnectionLost("cut"))

    async def ended(*_: object, **__: object) -> object:
        return connection

    monkeypatch.setattr(world.bulks[a]._pool, "connection", ended)
    with pytest.raises(ParticipantLost, match=f"not reached: {b}: its connection ended meanwhile$"):
        await world.bulks[a].attach(bytes(16), None, [b], timeout=1)


@pytest.mark.parametrize("kind", ["nothing", "broken"])
async def test_a_request_that_fails_leaves_nothing_to_the_garbage_collector(mesh: Meshes, kind: str) -> None:
    """Regression: of each the destination stayed, 16 MiB where a manifest was asked for, until the collector came."""
    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("broken", broken)

    async def fail() -> None:
        with pytest.raises(StateError):
            await world.bulks[a].request(b, kind, b"", bytearray(LARGE), timeout=5)

    with uncollected() as left:
        await fail()
        await asyncio.sleep(0)  # the step that woke us is over
    assert left == []
