"""Probes of a link: what both ends hear of them, whose turn it is, and how they end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ictp2p.bulk import BulkProfile, kernel
from ictp2p.bulk.frames import Kind
from ictp2p.bulk.streams import PROBE_CHUNK, PROBE_MOST, Probe
from ictp2p.bulk.turns import Turn
from ictp2p.errors import ConfigError, ConnectionLost
from tests.bulk.conftest import TURN
from tests.garbage import uncollected

Meshes = Callable[..., Any]


async def test_a_probe_is_measured_by_its_receiver_and_both_ends_hear_it(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    result = await world.bulks[a].probe(b, 2_000_000, timeout=5)
    assert result.size == 2_000_000 - PROBE_CHUNK
    assert not result.limited
    assert 0 < result.seconds < 5
    measured = {(me, peer, told.direction, told.size, told.seconds, told.limited) for me, peer, told in world.samples}
    assert measured == {
        (me, peer, way, result.size, result.seconds, False) for me, peer, way in ((b, a, "in"), (a, b, "out"))
    }
    assert all(told.probe for _, _, told in world.samples)
    with pytest.raises(ConfigError, match="probe of 0 bytes"):
        await world.bulks[a].probe(b, 0, timeout=5)


async def test_a_tiny_probe_is_measured_too_and_shows_nothing(mesh: Meshes) -> None:
    world = mesh(2)
    result = await world.bulks[world.names[0]].probe(world.names[1], 1, timeout=5)
    assert (result.size, result.limited) == (0, True)


async def test_a_probe_that_is_cut_short_behind_its_first_frame_does_not_show_more_than_the_line(mesh: Meshes) -> None:
    """Regression: plans took a line of 10 Mbit/s that nobody had measured for one of a GB/s, as that at least."""
    world = mesh(2)
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    for _, _, end in world.links:
        end.step = end.other.step = 25
    probing = asyncio.ensure_future(world.bulks[a].probe(b, 64_000_000, timeout=5))
    while connection.written < PROBE_CHUNK:
        await asyncio.sleep(0)
    world.bulks[a].stop_probes()
    assert (await probing).limited
    assert all(told.size / told.seconds < 25 / TURN for _, _, told in world.samples)


async def test_a_probe_that_is_cut_short_is_a_lower_bound_for_both_ends(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, 64_000_000, timeout=5))
    while connection.written < 5 * PROBE_CHUNK:  # enough for a sample
        await asyncio.sleep(0)
    world.bulks[a].stop_probes()
    result = await probing
    assert result.limited
    assert 3 * PROBE_CHUNK < result.size < 2_000_000
    measured = {(me, peer, told.direction, told.size, told.seconds, told.limited) for me, peer, told in world.samples}
    assert measured == {
        (me, peer, way, result.size, result.seconds, True) for me, peer, way in ((b, a, "in"), (a, b, "out"))
    }


async def test_who_is_probed_by_two_at_once_lets_one_after_the_other(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, target = world.names
    connections = [await world.bulks[name].connection(target, 1) for name in (a, b)]
    probing = [asyncio.ensure_future(world.bulks[name].probe(target, 4_000_000, timeout=5)) for name in (a, b)]
    sending = 0
    while not all(each.done() for each in probing):
        busy = [c.written > PROBE_CHUNK and not p.done() for c, p in zip(connections, probing, strict=True)]
        assert sum(busy) <= 1
        sending += any(busy)
        await asyncio.sleep(0)
    assert sending
    assert {each.result().size for each in probing} == {4_000_000 - PROBE_CHUNK}


async def test_a_probe_that_is_not_wanted_any_more_has_sent_nothing_and_takes_no_turn(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, target = world.names
    connections = [await world.bulks[name].connection(target, 1) for name in (a, b)]
    first = asyncio.ensure_future(world.bulks[a].probe(target, 64_000_000, timeout=5))
    while connections[0].written < 2 * PROBE_CHUNK:
        await asyncio.sleep(0)
    before = len(world.samples)
    second = asyncio.ensure_future(world.bulks[b].probe(target, 1_000_000, timeout=5))
    for _ in range(100):
        await asyncio.sleep(0)
    world.bulks[b].stop_probes()
    assert (await second).size == 0
    assert connections[1].written < PROBE_CHUNK
    assert all(size > 0 for size in [told.size for _, _, told in world.samples[before:]])
    world.bulks[a].stop_probes()
    await first
    assert (await world.bulks[b].probe(target, 1_000_000, timeout=1)).size == 1_000_000 - PROBE_CHUNK


async def test_a_probe_may_take_longer_than_a_peer_may_be_silent(mesh: Meshes) -> None:
    """Regression: with a stall deadline below a probe's two seconds it cost each slow link its connection."""
    world = mesh(2, profile=BulkProfile(stall=0.4, rate=1e6))
    a, b = world.names
    result = await world.bulks[a].probe(b, 64_000_000, timeout=5)
    assert result.seconds > 1.0
    assert not result.limited


async def test_what_kernels_hold_of_a_probe_may_take_longer_than_a_peer_may_be_silent(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: who is probed said nothing before it had all, and that cost slow links their connections."""
    world = mesh(2, profile=BulkProfile(stall=0.4))
    a, b = world.names
    connection, left = await world.bulks[a].connection(b, 1), itertools.count(10**6, -1)
    monkeypatch.setattr(kernel, "unacknowledged", lambda transport: next(left))
    probing = asyncio.ensure_future(world.bulks[a].probe(b, PROBE_CHUNK, timeout=5))
    while connection.written < PROBE_CHUNK:
        await asyncio.sleep(0)
    connection.transport.frozen = True
    await asyncio.sleep(2.0)
    assert not connection.closed
    connection.transport.frozen = False
    connection.transport._wake()
    assert (await probing).limited
    assert not connection.closed


async def test_who_is_probed_speaks_wherever_it_may_be_sent_to_until_that_is_over(mesh: Meshes) -> None:
    world = mesh(2, profile=BulkProfile(stall=0.4))
    a, b = world.names
    first = await world.bulks[a].connection(b, 1)
    before = await world.bulks[a]._pool.another(b)
    first.send(Kind.ASK, bytes(16))
    while first.received == before.received:  # the grant
        await asyncio.sleep(0)
    after = await world.bulks[a]._pool.another(b)
    for speaks in (True, False):
        heard = [each.received for each in (first, before, after)]
        await asyncio.sleep(0.4)
        now = [each.received for each in (first, before, after)]
        assert all((new > old) == speaks for old, new in zip(heard, now, strict=True))
        first.send(Kind.CANCEL, bytes(16))
        await asyncio.sleep(0.1)
    await world.close()


async def test_whose_probe_is_never_measured_is_given_up(mesh: Meshes) -> None:
    world = mesh(2, profile=BulkProfile(stall=0.4))
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, PROBE_CHUNK, timeout=5))
    while connection.written < PROBE_CHUNK:
        await asyncio.sleep(0)
    for end in world.ends(1):
        end.frozen = True
    with pytest.raises(ConnectionLost, match=r"sent nothing for 0\.4 s"):
        await probing


async def test_a_probe_that_is_granted_and_stopped_at_once_sends_nothing(mesh: Meshes) -> None:
    """Regression: who was asked for a state and granted a probe in one read of a connection sent both."""
    world = mesh(2)
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, 64_000_000, timeout=5))
    await asyncio.sleep(0)
    (turn,) = world.bulks[a].probing._sending
    while not turn.granted.done():
        await asyncio.sleep(0)
    world.bulks[a].stop_probes()
    assert (await probing).size == 0
    assert connection.written < PROBE_CHUNK
    assert (await world.bulks[a].probe(b, 1_000_000, timeout=1)).size == 1_000_000 - PROBE_CHUNK


async def test_a_probe_whose_connection_is_still_made_when_all_are_stopped_begins_no_more(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    probing = asyncio.ensure_future(world.bulks[a].probe(b, 64_000_000, timeout=5))
    while not world.links:
        await asyncio.sleep(0)
    world.bulks[a].stop_probes()
    assert (await probing).size == 0
    assert (await world.bulks[a].connection(b, 1)).written < PROBE_CHUNK


async def test_who_gives_up_a_probe_gives_its_turn_back(mesh: Meshes) -> None:
    """Regression: it was granted to nobody, and all others waited until its seconds were over."""
    world = mesh(4, profile=BulkProfile(probe=2.0, stall=30.0))
    probed, *others = world.names
    for other in others:
        await world.bulks[other].connection(probed, 5)
    first = asyncio.ensure_future(world.bulks[others[0]].probe(probed, 400_000, timeout=30))
    await asyncio.sleep(0)
    given_up = [asyncio.ensure_future(world.bulks[other].probe(probed, 400_000, timeout=30)) for other in others[1:]]
    for _ in range(3):
        await asyncio.sleep(0)
    for each in given_up:
        each.cancel()
    await asyncio.wait([first, *given_up])
    began = asyncio.get_running_loop().time()
    await world.bulks[others[0]].probe(probed, 400_000, timeout=30)
    assert asyncio.get_running_loop().time() - began < 1.0


async def test_a_probe_holds_little_back_and_leaves_the_connection_as_it_was(mesh: Meshes) -> None:
    world = mesh(2, profile=replace(BulkProfile(), high_water=4_000_000))
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    probing = asyncio.ensure_future(world.bulks[a].probe(b, 8_000_000, timeout=5))
    most = 0
    while not probing.done():
        most = max(most, connection.transport.get_write_buffer_size())
        await asyncio.sleep(0)
    assert PROBE_CHUNK < most < 2 * PROBE_MOST
    assert connection.transport.get_write_buffer_limits()[1] == 4_000_000


async def test_a_probe_whose_connection_is_lost_leaves_nothing_to_the_garbage_collector(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names

    async def fail() -> None:
        connection = await world.bulks[a].connection(b, 1)
        probing = asyncio.ensure_future(world.bulks[a].probe(b, PROBE_MOST, timeout=5))
        while not connection._users:
            await asyncio.sleep(0)
        connection.fail(ConnectionLost("cut"))
        with pytest.raises(ConnectionLost, match="cut"):
            await probing

    with uncollected(Turn, Probe) as left:
        await fail()
        await asyncio.sleep(0)  # the step that woke us is over
    assert left == []
