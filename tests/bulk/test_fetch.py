"""The asking side of a request: a wrong reply ends that request and nothing else; what is given is gone once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.frames import Buffer, Header, Kind
from ictp2p.bulk.streams import RECEIPT, Fetch, Request
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, Plan, Share
from ictp2p.collectives.running import execute
from ictp2p.errors import StateError
from ictp2p.types import PeerId
from tests.bulk.conftest import PROFILE

TAG = bytes(16)


@given(st.integers(0, 100), st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=8), st.binary(max_size=9))
def test_a_reply_lands_in_its_destination_or_ends_its_request(
    room: int, pieces: list[tuple[int, bool]], beyond: bytes
) -> None:
    """Whatever comes, in whatever order: never an error of the connection, never a byte in the wrong place."""

    async def story() -> None:
        memory = bytearray(room) + beyond
        fetch = Fetch(memoryview(memory)[:room], None, lambda: 0.0)
        filled, right = 0, True
        for length, in_order in pieces:
            header = Header(Kind.REPLY, TAG, 0, filled if in_order else filled + 1, length)
            right = right and in_order and filled + length <= room
            place = fetch.place(header)
            assert (place is not None) is right
            if place is not None:
                assert len(place) == length
                place[:] = b"x" * length
                filled += length
            fetch.take(header, memoryview(bytes(length)))
        fetch.take(Header(Kind.END, TAG, 0, filled, 0), memoryview(b""))
        assert fetch.ended
        assert bytes(memory) == b"x" * filled + bytes(room - filled) + beyond
        if right:
            assert fetch.result.result() == filled
        else:
            assert isinstance(fetch.result.exception(), StateError)

    asyncio.run(story())


@pytest.mark.parametrize("sealed", [True, False])
async def test_what_runs_on_the_same_connection_outlives_a_reply_that_is_too_long(
    mesh: Callable[..., Any], sealed: bool
) -> None:
    """Regression: the connection ended, and with it every collective on it."""

    async def long(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        for _ in range(4):
            yield bytes(1_000_000)

    world = mesh(2, profile=replace(PROFILE, stall=60.0, handshake=5.0, sealed=sealed))
    a, b = world.names
    world.bulks[b].serve("long", long)
    elements = 3_000_000
    ours, theirs = torch.ones(elements, dtype=torch.uint8), torch.zeros(elements, dtype=torch.uint8)
    trees = (Share(0, elements, 0, (NO_PARENT,) * 2, (NO_PARENT, 0)),)
    plan, tag = Plan(BROADCAST, (a, b), trees, 2**18, 0.0, 0.0), RoundTag(b"x", 1, 0, b"")
    together = asyncio.gather(
        execute.broadcast(plan, 0, [ours], world.bulks[a], tag),
        execute.broadcast(plan, 1, [theirs], world.bulks[b], tag),
    )
    await world.bulks[a].connection(b, 5)
    with pytest.raises(StateError, match=r"reply bytes \[\d+, \d+\) at \d+ of 1500000"):
        await world.bulks[a].request(b, "long", b"", bytearray(1_500_000), timeout=5)
    await together
    assert torch.equal(ours, theirs)
    assert len(world.links) == 1, "it is the same connection"
    for _ in range(50):
        await asyncio.sleep(0)
    assert not world.bulks[b]._users, "the serving side goes on"


async def test_a_reason_that_is_no_text_arrives_all_the_same(mesh: Callable[..., Any]) -> None:
    """Regression: no end was sent, and who had asked waited for its whole timeout."""

    async def broken(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        raise StateError("no \udcff")
        yield b""

    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("broken", broken)
    with pytest.raises(StateError, match=r"StateError: no \?"):
        await world.bulks[a].request(b, "broken", b"", bytearray(1), timeout=5)


async def test_what_is_given_away_is_gone_once_who_asked_has_all_of_it_and_not_before(mesh: Callable[..., Any]) -> None:
    """Whenever it stops asking: either both know that it was given, or both that it was not."""
    given = stopped = 0

    async def gift(peer: PeerId, payload: bytes) -> AsyncGenerator[Buffer, None]:
        nonlocal given
        yield bytes(300_000)
        yield RECEIPT
        given += 1

    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("gift", gift)
    await world.bulks[a].connection(b, 5)
    for turns in range(80):
        before, room = given, bytearray(300_000)
        asking = asyncio.ensure_future(world.bulks[a].request(b, "gift", b"", room, timeout=5, receipt=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        stopped += (await asyncio.gather(asking, return_exceptions=True)) != [300_000]
        for _ in range(50):
            await asyncio.sleep(0)
        assert (given == before + 1) == (not asking.cancelled())
        assert not world.bulks[b]._users, "nobody waits for a word that will not come"
    assert 0 < stopped < 80
    assert given == 80 - stopped


async def test_who_is_to_say_that_it_has_all_and_falls_silent_is_given_up(mesh: Callable[..., Any]) -> None:
    ended = asyncio.Event()

    async def gift(peer: PeerId, payload: bytes) -> AsyncGenerator[Buffer, None]:
        try:
            yield b"a gift"
            yield RECEIPT
        finally:
            ended.set()

    world = mesh(2)
    a, b = world.names
    world.bulks[b].serve("gift", gift)
    asking = await world.bulks[a].connection(b, 5)
    asking.send(Kind.REQUEST, b"t" * 16, body=msgspec.msgpack.encode(Request("gift", b"")))
    async with asyncio.timeout(20):
        await ended.wait()
