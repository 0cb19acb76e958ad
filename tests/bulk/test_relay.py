"""What a relay holds while it joins two connections, and that it lets go of all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ictp2p.bulk import BulkProfile
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Hello, Purpose
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.relay import Relay
from ictp2p.bulk.splice import Splice
from ictp2p.errors import Exhausted, PeerClosed, Unreachable, VersionMismatch
from ictp2p.types import PeerId
from tests.garbage import uncollected

Links = Callable[[], Any]
SOURCE, TARGET = PeerId("1" * 32), PeerId("2" * 32)
KEY = b"of this mesh"
PROFILE = BulkProfile(stall=60, handshake=60)


def asked(number: int = 0, key: bytes = KEY) -> Hello:
    """The hello of a member that asks to be relayed."""
    hello = Hello(Purpose.RELAY, SOURCE, TARGET, number.to_bytes(32, "big"), hops=2)
    return Membership(key).proven(hello)


def connection(transport: Any) -> BulkConnection:
    made = BulkConnection(None, time.monotonic, 60, 1, None)  # type: ignore[arg-type]
    made.connection_made(transport)
    return made


def unheeded(host: str) -> None:
    """Nobody asks how large packets to a host may be."""


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_target_that_dials_in_the_moment_in_which_the_relay_gives_up_is_hung_up_on(link: Links) -> None:
    async def unreachable(peer: PeerId, timeout: float) -> asyncio.Transport:
        raise Unreachable(peer)

    asked: list[bytes] = []
    relay = Relay(
        unreachable,
        lambda peer, ticket: asked.append(ticket),
        lambda _: (),
        PROFILE,
        lambda n: bytes(n),
        Membership(KEY),
        unheeded,
    )
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

    relay = Relay(foreign, None, lambda _: (PeerId("3" * 32),), PROFILE, lambda n: bytes(n), Membership(KEY), unheeded)
    incoming = link()
    relay.join(connection(incoming), asked())
    await turns()
    assert incoming.is_closing()
    assert b"speaks 7" in incoming.sent


@pytest.mark.parametrize("error", [PeerClosed("closed"), Exhausted("threads"), RuntimeError("nobody thought of this")])
async def test_whatever_ends_the_search_for_a_way_ends_who_asked_for_it(link: Links, error: Exception) -> None:
    """Regression: nobody read from it any more, so that it stayed when its other end had gone as well."""

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        raise error

    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    relay = Relay(dial, None, lambda _: (), PROFILE, lambda n: bytes(n), Membership(KEY), unheeded)
    incoming = link()
    relay.join(connection(incoming), asked())
    await turns()
    assert incoming.is_closing()


async def test_an_end_that_still_has_bytes_to_send_when_the_relay_closes_is_ended(link: Links) -> None:
    onward = link()

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        return onward

    relay = Relay(dial, None, lambda _: (), PROFILE, lambda n: bytes(n), Membership(KEY), unheeded)
    incoming = link()
    relay.join(connection(incoming), asked())
    await turns()
    onward.frozen = True
    incoming.other.write(b"never read")
    await turns()
    incoming.other.close()
    await turns()
    assert onward.get_write_buffer_size()
    await relay.close()
    assert not onward.get_write_buffer_size()
    assert onward.is_closing()


@pytest.mark.parametrize(("asking", "places"), [(40, 32), (33, 32), (32, 32), (5, 3), (1, 0)])
async def test_of_those_who_ask_at_once_only_the_surplus_is_refused(link: Links, asking: int, places: int) -> None:
    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        made: asyncio.Transport = link()
        return made

    relay = Relay(
        dial, None, lambda _: (), replace(PROFILE, relayed=places), lambda n: bytes(n), Membership(KEY), unheeded
    )
    incoming = [link() for _ in range(asking)]
    for number, each in enumerate(incoming):
        relay.join(connection(each), asked(number))
    await turns()
    refused = [each for each in incoming if each.is_closing()]
    assert len(refused) == max(0, asking - places)
    assert all(b"relay is full" in each.sent for each in refused)
    again = link()
    relay.join(connection(again), asked(asking))
    await turns()
    assert again.is_closing() == (asking >= places), "a place that is taken counts once"
    await relay.close()


async def test_strangers_occupy_no_place_and_nobody_is_dialed_for_them(link: Links) -> None:
    dialed: list[PeerId] = []

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        dialed.append(peer)
        made: asyncio.Transport = link()
        return made

    relay = Relay(dial, None, lambda _: (), replace(PROFILE, relayed=2), lambda n: bytes(n), Membership(KEY), unheeded)
    seen = asked(7)
    member = link()
    relay.join(connection(member), seen)
    await turns()
    assert len(dialed) == 1
    forged = [asked(1, b"another key"), replace(asked(2), ticket=bytes(16)), replace(asked(3), nonce=bytes(32)), seen]
    for hello in forged:
        incoming = link()
        relay.join(connection(incoming), hello)
        await turns()
        assert incoming.is_closing()
        assert b"not proven to be a member, once" in incoming.sent
    assert len(dialed) == 1
    other = link()
    relay.join(connection(other), asked(8))
    await turns()
    assert len(dialed) == 2
    await relay.close()


async def test_without_a_key_nobody_is_relayed_for(link: Links) -> None:
    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        raise AssertionError

    relay = Relay(dial, None, lambda _: (), PROFILE, lambda n: bytes(n), Membership(b""), unheeded)
    incoming = link()
    relay.join(connection(incoming), asked(key=b""))
    await turns()
    assert incoming.is_closing()


async def test_what_was_relayed_leaves_nothing_to_the_garbage_collector(link: Links) -> None:
    """Regression: what its ends called when both were gone knew them, and half a megabyte of buffers."""
    incoming, onward = link(), link()

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        made: asyncio.Transport = onward
        return made

    relay = Relay(dial, None, lambda _: (), PROFILE, lambda n: bytes(n), Membership(KEY), unheeded)
    with uncollected(Splice) as left:
        relay.join(connection(incoming), asked())
        await turns()
        for each in (incoming, onward):
            each.reset()
            await turns()
            each.set_protocol(asyncio.Protocol())  # as a transport forgets it that is closed
        assert not relay._occupied()
    assert left == []
