"""Chunks that come before their collective has begun here: kept within bounds, or sent again; never lost or doubled."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile, early, kernel
from ictp2p.bulk import desk as desk_module
from ictp2p.bulk.early import EarlyChunks
from ictp2p.bulk.frames import Header, Kind
from ictp2p.collectives.channel import EARLY_BYTES, EARLY_CHUNKS, ParticipantLost, RoundTag
from ictp2p.collectives.plan import BROADCAST, Plan, Share, one_shot_plan
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.running import session
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import all_reduce, broadcast
from tests.bulk.conftest import Mesh, run_turns

PROFILE = ExecuteProfile(connect=2.0, start=2.0, total=5.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000))), st.integers(0, 20_000))
def test_what_is_kept_is_bounded_and_what_is_dropped_is_known(came: list[tuple[int, int]], room: int) -> None:
    sizes = defaultdict[int, list[int]](list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "KEPT_BYTES", room)
        chunks = EarlyChunks(5)
        for number, size in came:
            sizes[number].append(size)
            chunks.keep(Header(Kind.PARTIAL, bytes([number]) * 16), memoryview(bytes(size)))
            held = [len(body) for kept in chunks._kept.values() for _, body in kept]
            assert max(sum(held), 1024 * len(held)) <= chunks._size <= room
    for number, came_of_it in sizes.items():
        tag = bytes([number]) * 16
        kept = [len(body) for _, body in chunks.take(tag)]
        assert (kept, chunks.dropped(tag)) in ((came_of_it, 0), ([], len(came_of_it))), "all of it, or nothing"
        assert (chunks.take(tag), chunks.dropped(tag)) == ([], 0)
    assert chunks._size == 0


def test_all_that_one_may_send_early_is_kept_beside_the_small_chunks_of_others() -> None:
    chunks, others = EarlyChunks(1000), 900
    for number in range(others):
        chunks.keep(Header(Kind.PARTIAL, number.to_bytes(16)), memoryview(b"small"))
    for number in range(EARLY_CHUNKS):
        chunks.keep(Header(Kind.PARTIAL, b"large" * 3, 0, number), memoryview(bytes(EARLY_BYTES // EARLY_CHUNKS)))
    assert [header.second for header, _ in chunks.take(b"large" * 3)] == [*range(EARLY_CHUNKS)]
    assert all(chunks.take(number.to_bytes(16)) for number in range(others))


def test_what_is_dropped_for_its_number_is_known_as_well() -> None:
    chunks, tags = EarlyChunks(2), [bytes([number]) * 16 for number in range(4)]
    for tag in tags:
        chunks.keep(Header(Kind.PARTIAL, tag), memoryview(b"abc"))
    assert [(len(chunks.take(tag)), chunks.dropped(tag)) for tag in tags] == [(0, 1), (0, 1), (1, 0), (1, 0)]


def test_of_what_nobody_will_begin_nothing_is_kept() -> None:
    chunks = EarlyChunks(1)
    for tag in (bytes(16), b"1" * 16):  # of one it is kept, of the other it was dropped
        chunks.keep(Header(Kind.PARTIAL, tag), memoryview(b"abc"))
    for tag in (bytes(16), b"1" * 16):
        chunks.forget(tag)
    assert (len(chunks._kept), len(chunks._dropped), chunks._size) == (0, 0, 0)


async def test_of_what_was_given_up_before_it_came_nothing_is_kept(mesh: Callable[..., Any]) -> None:
    """Regression: what came along with the word that it had begun stayed until other chunks took its place."""
    world = mesh(2)
    plan = one_shot_plan(world.names, 100)
    tag = RoundTag(b"early", 1, 0, plan.digest())
    await world.bulks[world.names[1]].connection(world.names[0], 1)
    world.bulks[world.names[1]].give_up(tag.wire(), "it is not wanted")
    with pytest.raises(ParticipantLost, match="it is not wanted"):
        await all_reduce(
            plan, 0, [torch.ones(100)], [torch.zeros(100)], world.bulks[world.names[0]], tag, profile=PROFILE
        )
    assert came_early(world, 1) == []


def test_what_is_kept_lies_in_shared_memory_no_longer() -> None:
    chunks, tag = EarlyChunks(1), bytes(16)
    chunks.keep(Header(Kind.PARTIAL, tag, length=3, shared=True), memoryview(b"abc"))
    assert chunks.take(tag) == [(Header(Kind.PARTIAL, tag, length=3), b"abc")]


@given(st.lists(st.integers(0, 9)), st.integers(1, 3))
def test_no_more_collectives_are_remembered_than_allowed(came: list[int], remembered: int) -> None:
    chunks = EarlyChunks(remembered)
    for number in came:
        chunks.keep(Header(Kind.PARTIAL, bytes([number]) * 16), memoryview(bytes(8)))
        assert max(len(chunks._kept), len(chunks._dropped)) <= remembered


Start = Callable[[], asyncio.Task[Any]]
"""Begins one participant's part."""


def starters(world: Any, run: Callable[[int, Any], Coroutine[Any, Any, Any]]) -> list[Start]:
    """One for each participant; `run` takes its number and its connections."""
    bulks = [world.bulks[name] for name in world.names]
    return [lambda n=n, bulk=bulk: asyncio.ensure_future(run(n, bulk)) for n, bulk in enumerate(bulks)]  # type: ignore[misc]


def reductions(world: Any, elements: int) -> tuple[list[torch.Tensor], list[Start]]:
    size = len(world.names)
    shares = tuple(Share(n * elements, (n + 1) * elements, *t) for n, t in enumerate(star.trees(size)))
    plan = Plan("star", tuple(world.names), shares, elements, 1.0, 0.0)
    tag = RoundTag(b"early", 1, 0, plan.digest())
    inputs = [torch.full((size * elements,), float(node + 1)) for node in range(size)]
    outputs = [torch.zeros(size * elements) for _ in range(size)]

    def run(node: int, bulk: Any) -> Coroutine[Any, Any, Any]:
        return all_reduce(plan, node, [inputs[node]], [outputs[node]], bulk, tag, op="sum", profile=PROFILE)

    return outputs, starters(world, run)


def came_early(world: Any, node: int) -> list[EarlyChunks]:
    """The places where a participant keeps, or has dropped, what came ahead of its beginning."""
    desks = world.bulks[world.names[node]]._desks.values()
    return [desk.early for desk in desks if desk.early._kept or desk.early._dropped]


@pytest.mark.parametrize("room", [1 << 20, 0])
async def test_a_chunk_that_comes_early_is_used_or_sent_again(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(early, "KEPT_BYTES", room)
    world = mesh(3)
    outputs, start = reductions(world, 100)
    first = [start[0](), start[1]()]
    async with asyncio.timeout(2.0):
        while len(arrived := came_early(world, 2)) < 2:
            await asyncio.sleep(0)
    assert all(bool(chunks._kept) == bool(room) for chunks in arrived)
    await asyncio.gather(*first, start[2]())
    assert all(bool((out == 6).all()) for out in outputs)
    assert not any(chunks._kept or chunks._dropped for chunks in arrived)


@pytest.mark.parametrize("room", [1 << 20, 0])
@pytest.mark.parametrize("sealed", [True, False])
async def test_a_part_in_one_shot_that_comes_early_is_used_or_sent_again(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, room: int, sealed: bool
) -> None:
    monkeypatch.setattr(early, "KEPT_BYTES", room)
    world = mesh(3, profile=BulkProfile(sealed=sealed))
    plan = one_shot_plan(world.names, 100)
    tag, outputs = RoundTag(b"early", 1, 0, plan.digest()), [torch.zeros(100) for _ in range(3)]

    def run(node: int, bulk: Any) -> Coroutine[Any, Any, Any]:
        inputs = [torch.full((100,), float(node + 1))]
        return all_reduce(plan, node, inputs, [outputs[node]], bulk, tag, op="sum", profile=PROFILE)

    start = starters(world, run)
    first = [start[0](), start[1]()]
    async with asyncio.timeout(2.0):
        while len(arrived := came_early(world, 2)) < 2:
            await asyncio.sleep(0)
    assert all(bool(chunks._kept) == bool(room) for chunks in arrived)
    assert not any(task.done() for task in first)
    await asyncio.gather(*first, start[2]())
    assert all(bool((out == 6).all()) for out in outputs)
    assert not any(chunks._kept or chunks._dropped for chunks in arrived)


@pytest.mark.parametrize("room", [1 << 20, 0])
async def test_who_sent_ahead_stays_until_that_was_kept_or_sent_again(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A broadcast's root waits for nobody's chunks: it was gone when the other asked for its own again."""
    monkeypatch.setattr(early, "KEPT_BYTES", room)
    world = mesh(2)
    plan = Plan(BROADCAST, tuple(world.names), (Share(0, 9, 0, (-1, -1), (-1, 0)),), 9, 0.0, 0.0)
    tag, vectors = RoundTag(b"early", 1, 0, plan.digest()), [torch.ones(9), torch.zeros(9)]

    start = starters(world, lambda n, bulk: broadcast(plan, n, [vectors[n]], bulk, tag, profile=PROFILE))
    first = start[0]()
    while not came_early(world, 1):
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not first.done()
    await asyncio.gather(first, start[1]())
    assert vectors[1].tolist() == [1.0] * 9


async def test_a_chunk_that_is_being_read_when_we_begin_is_ours(mesh: Callable[..., Any]) -> None:
    world = mesh(2, profile=BulkProfile(sealed=False))
    outputs, start = reductions(world, 1000)
    a, b = world.names
    await world.bulks[a].connection(b, 1)
    connection = await world.bulks[b].connection(a, 1)
    world.links[0][2].step = 300
    first = start[0]()
    while not (connection._header and connection._header.kind is Kind.PARTIAL and connection._filled):
        await asyncio.sleep(0)
    second = start[1]()
    await asyncio.sleep(0)
    assert world.bulks[b]._users
    assert connection._filled < 4000, "it has not been read by the time that we begin"
    await asyncio.gather(first, second)
    assert all(bool((out == 3).all()) for out in outputs)


def copies(world: Any, number: int, elements: int) -> tuple[torch.Tensor, list[Start]]:
    """A broadcast from the first to the second; what the second gets, and both ends."""
    share = Share(0, elements, 0, (-1, -1), (-1, 0))
    plan = Plan(BROADCAST, tuple(world.names), (share,), elements, 0.0, 0.0)
    tag, vectors = RoundTag(b"early", number, 0, plan.digest()), [torch.ones(elements), torch.zeros(elements)]
    return vectors[1], starters(world, lambda n, bulk: broadcast(plan, n, [vectors[n]], bulk, tag, profile=PROFILE))


early_ends = st.tuples(st.integers(0, 1), st.sampled_from([9, 20_000]))


@given(st.lists(early_ends, min_size=1, max_size=2), st.lists(st.sampled_from([9, 20_000]), max_size=6))
@example([(0, 9)], [20_000] * 4)  # the copy that came early was there, and never asked for
@example([(1, 20_000)], [20_000] * 4)  # the root waited for a word that it had heard
@settings(max_examples=30, deadline=None)
def test_who_has_begun_is_remembered_however_many_others_begin_and_end_meanwhile(
    ahead: list[tuple[int, int]], between: list[int]
) -> None:
    """A receive that is posted at the beginning of a training takes what is sent at its end."""

    async def story() -> None:
        world = Mesh(2)
        vectors, waiting, others = [], [], []
        for number, (node, elements) in enumerate(ahead):
            vector, start = copies(world, number, elements)
            vectors.append(vector)
            waiting.append(start[node]())
            others.append(start[1 - node])
        while sum(len(desk._begun) for bulk in world.bulks.values() for desk in bulk._desks.values()) < len(ahead):
            await asyncio.sleep(0)
        for number, elements in enumerate(between, len(ahead)):
            vector, start = copies(world, number, elements)
            await asyncio.gather(*(begin() for begin in start))
            assert bool((vector == 1).all())
        await asyncio.gather(*waiting, *(begin() for begin in others))
        assert all(bool((vector == 1).all()) for vector in vectors)
        desks = [desk for bulk in world.bulks.values() for desk in bulk._desks.values()]
        assert not any(desk._begun or desk._aborted for desk in desks), "what has ended is forgotten"
        await world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk_module, "_REMEMBERED", 3)
        run_turns(story())


@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize("room", [1 << 20, 0])
async def test_over_a_long_way_large_chunks_come_early_too(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, room: int, long: bool
) -> None:
    """Of the two shares' chunks of 80 kB one may be sent by each end before it has heard of the other."""
    monkeypatch.setattr(early, "KEPT_BYTES", room)
    monkeypatch.setattr(kernel, "round_trip", lambda _: 0.1 if long else 0.0001)
    world = mesh(2)
    outputs, start = reductions(world, 20_000)
    first = start[0]()
    desks = world.bulks[world.names[1]]._desks
    while not any(desk._begun for desk in desks.values()):
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert bool(came_early(world, 1)) == long
    await asyncio.gather(first, start[1]())
    assert all(bool((out == 3).all()) for out in outputs)
    assert not came_early(world, 1)


@given(
    st.lists(st.integers(1, 400), min_size=2, max_size=4),
    st.integers(1, 9),
    st.integers(0, 4000),
    st.integers(0, 6),
    st.lists(st.integers(0, 60), min_size=4, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_whoever_begins_when_everything_arrives_once(
    parts: list[int], chunk: int, room: int, most: int, delays: list[int]
) -> None:
    """All ends begin after so many turns of the loop, send so many chunks ahead, and have so much room for them."""

    async def story() -> None:
        world = Mesh(len(parts))
        shares, at = [], 0
        for elements, trees in zip(parts, star.trees(len(parts)), strict=True):
            shares.append(Share(at, at + elements, *trees))
            at += elements
        plan = Plan("star", tuple(world.names), tuple(shares), chunk, 1e-3, 0.0)
        tag = RoundTag(b"early", 1, 0, plan.digest())
        outputs = [torch.zeros(at) for _ in parts]

        async def run(node: int, bulk: Any) -> None:
            for _ in range(delays[node]):
                await asyncio.sleep(0)
            vector = torch.arange(at, dtype=torch.float32) * (node + 1)
            await all_reduce(plan, node, [vector], [outputs[node]], bulk, tag, op="sum", profile=PROFILE)

        await asyncio.gather(*(begin() for begin in starters(world, run)))
        expected = torch.arange(at, dtype=torch.float32) * sum(range(1, len(parts) + 1))
        assert all(torch.equal(out, expected) for out in outputs)
        assert not any(came_early(world, node) for node in range(len(parts)))
        await world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "KEPT_BYTES", room)
        patch.setattr(session, "EARLY_CHUNKS", most)
        run_turns(story())


async def test_what_an_aborted_collective_had_sent_ahead_is_kept_no_longer(mesh: Callable[..., Any]) -> None:
    world = mesh(2)
    _, start = reductions(world, 100)
    first = start[0]()
    while not came_early(world, 1):
        await asyncio.sleep(0)
    first.cancel()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not came_early(world, 1)
