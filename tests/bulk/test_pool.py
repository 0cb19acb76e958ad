from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.bulk import Bulk, BulkProfile, pool
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Hello, Kind, Purpose
from ictp2p.bulk.pool import MOST_OF_ONE
from ictp2p.errors import HandshakeFailed, NetworkError, PeerClosed, RemoteProtocolError, Unreachable
from ictp2p.types import PeerId
from tests.bulk.conftest import MemoryTransport

Meshes = Callable[..., Any]
PROFILE = BulkProfile(stall=0.4, handshake=0.4, patience=0.05)


async def echo(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
    yield peer.encode() + payload * 50_000


async def ask(world: Any, a: int, b: int) -> bool:
    me, peer = world.names[a], world.names[b]
    expected = me.encode() + b"hello" * 50_000
    into = bytearray(len(expected))
    world.bulks[peer].serve("echo", echo)
    await world.bulks[me].request(peer, "echo", b"hello", into, timeout=4)
    return into == expected


async def test_who_asks_to_be_dialed_does_not_take_what_the_other_end_makes_for_itself(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    world.block((0, 1))
    world.deaf.add(b)
    asking = asyncio.ensure_future(world.bulks[a].connection(b, 5))
    await asyncio.sleep(0.01)
    await world.bulks[b]._pool.another(a)
    await asyncio.sleep(0.01)
    assert not asking.done()
    first = await world.bulks[b].connection(a, 5)
    assert (await asking).transport is first.transport.other


async def test_a_peer_that_cannot_be_dialed_is_asked_to_dial(mesh: Meshes) -> None:
    world = mesh(2)
    world.block((0, 1))
    assert await ask(world, 0, 1)
    assert [(a, b) for a, b, _ in world.links] == [(world.names[1], world.names[0])]


async def test_two_peers_that_cannot_dial_each_other_meet_at_a_relay_which_reads_nothing(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (1, 0))
    world.via[world.names[0]] = [world.names[2]]
    assert await ask(world, 0, 1)
    carried = b"".join(bytes(end.sent) for end in world.ends(2))
    assert b"hello" not in carried
    assert await ask(world, 1, 0), "the connection is warm in both directions"
    assert "connections=0" in repr(world.bulks[world.names[2]])


@pytest.mark.parametrize("silent", [False, True])
async def test_relays_are_tried_before_who_is_not_heard_of(mesh: Meshes, silent: bool) -> None:
    """Regression: a line that was known to be cut was dialed all the same, and the way around began seconds later."""
    world = mesh(3, profile=replace(PROFILE, patience=30.0))
    (me, peer, relay) = world.names
    world.via[me] = [relay, peer] if silent else [relay]
    connection = await world.bulks[me].connection(peer, 4)
    assert connection.relayed == silent


async def test_a_relay_asks_a_target_that_it_cannot_dial(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (1, 0), (2, 1))
    world.via[world.names[0]] = [world.names[2]]
    assert await ask(world, 0, 1)


async def test_a_way_may_take_several_relays(mesh: Meshes) -> None:
    world = mesh(4)
    world.block((0, 1), (1, 0), (2, 1), (1, 2))
    world.via = {world.names[0]: [world.names[2]], world.names[2]: [world.names[3]]}
    world.deaf.add(world.names[1])
    assert await ask(world, 0, 1)


async def test_relays_that_point_at_each_other_give_up(mesh: Meshes) -> None:
    world = mesh(4)
    world.block((0, 1), (1, 0), (2, 1), (3, 1))
    world.via = {world.names[n]: [world.names[m]] for n, m in ((0, 2), (2, 3), (3, 2))}
    world.deaf.add(world.names[1])
    with pytest.raises(Unreachable):
        await world.bulks[world.names[0]].connection(world.names[1], 4)
    assert len(world.links) < 16


async def test_a_relay_that_dies_ends_both_ends(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (1, 0))
    world.via[world.names[0]] = [world.names[2]]
    assert await ask(world, 0, 1)
    world.kill(2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert all("connections=0" in repr(bulk) for bulk in world.bulks.values())


async def test_a_relay_has_its_limit(mesh: Meshes) -> None:
    world = mesh(3, profile=replace(PROFILE, relayed=0))
    world.block((0, 1), (1, 0))
    world.deaf.add(world.names[1])
    world.via[world.names[0]] = [world.names[2]]
    with pytest.raises(Unreachable, match="relay is full"):
        await world.bulks[world.names[0]].connection(world.names[1], 4)


async def test_a_relay_slows_its_sender_down_instead_of_storing(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (1, 0))
    world.via[world.names[0]] = [world.names[2]]
    assert await ask(world, 0, 1)
    for end in world.ends(1):
        end.other.frozen = True  # nothing reaches participant 1 any more
    probing = asyncio.ensure_future(world.bulks[world.names[0]].probe(world.names[1], 64_000_000, timeout=2))
    await asyncio.sleep(0.1)
    assert max(end.get_write_buffer_size() for end in world.ends(2)) < 2_000_000
    with pytest.raises(NetworkError):
        await probing


@pytest.mark.parametrize("stranger", ["unknown", "wrong keys", "another", "dialed by another", "other sealing"])
async def test_who_does_not_hold_the_keys_is_refused_on_both_sides(mesh: Meshes, stranger: str) -> None:
    world = mesh(2)
    a, b = world.names
    unlike: list[PeerId] = []
    if stranger == "unknown":
        world.bulks[b]._pool._handshake._keys = lambda peer, context: world.keys(b)(PeerId("f" * 32), context)
    elif stranger == "wrong keys":
        world.bulks[b]._pool._handshake._keys = lambda peer, context: world.keys(b)(peer, context + b"!")
    elif stranger == "other sealing":
        world.bulks[b] = world.join(b, replace(PROFILE, sealed=False))
        world.bulks[b]._pool._handshake._unlike = unlike.append
    else:  # by whose card of another the keys were agreed on
        who = b if stranger == "another" else a
        world.bulks[who]._pool._handshake._keys = lambda peer, context: world.keys(who)(peer, context)._replace(
            proof=b"of somebody else"
        )
    world.deaf.add(b)
    expected = {
        "unknown": "is not known|refused",
        "wrong keys": "forged|reset",
        "another": "does not prove to be it",
        "dialed by another": "reset|closed",
        "other sealing": "one side seals",
    }[stranger]
    with pytest.raises(Unreachable, match=expected):
        await world.bulks[a].connection(b, 3)
    assert unlike == ([a] if stranger == "other sealing" else [])
    assert all("connections=0" in repr(bulk) for bulk in world.bulks.values())


async def test_what_a_refusal_says_is_shown_and_not_obeyed(mesh: Meshes) -> None:
    """Regression: anybody on the way can refuse, and what it said reached a terminal as it came."""
    world = mesh(2)
    a, b = world.names
    pool = world.bulks[a]._pool
    hello = Hello(Purpose.DIRECT, a, b, bytes(32))
    dialed: Any = SimpleNamespace(hello=hello)
    said = b"\x1b[2J\x1b[31m\r\nroot@host# ".ljust(32)
    with pytest.raises(HandshakeFailed) as caught:
        pool.greeted(dialed, replace(hello, purpose=Purpose.REFUSAL, nonce=said))
    assert str(caught.value) == rf"{b} refused: \x1b[2J\x1b[31m\r\nroot@host#"


async def test_a_silent_or_garbling_dialer_is_dropped(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    silent = await world.dial(a, b, 1)
    garbling = await world.dial(a, b, 1)
    garbling.write(bytes(200))
    for _ in range(5):
        await asyncio.sleep(0)
    assert garbling.other.is_closing()
    assert not silent.other.is_closing()
    await asyncio.sleep(0.5)
    assert silent.other.is_closing()
    assert not world.bulks[b]._pool._half_open


async def test_half_open_connections_are_bounded(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(PROFILE, half_open=3))
    ends = [await world.dial(*world.names, 1) for _ in range(5)]
    assert [end.other.is_closing() for end in ends] == [False, False, False, True, True]


async def test_a_flood_from_one_network_keeps_no_other_out(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(PROFILE, half_open=3))
    flood = [await world.dial(*world.names, 1) for _ in range(3)]
    mine, theirs = MemoryTransport(), MemoryTransport()
    mine.other, theirs.other = theirs, mine
    theirs._extra["peername"] = ("192.0.2.7", 5)
    world.bulks[world.names[1]].accept(theirs)
    assert [end.other.is_closing() for end in flood] == [True, False, False]
    assert not theirs.is_closing()


async def test_one_peer_keeps_so_many_connections_and_no_more(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    opened = [await world.bulks[a]._pool._reaching.dialed(b) for _ in range(MOST_OF_ONE + 3)]
    kept = world.bulks[b]._pool.among(a)
    await asyncio.sleep(0)
    assert len(kept) == MOST_OF_ONE
    assert [each.closed for each in opened] == [True] * 3 + [False] * MOST_OF_ONE, "the oldest went"
    assert await ask(world, 0, 1)
    assert await ask(world, 1, 0)


async def test_what_a_peer_asked_us_to_dial_counts_as_what_it_dialed(mesh: Meshes) -> None:
    """Regression: whoever asked for it had as many as it liked, unless it counted them itself."""
    world = mesh(2)
    a, b = world.names
    handshake = world.bulks[a]._pool._handshake
    answer = handshake.answer

    def uncounted(connection: BulkConnection, hello: Hello, *, beside: bool) -> None:
        answer(connection, hello, beside=beside)
        connection.dialed = True

    handshake.answer = uncounted
    for number in range(MOST_OF_ONE + 3):
        await world.bulks[b].answer_ticket(a, bytes([number] * 16))
        await asyncio.sleep(0.01)
    assert len(world.bulks[b]._pool.among(a)) == MOST_OF_ONE
    assert await ask(world, 0, 1)
    assert await ask(world, 1, 0)


async def test_of_too_many_the_oldest_goes_and_not_the_first_one(mesh: Meshes) -> None:
    """Regression: what one end has for itself counts as well, and of dead ones of it every first one went at once."""
    world = mesh(2)
    a, b = world.names
    reaching, opened = world.bulks[a]._pool._reaching, []
    for number in range(MOST_OF_ONE + 2):
        opened.append(await reaching.dialed(b, beside=number != MOST_OF_ONE))
        await asyncio.sleep(0.01)
    assert [each.closed for each in opened] == [True] * 2 + [False] * MOST_OF_ONE


async def test_who_is_dialed_takes_nothing_for_itself_that_it_did_not_ask_for(mesh: Meshes) -> None:
    """Who dialed would find no connection for both ends the next time, and dial for each call, without end."""
    world = mesh(2)
    a, b = world.names
    world.deaf.add(b)
    world.bulks[b]._pool._reaching.one_more = lambda ticket: True
    with pytest.raises(Unreachable, match="took for itself a connection that it had not asked for"):
        await world.bulks[a].connection(b, 1)
    assert not world.bulks[a].connections


async def test_a_hello_for_somebody_else_is_refused(mesh: Meshes) -> None:
    world = mesh(2)
    end = await world.dial(*world.names, 1)
    end.write(Hello(Purpose.DIRECT, world.names[0], PeerId("9" * 32), bytes(32)).pack())
    for _ in range(5):
        await asyncio.sleep(0)
    assert end.other.is_closing()


async def test_nothing_is_taken_in_clear_before_the_keys_are_confirmed(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(PROFILE, sealed=False))
    end = await world.dial(*world.names, 1)
    end.write(Hello(Purpose.DIRECT, *world.names, bytes(32), sealed=False).pack())
    end.write(Header(Kind.PARTIAL, bytes(16), length=4).pack())
    for _ in range(5):
        await asyncio.sleep(0)
    assert end.other.is_closing()


async def test_a_ticket_has_sixteen_bytes(mesh: Meshes) -> None:
    world = mesh(2)
    with pytest.raises(RemoteProtocolError, match="ticket of 3 bytes"):
        await world.bulks[world.names[0]].answer_ticket(world.names[1], b"abc")


def held_back(bulk: Bulk) -> asyncio.Event:
    """Until this is set, nobody whom `bulk` dials is reached."""
    gate, dial = asyncio.Event(), bulk._pool._reaching._dial

    async def slow(peer: PeerId, timeout: float) -> asyncio.Transport:
        await gate.wait()
        return await dial(peer, timeout)

    bulk._pool._reaching._dial = slow
    return gate


async def test_who_lost_its_first_connection_dials_though_the_other_end_has_made_one_for_itself_since(
    mesh: Meshes,
) -> None:
    """Regression: that was taken for a first one, so the peer was waited for, which takes its own for whole."""
    world = mesh(2, profile=replace(PROFILE, patience=30.0))
    a, b = world.names
    pools = [world.bulks[me]._pool for me in world.names]
    (await pools[0].connection(b, 5)).hang_up(PeerClosed("for its end"))
    await asyncio.sleep(0.01)
    await pools[0].another(b)
    await asyncio.sleep(0.01)
    first = await pools[1].connection(a, 1, patient=True)
    assert first.dialed
    assert not first.beside
    assert asyncio.get_running_loop().time() < 0.1


@pytest.mark.parametrize("end", ["kill", "close"])
async def test_who_may_be_no_more_is_dialed_at_once_and_not_left_to_dial(mesh: Meshes, end: str) -> None:
    """Regression: every call of a process group with a rank that had died took a second to fail, and named others."""
    world = mesh(2, profile=replace(PROFILE, patience=30.0))
    (dead, me), loop = world.names, asyncio.get_running_loop()
    dialing = asyncio.ensure_future(world.bulks[dead].connection(me, 4))
    await world.bulks[me]._pool.connection(dead, 4, patient=True)
    await dialing
    assert [(a, b) for a, b, _ in world.links] == [(dead, me)], "it was left to the lower one"
    if end == "close":
        await world.bulks[dead].close()
    world.kill(0)
    await asyncio.sleep(0.01)
    for _ in range(2):
        began = loop.time()
        with pytest.raises(Unreachable, match="cannot dial"):
            await world.bulks[me]._pool.connection(dead, 4, patient=True)
        assert loop.time() < began + PROFILE.handshake + 0.1, "it was asked to dial, and not waited for before that"


async def test_so_many_are_remembered_who_may_be_no_more(mesh: Meshes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_PARTED", 2)
    world = mesh(4)
    *others, me = world.names
    for peer in (*others, others[0]):
        await world.bulks[me].connection(peer, 4)
        for end in world.ends(3):
            end.reset()
        await asyncio.sleep(0.01)
    assert [*world.bulks[me]._pool._parted] == [others[2], others[0]]


async def test_what_both_ends_may_use_outlasts_the_wait_for_it(mesh: Meshes) -> None:
    """Regression: another way had been taken, and the connection was ended under what the other end began on it."""
    world = mesh(2)
    a, b = world.names
    pools = [world.bulks[me]._pool for me in world.names]
    for taken in range(30):
        dialing = asyncio.ensure_future(pools[0]._reaching.dialed(b))
        for _ in range(taken):
            await asyncio.sleep(0)
        ready = pools[1].among(a)
        dialing.cancel()
        await asyncio.gather(dialing, return_exceptions=True)
        await asyncio.sleep(1)
        assert ready == pools[1].among(a)[: len(ready)], "what was ready at the other end"
        assert not pools[0]._half_open
        assert not pools[0]._greeting
        assert len(pools[0]) == len(pools[1])
        for each in pools[0].among(b):
            each.hang_up(PeerClosed("for the next one"))
        await asyncio.sleep(0.01)


async def test_one_caller_giving_up_does_not_end_the_dial_of_another(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    gate = held_back(world.bulks[a])
    patient = asyncio.ensure_future(world.bulks[a].connection(b, 5))
    with pytest.raises(Unreachable, match=r"within 0\.01 s"):
        await world.bulks[a].connection(b, 0.01)
    gate.set()
    assert (await patient).peer == b


async def test_a_ticket_whose_dial_ends_after_the_pool_was_closed_leaves_nothing_open(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    gate = held_back(world.bulks[a])
    answer = asyncio.ensure_future(world.bulks[a].answer_ticket(b, bytes(16)))
    await asyncio.sleep(0)
    await world.bulks[a].close()
    gate.set()
    with pytest.raises(PeerClosed):
        await answer
    assert world.ends(0)[0].is_closing()


@pytest.mark.parametrize("turns", range(3))
async def test_who_waits_for_a_connection_as_the_pool_is_closed_hears_of_that(mesh: Meshes, turns: int) -> None:
    """Regression: it was cancelled, though nobody had cancelled it; who is, as well, stays so."""
    world = mesh(2)
    a, b = world.names
    held_back(world.bulks[a])
    waiting = [
        asyncio.ensure_future(each)
        for each in (
            world.bulks[a].connection(b, 5),
            world.bulks[a].request(b, "echo", b"", bytearray(1), timeout=5),
            world.bulks[a].probe(b, 100_000, timeout=5),
            world.bulks[a].connection(b, 5),
        )
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(world.bulks[a].close())
    if turns:
        await asyncio.sleep(0)
        waiting[-1].cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    await closing
    cancelled = [PeerClosed, asyncio.CancelledError][turns > 0]
    assert [type(each) for each in outcomes] == [PeerClosed, PeerClosed, PeerClosed, cancelled]


async def test_several_who_wait_for_one_peer_all_get_it_and_of_who_never_came_nothing_is_kept(mesh: Meshes) -> None:
    world = mesh(3)
    world.block((0, 1), (0, 2))
    world.deaf.add(world.names[2])
    bulk, there, silent = world.bulks[world.names[0]], world.names[1], world.names[2]
    warm = await asyncio.gather(*(bulk.connection(there, 4) for _ in range(3)))
    assert all(connection is warm[0] for connection in warm)
    with pytest.raises(Unreachable):
        await bulk.connection(silent, 1)
    assert not bulk._pool._arrivals


async def test_of_a_peer_whose_connections_have_ended_nothing_is_kept(mesh: Meshes) -> None:
    """Who has no disk is another peer after each start: what stays of each is too much after months."""
    world = mesh(2)
    bulk, there = world.bulks[world.names[0]], world.names[1]
    await bulk.connection(there, 4)
    assert there in bulk._pool._ready
    world.kill(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not bulk._pool._ready


async def test_who_is_not_ready_soon_is_dialed_again_with_small_packets(mesh: Meshes) -> None:
    world = mesh(2)
    world.deaf.add(world.names[1])
    dial, dials = world.dial, []

    async def first_one_vanishes(me: PeerId, peer: PeerId, timeout: float) -> asyncio.Transport:
        transport = await dial(me, peer, timeout)
        dials.append(transport)
        transport.other.frozen = len(dials) == 1  # what its other end says does not arrive
        return transport

    world.dial = first_one_vanishes
    a, b = world.names
    connection = await world.bulks[a].connection(b, 5.0)
    assert world.shrunk == [a]
    assert connection.transport is dials[1]
    assert [each.is_closing() for each in dials] == [True, False]


@pytest.mark.parametrize("asks", [True, False])
async def test_what_comes_in_while_a_dial_hangs_is_for_whoever_waits(mesh: Meshes, *, asks: bool) -> None:
    """Regression: it came during the head start of the dial, and who was to dial next waited for another one."""
    world = mesh(2)
    a, b = world.names
    if not asks:
        world.deaf.add(b)
    gate, loop = held_back(world.bulks[a]), asyncio.get_running_loop()
    began = loop.time()
    waiting = asyncio.ensure_future(world.bulks[a].connection(b, 0.3))
    await asyncio.sleep(0)
    await world.bulks[b].connection(a, 5)
    assert (await waiting).peer == b
    assert loop.time() - began < 0.3
    gate.set()


async def test_what_came_in_while_a_dial_hung_and_nobody_listened_any_more_is_there_at_the_end(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    world.deaf.add(b)
    held_back(world.bulks[a])
    waiting = asyncio.ensure_future(world.bulks[a].connection(b, 2 * PROFILE.handshake))
    await asyncio.sleep(1.5 * PROFILE.handshake)  # b was asked to dial, and did not
    came = await world.bulks[b].connection(a, 5)
    assert not waiting.done()
    assert (await waiting).transport is came.transport.other


@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_close_that_is_given_up_ends_what_is_relayed_and_what_is_warm(mesh: Meshes, turns: int) -> None:
    world = mesh(3)
    a, b, c = world.names
    world.block((0, 1), (1, 0))
    world.via.update({a: [c], b: [c]})
    await world.bulks[a].connection(b, 5)
    await world.bulks[c].connection(a, 5)
    closing = asyncio.ensure_future(world.bulks[c].close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert all(end.is_closing() for end in world.ends(2))
