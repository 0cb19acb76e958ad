"""The sending side of a probe on a clock of its own: what it sends, and when it ends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.streams import PROBE_CHUNK, PROBE_MOST, Fetch, Probe
from ictp2p.errors import StateError

TAG = bytes(16)


async def _blast(size: int, seconds: int, gap: int, stop: int | None) -> list[tuple[int, int, int]]:
    """(length, `second`, `first`) of all frames of a probe, one asked for each `gap` seconds, stopped before one."""
    now = 0
    probe = Probe(TAG, size, seconds, lambda: now)
    frames: list[tuple[int, int, int]] = []
    while True:
        if len(frames) == stop:
            probe.stop()
        frame = probe.next_frame()
        if frame is None:
            return frames
        frames.append((sum(map(len, frame.views)), frame.second, frame.first))
        now += gap


@given(st.integers(1, 50 * PROBE_CHUNK), st.integers(1, 100), st.integers(1, 200), st.none() | st.integers(0, 60))
def test_it_ends_in_time_and_its_last_frame_says_so(size: int, seconds: int, gap: int, stop: int | None) -> None:
    frames = asyncio.run(_blast(size, seconds, gap, stop))
    assert all(left > length for length, left, _ in frames[:-1]), "the receiver measures until the last one"
    length, left, cut = frames[-1]
    assert left == length
    assert sum(each for each, _, _ in frames) <= size
    assert (len(frames) - 2) * gap < seconds, "one frame may be asked for after its time, and that is the last one"
    assert len(frames) <= (60 if stop is None else stop + 1)
    assert bool(cut) == (stop is not None and stop < len(frames))
    if not cut and (len(frames) - 1) * gap < seconds:
        assert sum(each for each, _, _ in frames) == size


@given(st.floats(1e3, 1e10), st.integers(1, 2**24))
def test_a_frame_takes_a_small_part_of_a_second_or_is_a_small_one(rate: float, size: int) -> None:
    async def blast() -> list[int]:
        now = 0.0
        probe = Probe(TAG, size, 1e9, lambda: now)
        lengths: list[int] = []
        while (frame := probe.next_frame()) is not None:
            lengths.append(sum(map(len, frame.views)))
            now += lengths[-1] / rate
        return lengths

    lengths = asyncio.run(blast())
    assert sum(lengths) == size
    for length in lengths:
        assert length <= PROBE_CHUNK or (length <= PROBE_MOST and length <= 0.0501 * rate)
    if rate > 20 * PROBE_MOST:
        assert all(length == PROBE_MOST for length in lengths[1:-1]), "a fast link is measured by few"


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_header_ends_no_request_before_its_seal_was_looked_at(offset: int, length: int) -> None:
    """Regression: a bit that was changed on the way ended it, and the error blamed an honest peer."""
    header = Header(Kind.REPLY, TAG, second=offset, length=length)

    async def asked() -> None:
        fetch = Fetch(memoryview(bytearray(10)), None, lambda: 0.0)
        placed = fetch.place(header)
        assert not fetch.result.done()
        assert (placed is not None) == (offset == 0 and length <= 10)
        fetch.take(header, memoryview(bytes(length)))
        if placed is None:  # it was authentic
            with pytest.raises(StateError, match=rf"reply bytes \[{offset}, {offset + length}\) at 0 of 10"):
                fetch.result.result()
        else:
            assert not fetch.result.done()

    asyncio.run(asked())
