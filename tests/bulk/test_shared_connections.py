"""Collectives and messages through memory that two processes of a host share."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile, kernel, shared
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import NO_TAG, Header, Kind
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.errors import ConnectionLost, RemoteProtocolError
from tests.bulk.conftest import Mesh, run_turns
from tests.bulk.reducing import KINDS, PROFILE, contribution, plan_of, reduce_all, tag
from tests.bulk.rings import RING, TOKEN, descriptors, mappings, put, rings

Meshes = Callable[..., Any]


@pytest.fixture
def one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections in memory, which have no socket, be those of one host."""
    monkeypatch.setattr(kernel, "same_host", lambda transport: True)


@pytest.mark.usefixtures("one_host")
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
async def test_sums_are_exact_and_hardly_anything_is_on_the_connections(
    mesh: Meshes, kind: str, sealed: bool, dtype: torch.dtype
) -> None:
    world = mesh(3, profile=BulkProfile(sealed=sealed))
    shapes: list[tuple[int, ...]] = [(900_000,), (300, 1000), (77,)]
    inputs = [contribution(n, shapes, dtype) for n in range(3)]
    outputs = [[torch.zeros_like(t) for t in each] for each in inputs]
    plan = plan_of(world.names, kind, 1_200_077, 100_000)
    for attempt in range(2):
        carried = sum(len(end.sent) for _, _, link in world.links for end in (link, link.other))
        results = await asyncio.gather(
            *(
                all_reduce(
                    plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan, attempt), op="sum", profile=PROFILE
                )
                for n, me in enumerate(world.names)
            )
        )
        assert all(isinstance(r, Stats) for r in results), results
        for out in outputs:
            assert all(torch.equal(o, a + b + c) for o, a, b, c in zip(out, *inputs, strict=True))
    assert all(rings(world))
    carried = sum(len(end.sent) for _, _, link in world.links for end in (link, link.other)) - carried
    assert carried < 30_000, "of 20 to 60 MB"


@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(KINDS)),
    st.integers(2, 4),
    st.integers(0, 400_000),
    st.sampled_from([5_000, 60_000, 400_000, 1_000_000]),
)
def test_rounded_sums_have_the_same_bits_everywhere(seed: int, kind: str, size: int, elements: int, chunk: int) -> None:
    """Chunks shorter than any that is shared, ordinary ones, and such as do not always fit into the ring."""

    async def run() -> None:
        world = Mesh(size, profile=BulkProfile(sealed=bool(seed % 2)))
        random = torch.Generator().manual_seed(seed)
        for _, _, link in world.links:
            link.step = link.other.step = 100 + seed % 60_000
        inputs = [[torch.randn(elements, generator=random)] for _ in range(size)]
        outputs = [[torch.zeros(elements)] for _ in range(size)]
        results = await reduce_all(
            world, plan_of(world.names, kind, elements, chunk), inputs, outputs, weights=[*range(1, size + 1)]
        )
        assert all(isinstance(r, Stats) for r in results), results
        assert all(outputs[0][0].numpy().tobytes() == out.numpy().tobytes() for (out,) in outputs)
        weighed = sum((n + 1) * each[0].double() for n, each in enumerate(inputs)) / (size * (size + 1) / 2)
        assert torch.allclose(outputs[0][0].double(), weighed, atol=1e-5)
        await world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "same_host", lambda transport: True)
        run_turns(run())


@pytest.mark.usefixtures("one_host")
@pytest.mark.parametrize("ours", [True, False])
async def test_who_shares_nothing_is_sent_all_over_the_connection(mesh: Meshes, ours: bool) -> None:
    world = mesh(0)
    world.names = [f"{n:032x}" for n in range(2)]
    for n, me in enumerate(world.names):
        world.bulks[me] = world.join(me, BulkProfile(share_memory=ours if n else not ours))
    inputs = [contribution(n, [(500_000,)], torch.float32) for n in range(2)]
    outputs = [[torch.zeros(500_000)] for _ in range(2)]
    results = await reduce_all(world, plan_of(world.names, "ring", 500_000, 50_000), inputs, outputs, op="sum")
    assert all(isinstance(r, Stats) for r in results), results
    assert all(torch.equal(out, inputs[0][0] + inputs[1][0]) for (out,) in outputs)
    assert not any(rings(world))


async def pair(world: Any) -> tuple[BulkConnection, BulkConnection]:
    """Two ends of a connection with rings both ways."""
    a, b = world.names
    inputs = [[torch.ones(50_000)] for _ in range(2)]
    outputs = [[torch.zeros(50_000)] for _ in range(2)]
    await reduce_all(world, plan_of(world.names, "ring", 50_000, 10_000), inputs, outputs, op="sum")
    here, there = await world.bulks[a].connection(b, 1), await world.bulks[b].connection(a, 1)
    while rings(world) != [2, 2]:
        await asyncio.sleep(0)
    return here, there


@pytest.mark.usefixtures("one_host")
async def test_who_stops_reading_shared_memory_has_stalled(mesh: Meshes) -> None:
    """All headers were acknowledged by its kernel: what shows that it has stopped is the ring."""
    world = mesh(2, profile=BulkProfile(stall=0.4))
    here, there = await pair(world)
    a, b = world.names

    async def zeros(peer: str, payload: bytes) -> Any:
        while True:
            yield bytes(1_000_000)

    there._take_shared = lambda header: None  # type: ignore[method-assign]
    world.bulks[a].serve("zeros", zeros)
    asking = asyncio.ensure_future(world.bulks[b].request(a, "zeros", b"", bytearray(100_000_000), timeout=60))
    async with asyncio.timeout(20):
        await here._gone.wait()
    with pytest.raises(ConnectionLost):
        await asking


@pytest.mark.usefixtures("one_host")
@pytest.mark.parametrize("lacking", [(os, "memfd_create"), (fcntl, "F_ADD_SEALS")])
async def test_a_python_without_memory_files_does_without(
    mesh: Meshes, monkeypatch: pytest.MonkeyPatch, lacking: tuple[Any, str]
) -> None:
    """One that was built on an old system, to run on any, lacks them."""
    writer = shared.Writer(TOKEN, RING)
    monkeypatch.delattr(*lacking)
    assert shared.opened(memoryview(writer.offer)) is None
    writer.taken()
    world = mesh(2)
    outputs = [[torch.zeros(100_000)] for _ in range(2)]
    await reduce_all(
        world, plan_of(world.names, "ring", 100_000, 50_000), [[torch.ones(100_000)]] * 2, outputs, op="sum"
    )
    assert all(bool((out == 2).all()) for (out,) in outputs)


@pytest.mark.usefixtures("one_host")
async def test_what_is_small_passes_a_ring_that_is_full(mesh: Meshes) -> None:
    here, there = await pair(mesh(2))
    ring = here._outbound.ring
    assert ring is not None
    while not ring.crowded():
        put(ring, bytes(500_000))
    for paused in (False, True):
        before = there.received
        if paused:
            here.pause_writing()
        here.send(Kind.ALIVE)
        if paused:
            here.resume_writing()
        async with asyncio.timeout(5):
            while there.received == before:
                await asyncio.sleep(0)


@pytest.mark.usefixtures("one_host")
@pytest.mark.parametrize(
    ("kind", "second", "message"),
    [
        (Kind.FREED, 10**9, "freed shared memory up to 1000000000"),
        (Kind.OPENED, 0, "OPENED out of turn"),
        (Kind.OFFER, 0, "OFFER out of turn"),
    ],
)
async def test_what_does_not_fit_ends_the_connection(mesh: Meshes, kind: Kind, second: int, message: str) -> None:
    here, _ = await pair(mesh(2))
    with pytest.raises(RemoteProtocolError, match=message):
        here.sharing.take(Header(kind, NO_TAG, 0, second), memoryview(b""))


async def test_a_body_in_memory_that_was_never_opened_ends_the_connection(mesh: Meshes) -> None:
    world = mesh(2)
    a, b = world.names
    here, there = await world.bulks[a].connection(b, 1), await world.bulks[b].connection(a, 1)
    here._outbound._write_header(Header(Kind.REPLY, NO_TAG, length=100_000, shared=True).pack())
    async with asyncio.timeout(5):
        await there._gone.wait()


@pytest.mark.usefixtures("one_host")
async def test_memory_for_no_more_peers_than_are_allowed(mesh: Meshes) -> None:
    """A host may have as many ranks as cores, and each of them sends to each."""
    world = mesh(4, profile=BulkProfile(rings=2))
    inputs = [contribution(n, [(200_000,)], torch.float32) for n in range(4)]
    outputs = [[torch.zeros(200_000)] for _ in range(4)]
    plan = plan_of(world.names, "star", 200_000, 10_000)
    for attempt in range(2):
        results = await asyncio.gather(
            *(
                all_reduce(
                    plan, n, inputs[n], outputs[n], world.bulks[me], tag(plan, attempt), op="sum", profile=PROFILE
                )
                for n, me in enumerate(world.names)
            )
        )
        assert all(isinstance(r, Stats) for r in results), results
        assert all(torch.equal(out, sum(each for (each,) in inputs)) for (out,) in outputs)
    for bulk in world.bulks.values():
        made = [c._outbound.ring for kept in bulk._pool._ready.values() for c in kept]
        assert sum(ring is not None for ring in made) == 2 < len(made)


@pytest.mark.usefixtures("one_host")
async def test_who_takes_a_body_may_end_the_connection(mesh: Meshes) -> None:
    world = mesh(2)
    _, there = await pair(world)
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))

    async def zeros(peer: str, payload: bytes) -> Any:
        yield bytes(3_000_000)

    a, b = world.names
    world.bulks[a].serve("zeros", zeros)
    enough = ConnectionLost("enough")
    with pytest.raises(ConnectionLost, match="enough"):
        await world.bulks[b].request(
            a, "zeros", b"", bytearray(3_000_000), timeout=60, progress=lambda _: there.fail(enough)
        )
    assert not problems


@pytest.mark.usefixtures("one_host")
async def test_nothing_stays_open_when_connections_end(mesh: Meshes) -> None:
    open_before, mapped_before = descriptors(), mappings()
    world = mesh(2)
    await pair(world)
    assert mappings() > mapped_before
    await world.close()
    world.bulks.clear()
    world.links.clear()
    assert descriptors() <= open_before
    assert mappings() <= mapped_before


@pytest.mark.usefixtures("one_host")
async def test_who_ends_before_its_offer_was_answered_holds_no_memory(mesh: Meshes) -> None:
    world = mesh(2, profile=BulkProfile(rings=1))
    a, b = world.names
    connection = await world.bulks[a].connection(b, 1)
    connection.sharing.offer()
    connection.fail(ConnectionLost("died"))
    rings_left = world.bulks[a]._pool._rings
    assert rings_left is not None
    assert rings_left.another() is not None, "the only place is free again, whoever still knows the connection"
