"""What a relay holds while it joins two connections, and that it lets go of all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Hello, Purpose
from ictp2p.bulk.relay import Relay
from ictp2p.errors import Unreachable, VersionMismatch
from ictp2p.types import PeerId

Links = Callable[[], Any]
SOURCE, TARGET = PeerId("1" * 32), PeerId("2" * 32)
HELLO = Hello(Purpose.RELAY, SOURCE, TARGET, bytes(32), hops=2)
PROFILE = BulkProfile(stall=60, handshake=60)


def connection(transport: Any) -> BulkConnection:
    made = BulkConnection(None, time.monotonic, 60, 1, None)  # type: ignore[arg-type]
    made.transport = transport
    return made


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_target_that_dials_in_the_moment_in_which_the_relay_gives_up_is_hung_up_on(link: Links) -> None:
    async def unreachable(peer: PeerId, timeout: float) -> asyncio.Transport:
        raise Unreachable(peer)

    asked: list[bytes] = []
    relay = Relay(unreachable, lambda peer, ticket: asked.append(ticket), lambda _: (), PROFILE, lambda n: bytes(n))
    waiting = asyncio.ensure_future(relay._asked(TARGET))
    await turns()
    arriving = link()
    assert relay.take(connection(arriving), asked[0])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert arriving.is_closing()


async def test_a_relay_whose_way_onward_speaks_another_version_says_so_to_who_asked(link: Links) -> None:
    async def foreign(peer: PeerId, timeout: float) -> asyncio.Transport:
        raise VersionMismatch("speaks 7")

    relay = Relay(foreign, None, lambda _: (PeerId("3" * 32),), PROFILE, lambda n: bytes(n))
    incoming = link()
    relay.join(connection(incoming), HELLO)
    await turns()
    assert incoming.is_closing()
    assert b"speaks 7" in incoming.sent


async def test_an_end_that_still_has_bytes_to_send_when_the_relay_closes_is_ended(link: Links) -> None:
    onward = link()

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        return onward

    relay = Relay(dial, None, lambda _: (), PROFILE, lambda n: bytes(n))
    incoming = link()
    relay.join(connection(incoming), HELLO)
    await turns()
    onward.frozen = True
    incoming.other.write(b"never read")
    await turns()
    incoming.reset()
    await turns()
    assert onward.get_write_buffer_size()
    await relay.close()
    assert not onward.get_write_buffer_size()
    assert onward.is_closing()
