"""Who of a connection's users sends when: each in turn, and nobody is asked who has said that there is nothing."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import connection as bulk_connection
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.limit import Ceiling
from ictp2p.bulk.streams import MOST_REASON, Request
from ictp2p.bulk.users import Frame
from ictp2p.errors import ConnectionLost, IctError, StateError
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE, MemoryTransport, Mesh, run_turns
from tests.garbage import LARGE, uncollected

Meshes = Callable[..., Any]


class Talker:
    """Sends as many frames as it has been given, and counts how often it is asked (`users.User`)."""

    def __init__(self, number: int, said: list[int]) -> None:
        self.left = self.asked = 0
        self._number = number
        self._said = said

    def next_frame(self) -> Frame | None:
        self.asked += 1
        if not self.left:
            return None
        self.left -= 1
        self._said.append(self._number)
        return Frame(Kind.PARTIAL, bytes([self._number]) * 16, 0, 0, (b"x",))

    def place(self, header: Header) -> memoryview | None:
        return None

    def take(self, header: Header, body: memoryview) -> None:
        """Nothing comes back."""

    def expecting(self) -> bool:
        return False

    def lost(self, error: IctError) -> None:
        """Nothing is lost."""


async def connected(world: Mesh) -> BulkConnection:
    a, b = world.names[:2]
    return await world.bulks[a].connection(b, 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=20))
def test_whoever_says_so_sends_all_it_has_and_is_asked_no_oftener_than_that_takes(
    events: list[tuple[int, int]],
) -> None:
    async def story() -> None:
        world, said = Mesh(2), list[int]()
        connection = await connected(world)
        talkers = [Talker(n, said) for n in range(5)]
        for talker in talkers:
            connection.join(talker)
        for who, frames in events:
            talkers[who].left += frames
            connection.kick(talkers[who])
            await asyncio.sleep(0.01)
        for who, talker in enumerate(talkers):
            kicks = [frames for each, frames in events if each == who]
            assert talker.left == 0
            assert talker.asked <= 1 + len(kicks) + sum(kicks)
        assert len(said) == sum(frames for _, frames in events)
        await world.close()

    run_turns(story())


async def test_those_who_have_something_to_send_take_turns(mesh: Meshes) -> None:
    connection, said = await connected(mesh(2)), list[int]()
    talkers = [Talker(n, said) for n in range(3)]
    connection.pause_writing()
    for talker, talker.left in zip(talkers, (3, 1, 2), strict=True):
        connection.join(talker)
    connection.resume_writing()
    assert said == [0, 1, 2, 0, 2, 0]


async def test_who_asks_and_does_not_read_the_answers_has_few_of_them_kept(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_connection, "MOST_WAITING", 50)
    world = mesh(2)
    asking = await connected(world)
    answering = world.bulks[world.names[1]]._pool.warm(world.names[0])
    answering.pause_writing()
    for number in range(1000):
        asking.send(Kind.REQUEST, number.to_bytes(16), body=msgspec.msgpack.encode(Request("nothing", b"")))
    await asyncio.sleep(PROFILE.stall / 2)
    assert answering.closed
    assert len(answering._control) == 51
    answering.send(Kind.ALIVE)
    assert len(answering._control) == 51, "of one that has ended nothing leaves, and nothing is kept for it"


@pytest.mark.parametrize("kind", ["long", "\U000e0001" * 15_000, "x" * 60_000])
async def test_answers_that_wait_are_short_whatever_was_asked(mesh: Meshes, kind: str) -> None:
    """They are counted and not weighed, so none may be longer than the bound on their memory reckons with."""

    async def fails(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        raise StateError("no state " * 10_000)
        yield b""

    world = mesh(2)
    asking = await connected(world)
    world.bulks[world.names[1]].serve("long", fails)
    answering = world.bulks[world.names[1]]._pool.warm(world.names[0])
    answering.pause_writing()
    asking.send(Kind.REQUEST, bytes(16), body=msgspec.msgpack.encode(Request(kind, b"")))
    await asyncio.sleep(PROFILE.stall / 2)
    (answer,) = [frame for frame in answering._control if frame.kind is Kind.END]
    assert 0 < sum(map(len, answer.views)) <= MOST_REASON


@pytest.mark.parametrize("end", [lambda one: one.fail(ConnectionLost("over")), BulkConnection.release])
async def test_one_that_has_ended_leaves_nothing_to_the_garbage_collector(
    link: Callable[[], MemoryTransport], end: Callable[[BulkConnection], object]
) -> None:
    """Its buffers are as long as a chunk, and what looks after it, holds it back and shares its memory knows it."""

    class Nobody:
        def closed(self, *_: object) -> None: ...

    with uncollected(BulkConnection) as left:
        connection = BulkConnection(Nobody(), lambda: 0.0, 4.0, 1 << 20, None)  # type: ignore[arg-type]
        connection.connection_made(link())
        connection.keep_under(Ceiling(1e6, lambda: 0.0))
        connection.pace(1e6)
        connection.join(Talker(0, []))
        end(connection)
        del connection
    assert left == []


async def test_one_that_ends_in_the_middle_of_a_body_keeps_nobody_who_was_to_have_it(mesh: Meshes) -> None:
    """Regression: with bodies in clear its user was known, who knew it: its tensors waited for the collector."""

    class Taking(Talker):
        def place(self, header: Header) -> memoryview:
            return room

    room = memoryview(bytearray(LARGE))
    world = mesh(2, profile=replace(PROFILE, sealed=False))
    sending = await connected(world)
    me, peer = world.names[1], world.names[0]
    taking, user = world.bulks[me]._pool.warm(peer), Taking(0, [])
    assert taking is not None
    world.bulks[me].join(peer, bytes(16), user, taking)
    sending.send(Kind.RESULT, bytes(16), body=bytes(LARGE))
    while not 0 < taking._filled < LARGE:
        await asyncio.sleep(0)
    taking.fail(ConnectionLost("over"))
    world.bulks[me].part(peer, bytes(16), user)
    known = weakref.ref(user)
    del user
    assert known() is None


@pytest.mark.parametrize("cut", [0, 1, 40, 50])
async def test_one_that_ends_within_a_frame_has_not_brought_all_that_was_sent(mesh: Meshes, cut: int) -> None:
    """Regression: a proxy, or a relay, that ends both its halves looked like a peer that had said all."""
    world, told = mesh(2, profile=replace(PROFILE, sealed=False)), list[bool]()
    sending = await connected(world)
    bulk = world.bulks[world.names[1]]
    lost = bulk.lost
    bulk._pool._tenant.lost = lambda one, why, *, whole: [told.append(whole), lost(one, why, whole=whole)]
    frame = Header(Kind.RESULT, bytes(16), 0, 0, 100).pack() + bytes(100)
    sending.transport.write(frame + frame[:cut])
    sending.transport.close()
    await asyncio.sleep(PROFILE.stall)
    assert told == [not cut]


async def test_who_has_left_is_not_asked(mesh: Meshes) -> None:
    connection, said = await connected(mesh(2)), list[int]()
    talker = Talker(1, said)
    connection.pause_writing()
    connection.join(talker)
    talker.left = 1
    connection.leave(talker, bytes(16))
    connection.kick(talker)
    connection.resume_writing()
    assert not talker.asked
