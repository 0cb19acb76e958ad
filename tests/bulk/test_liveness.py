"""Who is taken for dead, and who only for slow; `test_pacing` has the arithmetic, `test_shared` a ring that is full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ictp2p.bulk import kernel
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.pacing import Watch
from tests.bulk.conftest import PROFILE
from tests.bulk.test_connection import Talker, connected

Meshes = Callable[..., Any]


class Waiting(Talker):
    """Is owed something."""

    def expecting(self) -> bool:
        return True


async def test_a_line_that_is_slow_to_make_room_in_our_kernel_is_not_taken_for_a_stalled_reader(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, talker = await connected(mesh(2)), Talker(1, [])
    taken = iter(range(40, 0, -1))
    monkeypatch.setattr(kernel, "unacknowledged", lambda transport: next(taken, 0))
    connection.transport.frozen = True  # type: ignore[attr-defined]  # it takes nothing more from us
    talker.left = 1
    connection.join(talker)
    while next(taken, 0):
        await asyncio.sleep(PROFILE.stall)
        assert not connection.closed, "its reader acknowledges a byte at every look"
    await asyncio.sleep(2 * PROFILE.stall)
    assert connection.closed


@pytest.mark.parametrize(("relayed", "full"), [(True, True), (True, False), (False, True)])
async def test_while_a_relay_has_no_room_its_other_end_is_given_up_only_if_it_does_not_talk(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, relayed: bool, full: bool
) -> None:
    """Regression: before a slow line a relay reads, and its kernel has room, only once in several deadlines."""
    connection, talker = await connected(mesh(2)), Talker(1, [])
    monkeypatch.setattr(kernel, "is_full", lambda transport: full)
    connection.relayed = relayed
    connection.transport.frozen = True  # type: ignore[attr-defined]
    talker.left = 1
    connection.join(talker)
    for _ in range(3 * Watch.CHECKS):
        connection.received += 1
        await asyncio.sleep(PROFILE.stall / Watch.CHECKS)
    assert connection.closed == (not (relayed and full)), "who is lost on the way to it, or is no relay, must take"
    await asyncio.sleep(1.3 * PROFILE.stall)
    assert connection.closed


@pytest.mark.parametrize("use", [BulkConnection.join, BulkConnection.heed])
async def test_who_owes_us_something_and_says_nothing_is_given_up_and_nobody_else(
    mesh: Meshes, use: Callable[[BulkConnection, Talker], None]
) -> None:
    """The other end has no user of its own, and so does not speak; but only while something is due is that a fault."""
    connection, patient, waiting = await connected(mesh(2)), Talker(1, []), Waiting(2, [])
    use(connection, patient)
    await asyncio.sleep(3 * PROFILE.stall)
    assert not connection.closed
    use(connection, waiting)
    await asyncio.sleep(2 * PROFILE.stall)
    assert connection.closed


async def test_a_connection_that_nobody_uses_is_not_looked_at_until_somebody_does(mesh: Meshes) -> None:
    connection, talker = await connected(mesh(2)), Waiting(1, [])
    connection.join(talker)
    connection.leave(talker, bytes(16))
    await asyncio.sleep(PROFILE.stall)
    said = connection.written
    await asyncio.sleep(3 * PROFILE.stall)
    assert connection.written == said
    connection.join(talker)
    await asyncio.sleep(PROFILE.stall / 2)
    assert connection.written > said, "we are here"


async def test_a_connection_that_ends_while_nothing_moves_may_have_lost_large_packets(mesh: Meshes) -> None:
    world = mesh(2)
    connection = await connected(world)
    connection.join(Waiting(1, []))
    assert not connection.standing
    await asyncio.sleep(0.8 * PROFILE.stall)
    assert connection.standing
    connection.transport.reset()  # type: ignore[attr-defined]
    await connection._gone.wait()
    assert world.shrunk == [world.names[0]]


@pytest.mark.parametrize("talker", [Talker, Waiting])
async def test_a_connection_that_ends_while_bytes_move_or_none_are_due_has_lost_none(
    mesh: Meshes, talker: type[Talker]
) -> None:
    world = mesh(2)
    connection, user = await connected(world), talker(1, [])
    connection.join(user)
    if talker is Waiting:
        world.bulks[world.names[1]]._pool.warm(world.names[0]).join(Talker(2, []))  # which says that it is there
    await asyncio.sleep(2 * PROFILE.stall)
    connection.transport.reset()  # type: ignore[attr-defined]
    await connection._gone.wait()
    assert not world.shrunk


async def test_who_stalls_on_one_connection_has_the_others_closed_that_nobody_uses(mesh: Meshes) -> None:
    """Their packets take the same way: each would cost a stall of its own."""
    world = mesh(2)
    connection = await connected(world)
    spare, used = [await world.bulks[world.names[0]]._pool.another(world.names[1]) for _ in range(2)]
    used.join(Talker(1, []))
    connection.join(Waiting(2, []))
    await connection._gone.wait()
    assert spare.closed
    assert not used.closed


@pytest.mark.parametrize("relayed", [False, True])
async def test_a_connection_that_brought_nothing_to_what_failed_is_not_used_again(mesh: Meshes, relayed: bool) -> None:
    """Regression: each attempt hung on it anew, ended before it counted as stalled, and left it to the next one.

    Over a relay that stands still it never did count: what we send is taken there.
    """
    world = mesh(2)
    connection, user = await connected(world), Talker(1, [])
    pool, peer = world.bulks[world.names[0]]._pool, world.names[1]
    connection.relayed = relayed
    await asyncio.sleep(PROFILE.stall)
    pool.doubt(peer)
    assert not connection.closed, "nobody has used it"
    for seconds, last in ((0.25, False), (0.75, True), (0.25, False), (0.75, False)):
        await asyncio.sleep(PROFILE.stall)
        connection.join(user)
        await asyncio.sleep(seconds * PROFILE.stall)
        connection.received += last
        await asyncio.sleep(2 * PROFILE.stall / Watch.CHECKS)
        pool.doubt(peer)
        assert not connection.closed, "it is in use"
        connection.leave(user, bytes(16))
        pool.doubt(peer)
        assert connection.closed == (seconds > 0.5 and not last)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("asked", [False, True])
async def test_that_a_probe_is_awaited_is_no_use_of_a_connection(mesh: Meshes, used: bool, asked: bool) -> None:
    """Regression: one on which nothing had come while it was, nor need, was given up with the next failure.

    And one on which a call had not come through was not, for as long as a probe did not come through there either.
    """
    world = mesh(2)
    connection, user = await connected(world), Talker(1, [])
    pool, probing, peer = world.bulks[world.names[0]]._pool, world.bulks[world.names[0]].probing, world.names[1]
    probing.asked(connection, bytes(16))
    for joins in (False, used, False):
        if joins:
            connection.join(user)
        await asyncio.sleep(0.75 * PROFILE.stall)
        connection.leave(user, bytes(16))
    if not asked:
        probing.over(connection, bytes(16))
    pool.doubt(peer)
    assert connection.closed == used


@pytest.mark.parametrize(
    "seen",
    [
        "nothing",
        "nothing, and it is trusted",
        "nothing, again",
        "bytes",
        "acknowledgments",
        "all of them",
        "our kernel does not say",
        "no room",
    ],
)
async def test_a_line_that_is_cut_for_all_that_is_seen_has_a_quarter_of_the_deadline(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """Whatever shows that the other end's kernel is there has it wait for all of it, as for a process that stands."""
    connection = await connected(mesh(2))
    known, look = connection.flushed, PROFILE.stall / Watch.CHECKS
    outstanding = {"acknowledgments": lambda: 1, "all of them": lambda: 0, "our kernel does not say": lambda: 0}
    count = outstanding.get(seen, lambda: connection.flushed - known)
    monkeypatch.setattr(kernel, "unacknowledged", lambda transport: count())
    monkeypatch.setattr(kernel, "is_full", lambda transport: seen == "no room")
    connection.transport.frozen = seen == "our kernel does not say"  # type: ignore[attr-defined]
    connection.join(Waiting(1, []))
    if seen != "nothing, and it is trusted":
        connection.distrust()
    connection.received += seen == "nothing, again"
    for number in range(Watch.FEW + 3):
        assert number >= Watch.FEW or not connection.closed
        connection.received += seen == "bytes"
        await asyncio.sleep(look)
    assert connection.closed == (seen == "nothing")
    await asyncio.sleep(2 * PROFILE.stall)
    assert connection.closed


async def test_a_connection_is_trusted_anew_each_time_that_it_is_used(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, talker = await connected(mesh(2)), Waiting(1, [])
    known = connection.flushed
    monkeypatch.setattr(kernel, "unacknowledged", lambda transport: connection.flushed - known)
    connection.join(talker)
    connection.distrust()
    await asyncio.sleep(3 * PROFILE.stall / Watch.CHECKS)
    connection.leave(talker, bytes(16))
    await asyncio.sleep(PROFILE.stall)
    connection.join(talker)
    await asyncio.sleep(0.8 * PROFILE.stall)
    assert not connection.closed
