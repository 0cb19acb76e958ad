"""Participants that call different things under one tag: each learns what another calls, whoever came first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from ictp2p.bulk import collective
from ictp2p.bulk.collective import Aborted
from ictp2p.bulk.frames import Kind
from ictp2p.collectives.channel import CallsDiffer, RoundTag
from ictp2p.collectives.running.attempt import together
from ictp2p.collectives.running.one_shot import swap
from ictp2p.types import PeerId
from tests.bulk.reducing import PROFILE
from tests.bulk.test_collective import Meshes


def tag(call: str, *beside: PeerId) -> RoundTag:
    return RoundTag(b"lineage!", 7, 0, b"", call, beside)


def call(world: Any, me: int, other: int, what: str, *beside: int) -> asyncio.Task[Any]:
    """Begin to swap a byte with another, and call that `what`."""
    pair, named = sorted((me, other)), tag(what, *(world.names[n] for n in beside))
    names = [world.names[n] for n in pair]
    coroutine = swap(names, pair.index(me), [1, 1], b"%d" % me, world.bulks[world.names[me]], named, PROFILE)
    return asyncio.ensure_future(coroutine)


async def begun(world: Any, by: int, at: int) -> None:
    """Wait until one has heard that another has begun."""
    await world.bulks[world.names[at]].first_begun({world.names[by]: tag("").wire()})


async def told(attempt: Awaitable[Any]) -> str:
    """How the attempt failed, which takes no deadline to be over."""
    async with asyncio.timeout(PROFILE.start / 4):
        with pytest.raises(CallsDiffer) as caught:
            await attempt
    return str(caught.value)


@pytest.mark.parametrize("late", [False, True])
async def test_both_say_what_they_call(mesh: Meshes, late: bool) -> None:
    world = mesh(2)
    a, b = world.names
    first = call(world, 0, 1, "sum of 5")
    if late:
        await begun(world, 0, 1)
    second = call(world, 1, 0, "max of 5")
    assert await told(first) == f"{b} calls max of 5, not sum of 5"
    assert await told(second) == f"{a} calls sum of 5, not max of 5"
    assert not [user for bulk in world.bulks.values() for user in bulk.collectives()], "of it nothing is left"
    assert not [tag for bulk in world.bulks.values() for tag in bulk.attaching._called]


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
async def test_who_takes_somebody_for_its_neighbour_that_has_others_is_told_and_so_are_these(
    mesh: Meshes, first: bool
) -> None:
    """Regression: it waited for one who never began with it, until its time was over."""
    world = mesh(3)
    a, _, c = world.names
    if first:
        stranger = call(world, 2, 0, "scatter")
        await begun(world, 2, 0)
        ours = call(world, 0, 1, "gather")
    else:
        ours = call(world, 0, 1, "gather")
        await begun(world, 0, 1)
        stranger = call(world, 2, 0, "scatter")
    assert await told(stranger) == f"{a} calls gather, not scatter"
    assert await told(ours) == f"{c} calls scatter, not gather"
    assert await told(call(world, 1, 0, "gather")) == f"{a}: {c} calls scatter, not gather", "though it came later"


async def test_who_begins_with_one_that_has_failed_for_it_hears_why(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, _ = world.names
    both = call(world, 0, 1, "gather"), call(world, 1, 0, "scatter")
    for each in both:
        await told(each)
    world.bulks[a].give_up(tag("").wire(), "CallsDiffer")  # as who does not know what was said of it
    assert await told(call(world, 2, 0, "gather")) == f"{a}: {b} calls scatter, not gather"


async def test_who_has_ended_says_nothing_and_is_not_waited_for_long(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "DIFFER_SECONDS", 0.01)
    world = mesh(2)
    a, b = world.names
    ours = call(world, 0, 1, "sum of 5")
    await begun(world, 0, 1)
    (await world.bulks[b].connection(a, 1)).send(Kind.BEGIN, tag("").wire(), second=1)
    assert await told(ours) == f"{b} calls something other than sum of 5"


async def test_neighbours_in_other_parts_of_the_same_call_are_no_strangers(mesh: Meshes) -> None:
    world = mesh(3)
    await world.bulks[world.names[0]].connection(world.names[1], 1)
    early = call(world, 2, 0, "a swap of c")
    await begun(world, 2, 0)
    others = [call(world, 0, 1, "a swap of b", 1, 2), call(world, 1, 0, "a swap of b")]
    await asyncio.sleep(0)
    others.append(call(world, 0, 2, "a swap of c", 1, 2))
    found = await asyncio.gather(early, *others)
    assert found == [[b"0", b"2"], [b"0", b"1"], [b"0", b"1"], [b"0", b"2"]]


async def test_a_part_that_is_given_up_elsewhere_before_it_has_begun_here_fails_alone(mesh: Meshes) -> None:
    """Regression: another part failed for it, and said that its own call differs from that part's."""
    world, after = mesh(3), RoundTag(b"lineage!", 8, 0, b"")
    a, b, c = world.names
    ours = call(world, 0, 1, "part of b", 1, 2)
    await begun(world, 0, 1)
    connection = await world.bulks[c].connection(a, 1)
    why = Aborted(f"{b} calls another, not part of c", (b,), "part of c")
    connection.send(Kind.ABORT, tag("").wire(), body=msgspec.msgpack.encode(why))
    connection.send(Kind.BEGIN, after.wire())
    await world.bulks[a].first_begun({c: after.wire()})
    assert not ours.done()
    assert await told(call(world, 0, 2, "part of c", 1, 2)) == f"{c}: {b} calls another, not part of c"
    await asyncio.gather(ours, call(world, 1, 0, "part of b"))


async def test_parts_that_end_with_one_that_differs_say_what_differs(mesh: Meshes) -> None:
    world = mesh(3)
    a, b, c = world.names
    await world.bulks[a].connection(c, 1)
    differs = call(world, 1, 0, "another")
    await begun(world, 1, 0)
    ours = together([call(world, 0, 1, "part of b", 1, 2), call(world, 0, 2, "part of c", 1, 2)])
    assert await told(ours) == f"{b} calls another, not part of b"
    assert await told(differs) == f"{a} calls part of b, not another"
    assert await told(call(world, 2, 0, "part of c")) == f"{a}: {b} calls another, not part of b"


async def test_who_begins_a_part_that_another_gave_up_before_it_began_it_hears_why(mesh: Meshes) -> None:
    """Regression: it was told that the other calls something else, which was the part that had failed there."""
    world = mesh(3)
    a, b, _ = world.names
    differs = call(world, 1, 0, "another")
    await begun(world, 1, 0)
    assert await told(call(world, 0, 1, "part of b", 1, 2)) == f"{b} calls another, not part of b"
    assert await told(call(world, 2, 0, "part of c")) == f"{a}: {b} calls another, not part of b"
    assert await told(differs) == f"{a} calls part of b, not another"


async def test_a_stranger_is_told_as_long_as_any_part_of_a_call_is_under_way(mesh: Meshes) -> None:
    """Regression: the part that began last spoke for all, and nobody did once it was over."""
    world = mesh(4)
    a, _, _, d = world.names
    slow = call(world, 0, 1, "a swap of b", 1, 2)
    await asyncio.gather(call(world, 0, 2, "a swap of c", 1, 2), call(world, 2, 0, "a swap of c"))
    assert await told(call(world, 3, 0, "scatter")) == f"{a} calls a swap of b, not scatter"
    assert await told(slow) == f"{d} calls scatter, not a swap of b"


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("pair", [False, True], ids=["all", "pair"])
async def test_who_begins_what_moves_nothing_elsewhere_is_told(mesh: Meshes, early: bool, pair: bool) -> None:
    world = mesh(3)
    a, b, _ = world.names
    if early:
        theirs = call(world, 1, 0, "sum of 5")
        await begun(world, 1, 0)
    world.bulks[a].forgo(tag("").wire(), "sum of 0", *([b] if pair else []))
    if not early:
        theirs = call(world, 1, 0, "sum of 5")
    assert await told(theirs) == f"{a} calls sum of 0, not sum of 5"
    both = call(world, 2, 0, "a swap of c"), call(world, 0, 2, "a swap of c")
    if pair:
        assert await asyncio.gather(*both) == [[b"0", b"2"]] * 2, "with others it moves something"
    else:
        assert await told(both[0]) == f"{a} calls sum of 0, not a swap of c"
        both[1].cancel()
        await asyncio.gather(both[1], return_exceptions=True)
