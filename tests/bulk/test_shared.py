"""Bodies through shared memory: the ring by itself, who may open it, and collectives whose chunks go through it."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import struct
import tempfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import BulkProfile, mapping, shared, tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import NO_TAG, Header, Kind
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.concurrency import forks
from ictp2p.errors import ConnectionLost, RemoteProtocolError
from tests.bulk.conftest import Mesh, run_turns
from tests.bulk.reducing import KINDS, PROFILE, contribution, plan_of, reduce_all, tag

Meshes = Callable[..., Any]
TOKEN = b"t" * shared.TOKEN_BYTES
RING = 1024

sizes = st.one_of(st.integers(1, RING // 4), st.sampled_from([1, 63, 64, 65, RING // 4]))


@pytest.fixture
def one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections in memory, which have no socket, be those of one host."""
    monkeypatch.setattr(tuning, "same_host", lambda transport: True)


def descriptors() -> set[str]:
    return {each.name for each in Path("/proc/self/fd").iterdir()}


def ring(capacity: int = RING) -> tuple[shared.Writer, shared.Reader]:
    writer = shared.Writer(TOKEN, capacity)
    reader = shared.opened(memoryview(writer.offer))
    writer.taken()
    assert reader is not None
    return writer, reader


# The ring.


def put(writer: shared.Writer, body: bytes) -> bool:
    """Write a body; False if there is no room for it. One that is begun and given up leaves no trace."""
    for attempt in (bytes(len(body)), body):
        room = writer.room(len(body))
        if room is None:
            return False
        room[:] = attempt
    writer.wrote(len(body))
    return True


@given(st.lists(st.one_of(st.just(0), sizes), max_size=80))
def test_bodies_come_out_as_they_went_in_until_they_are_said_to_be_read(steps: list[int]) -> None:
    """A size is written; 0 lets the reader read one, which it keeps looking at until it has told."""
    writer, reader = ring()
    written: deque[bytes] = deque()
    looked_at: list[tuple[memoryview, bytes]] = []
    for number, size in enumerate(steps):
        if size:
            body = bytes((number + n) % 251 for n in range(size))
            fits = put(writer, body)
            assert fits or writer.crowded()
            if fits:
                written.append(body)
        elif written:
            body = written.popleft()
            looked_at.append((reader.read(len(body)), body))
        assert all(view == body for view, body in looked_at), "written over before it was free"
        if not size and (position := reader.done()):
            looked_at.clear()
            writer.free(position)


@given(st.lists(sizes, max_size=60))
def test_who_waits_for_a_quarter_gets_it_once_all_is_read(bodies: list[int]) -> None:
    """However bodies lay in the ring: else both ends would wait for each other for good."""
    writer, reader = ring()
    waiting: deque[int] = deque()
    for size in bodies:
        while writer.crowded():
            assert waiting, "crowded, and nothing is left to be read"
            reader.read(waiting.popleft())
            if position := reader.done():
                writer.free(position)
        assert put(writer, bytes(size))
        waiting.append(size)


def test_elements_can_be_added_where_they_lie() -> None:
    writer, reader = ring()
    for size in (1, 130, 64):
        assert put(writer, bytes(size))
        place = torch.frombuffer(reader.read(size), dtype=torch.uint8).data_ptr()
        assert place % 64 == 0


def test_a_body_longer_than_the_ring_goes_another_way() -> None:
    writer, reader = ring()
    assert not put(writer, bytes(RING + 1))
    with pytest.raises(RemoteProtocolError, match=f"body of {RING + 1} bytes in a ring of {RING}"):
        reader.read(RING + 1)


@pytest.mark.parametrize("position", [0, 64, 128, 129, 2**63])
def test_nothing_is_freed_twice_or_before_it_was_written(position: int) -> None:
    writer, _ = ring()
    put(writer, bytes(128))
    writer.free(64)
    if position == 128:
        writer.free(position)
        assert writer.freed == 128
        return
    with pytest.raises(RemoteProtocolError, match=rf"up to {position}, not within 64\.\.128"):
        writer.free(position)


# Who may open it.


def offer(process: int, number: int, capacity: int = RING, token: bytes = TOKEN) -> memoryview:
    return memoryview(struct.pack("!IIQ16s", process, number, capacity, token))


def test_a_file_of_another_token_name_or_size_is_not_opened(tmp_path: Any) -> None:
    writer = shared.Writer(TOKEN, RING)
    number = struct.unpack_from("!II", writer.offer)[1]
    before = descriptors()
    assert shared.opened(offer(os.getpid(), number, token=b"u" * 16)) is None
    assert shared.opened(offer(os.getpid(), number, capacity=2 * RING)) is None
    with tempfile.TemporaryFile() as other:
        other.write(TOKEN + bytes(2 * 4096))
        other.flush()
        assert shared.opened(offer(os.getpid(), other.fileno())) is None
    assert descriptors() <= before, "none was kept open"
    assert shared.opened(offer(os.getpid(), number)) is not None
    writer.taken()
    assert shared.opened(offer(os.getpid(), number)) is None, "given away once"
    assert shared.opened(offer(2**31, 5)) is None, "no such process"


def test_once_opened_it_can_be_opened_by_nobody_else() -> None:
    before = descriptors()
    writer, reader = ring()
    assert descriptors() <= before, "who may not trace us could open it under /proc"
    assert put(writer, b"abc")
    assert reader.read(3) == b"abc"


def mappings() -> set[str]:
    """Give each mapping of a memory file, with its inode: other tests of this process may have left some of theirs."""
    return {line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:ictp2p" in line}


def test_a_fork_holds_none_of_it_and_what_it_drops_is_not_unmapped() -> None:
    """A fork outlives connections, and peers that are killed; their memory would stay with it."""
    before = mappings()
    held = ring()
    rings = mappings() - before
    assert len(rings) == 2
    if not (child := os.fork()):
        code = 1
        try:
            left = rings & mappings()
            ours = [mmap.mmap(-1, 2 * 4096) for _ in range(64)]  # some lie where the rings lay
            del held
            for each in ours:
                each[-1] = 1
            code = int(bool(left))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer, reader = held
    assert put(writer, b"abc")
    assert reader.read(3) == b"abc"
    del held, writer, reader
    assert not rings & mappings(), "unmapped with its last view"


def test_a_fork_holds_none_of_what_is_on_offer() -> None:
    """Regression: one made before the other end had opened it kept the memory for as long as it lived."""
    writer = shared.Writer(TOKEN, RING)
    _, number, _, _ = struct.unpack("!IIQ16s", writer.offer)
    file = os.fstat(number).st_ino
    if not (child := os.fork()):
        code = 2
        try:
            code = int(file in {each.stat().st_ino for each in Path("/proc/self/fd").iterdir() if each.exists()})
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared.opened(memoryview(writer.offer)) is not None, "the other end can still open it"


def test_no_other_thread_forks_before_it_is_kept_from_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open, to map, and to keep from forks are calls of their own, in which other threads run."""
    forkable: list[tuple[str, bool]] = []

    def told(what: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            made = act(*given, **named)
            with ThreadPoolExecutor(1) as other:
                forkable.append((what, other.submit(may_fork).result()))
            return made

        return call

    system = mapping._system()
    calls = {name: told(name, getattr(system, name)) for name in ("mmap", "madvise")}
    monkeypatch.setattr(mapping, "_system", lambda: SimpleNamespace(munmap=system.munmap, **calls))
    for name in ("memfd_create", "open", "close"):
        monkeypatch.setattr(os, name, told(name, getattr(os, name)))
    writer, _ = ring()
    monkeypatch.undo()
    made = ["memfd_create", "mmap", "madvise"]
    opened = ["open", "mmap", "madvise", "close", "close"]
    assert forkable == [(what, False) for what in made + opened]
    assert may_fork()
    assert writer.freed == 0


def may_fork() -> bool:
    taken = forks._LOCK.acquire(blocking=False)
    if taken:
        forks._LOCK.release()
    return taken


def test_a_fork_takes_the_lock_and_leaves_it_free_on_both_sides() -> None:
    class Holder:
        owned = False

        def close(self) -> None:
            self.owned = forks._LOCK._is_owned()  # type: ignore[attr-defined]

    holder = Holder()
    forks.held_alone(holder)
    if not (child := os.fork()):
        code = 1
        try:
            with ThreadPoolExecutor(1) as other:
                code = int(not (holder.owned and other.submit(may_fork).result()))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with ThreadPoolExecutor(1) as other:
        assert other.submit(may_fork).result()


def test_what_cannot_be_mapped_is_an_error_and_no_ring() -> None:
    with pytest.raises(OSError, match="cannot be mapped"):
        mapping.mapped(-1, 4096)


def test_what_cannot_be_kept_from_forks_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    system = mapping._system()
    refusing = SimpleNamespace(mmap=system.mmap, munmap=system.munmap, madvise=lambda *given: -1)
    monkeypatch.setattr(mapping, "_system", lambda: refusing)
    open_before, mapped_before = descriptors(), mappings()
    with pytest.raises(OSError, match="cannot be kept from forks"):
        shared.Writer(TOKEN, RING)
    assert descriptors() <= open_before
    assert mappings() <= mapped_before


def test_a_file_that_can_shrink_under_us_is_not_opened() -> None:
    """Whoever touches a page that is gone is killed (SIGBUS)."""
    number = os.memfd_create("ictp2p", os.MFD_ALLOW_SEALING)
    try:
        os.truncate(number, 4096 + RING)
        os.pwrite(number, TOKEN, 0)
        assert shared.opened(offer(os.getpid(), number)) is None
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        assert shared.opened(offer(os.getpid(), number)) is not None
    finally:
        os.close(number)


@pytest.mark.parametrize("capacity", [0, 63, 100, 2**40])
def test_an_offer_of_no_such_ring_is_an_error(capacity: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"ring of {capacity} bytes"):
        shared.opened(offer(os.getpid(), 0, capacity))
    with pytest.raises(RemoteProtocolError, match="offer of 3 bytes"):
        shared.opened(memoryview(b"abc"))


# Collectives through it.


def rings(world: Any) -> list[int]:
    """Count the rings of each connection, at either end of it: two, if both directions have one."""
    connections = [c for bulk in world.bulks.values() for kept in bulk._pool._ready.values() for c in kept]
    return [(c.ring is not None) + (c._outbound.ring is not None) for c in connections]


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
        patch.setattr(tuning, "same_host", lambda transport: True)
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
