"""Bodies through shared memory: the ring by itself, who may open it, and collectives whose chunks go through it."""

from __future__ import annotations

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

from ictp2p.bulk import mapping, shared
from ictp2p.concurrency import forks
from ictp2p.errors import RemoteProtocolError
from tests.bulk.rings import RING, TOKEN, descriptors, mappings, put, ring

sizes = st.one_of(st.integers(1, RING // 4), st.sampled_from([1, 63, 64, 65, RING // 4]))


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
