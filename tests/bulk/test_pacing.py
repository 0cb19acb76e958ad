from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.pacing import Blast, Bucket, Meter, Watch


@given(st.floats(1e3, 1e9), st.lists(st.integers(1, 4_000_000), min_size=2, max_size=30))
def test_a_bucket_keeps_the_rate_whatever_the_frames(rate: float, sizes: list[int]) -> None:
    bucket, now = Bucket(), 0.0
    bucket.set(rate, now)
    for size in sizes:
        now += bucket.delay(now)
        assert bucket.delay(now) == pytest.approx(0, abs=1e-9)
        bucket.spend(size)
    assert now == pytest.approx(sum(sizes[:-1]) / rate, rel=1e-6)


def test_a_bucket_saves_up_little_while_idle_and_nothing_is_paced_without_a_rate() -> None:
    bucket = Bucket(burst=0.02)
    bucket.set(1000.0, 0.0)
    assert bucket.delay(100.0) == 0
    bucket.spend(120)
    assert bucket.delay(100.0) == pytest.approx(0.1)
    bucket.set(None, 100.0)
    bucket.spend(10**9)
    assert bucket.delay(100.0) == 0


def test_a_meter_needs_more_than_the_first_frames() -> None:
    meter = Meter()
    for now, size in ((1.0, 500), (1.5, 100)):
        meter.add(size, True, now)
    assert meter.sample() is None
    meter.add(100, True, 2.0)
    assert meter.sample() == (200, 1.0, True), "all gaps were the sender's: this can only raise an estimate"


def test_pauses_of_the_sender_are_left_out_of_what_the_link_took() -> None:
    meter = Meter()
    now = 0.0
    for number in range(30):
        paused = number % 3 == 0
        now += 5.0 if paused else 0.1
        meter.add(1000, paused, now)
    size, seconds, app_limited = meter.sample() or (0, 0.0, True)
    assert not app_limited
    assert size / seconds == pytest.approx(10_000)


@given(rate=st.floats(1e3, 1e9), pauses=st.lists(st.floats(0, 10), min_size=3, max_size=50))
def test_whatever_the_pauses_the_links_own_rate_is_found(rate: float, pauses: list[float]) -> None:
    meter = Meter()
    now = 0.0
    for pause in pauses:
        for starved in (True, False):
            now += (pause if starved else 0.0) + 1000 / rate
            meter.add(1000, starved, now)
    size, seconds, app_limited = meter.sample() or (0, 1.0, True)
    assert not app_limited
    assert size / seconds == pytest.approx(rate, rel=0.05)


CHECKS = Watch.CHECKS


def run_watch(steps: list[tuple[int, int, bool, bool]]) -> list[str | None]:
    watch = Watch(1.0)
    return [watch.check(read, wrote, expecting=expecting, pending=pending) for read, wrote, expecting, pending in steps]


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-3, 1.0), st.booleans()), min_size=2), st.data())
def test_a_meter_that_begins_again_loses_nothing_between(
    frames: list[tuple[int, float, bool]], data: st.DataObject
) -> None:
    """What two meters in turn count of a transfer is what one counts of all of it."""
    cut = data.draw(st.integers(1, len(frames) - 1))
    whole, first, now = Meter(), Meter(), 0.0
    parts = [first]
    for number, (size, gap, starved) in enumerate(frames):
        now += gap
        if number == cut:
            parts.append(parts[-1].again())
        whole.add(size, starved, now)
        parts[-1].add(size, starved, now)
    assert sum(part.size for part in parts) == whole.size
    assert sum(part.busy_size for part in parts) == whole.busy_size
    assert sum(part.busy_frames for part in parts) == whole.busy_frames
    assert sum(part.busy_seconds for part in parts) == pytest.approx(whole.busy_seconds)
    assert Meter().again() == Meter()


def test_silence_is_a_fault_only_while_something_is_due() -> None:
    silent = [(5, 0, True, False)]
    assert run_watch(silent * (CHECKS + 1))[-1] == "sent nothing for 1 s although more was due"
    assert not any(run_watch(silent * CHECKS))
    assert not any(run_watch([(5, 0, False, False)] * 5 * CHECKS))
    assert not any(run_watch([(n, 0, True, False) for n in range(5 * CHECKS)]))


def test_one_byte_in_time_starts_the_count_anew() -> None:
    silent = [(5, 0, True, False)] * CHECKS
    assert not any(run_watch([*silent, *[(6, 0, True, False)] * CHECKS]))
    assert not any(run_watch([*silent, (5, 0, False, False), *silent[1:]]))


def test_a_peer_that_takes_nothing_is_a_fault_even_if_it_sends() -> None:
    full = [(n, 7, True, True) for n in range(CHECKS + 1)]
    assert run_watch(full)[-1] == "took nothing for 1 s although more was offered"
    assert not any(run_watch([(n, n, True, True) for n in range(5 * CHECKS)]))
    assert not any(run_watch([(n, 7, True, False) for n in range(5 * CHECKS)]))


@given(st.floats(0.1, 60.0), st.floats(0.0, 1.0))
def test_a_stall_is_found_soon_after_its_deadline_and_never_before_it(stall: float, phase: float) -> None:
    """The other end falls silent anywhere between two checks."""
    watch, now = Watch(stall), 0.0
    silent = phase * watch.interval
    while not watch.check(int(now >= silent), 0, expecting=True, pending=False):
        now += watch.interval
    assert stall * 0.999 <= now - silent <= stall * 9 / 8


@pytest.mark.parametrize("moving", ["read", "wrote"])
def test_a_connection_stands_still_after_a_quarter_of_the_deadline(moving: str) -> None:
    """What was lost after a shorter pause tells nothing of its packets' size."""
    watch, quarter, due = Watch(1.0), CHECKS // 4, {"expecting": moving == "read", "pending": moving == "wrote"}
    for _ in range(quarter):
        watch.check(5, 7, **due)
        assert not watch.standing
    watch.check(5, 7, **due)
    assert watch.standing
    watch.check(6, 8, **due)
    assert not watch.standing


@given(
    rate=st.floats(1e5, 1e9),
    frames=st.integers(40, 300),
    opening=st.floats(0.0, 0.2),
    hole=st.floats(0.0, 0.55),
    length=st.floats(0.0, 0.3),
)
def test_a_blast_shows_the_line_though_it_began_slowly_and_a_lost_packet_held_up_what_came_behind(
    rate: float, frames: int, opening: float, hole: float, length: float
) -> None:
    """For a part of its time the sender is half as fast; what arrives within a hole is read at once at its end."""
    size = 65536
    whole, blast = frames * size / rate, Blast()
    arrival = 0.0
    for _ in range(frames):
        arrival += size / rate * (2 if arrival < opening * whole else 1)
        held = hole * whole <= arrival <= (hole + length) * whole
        blast.add(size, (hole + length) * whole if held else arrival)
    counted, seconds, limited = blast.sample()
    assert not limited
    assert counted == (frames - 1) * size
    assert 0.85 * rate <= counted / seconds <= 1.1 * rate


def test_a_blast_of_however_many_frames_is_remembered_by_some_and_shows_the_same() -> None:
    blast = Blast()
    for number in range(100_000):
        blast.add(10, number * 1e-5)
        assert len(blast._arrived) <= 512
    counted, seconds, limited = blast.sample()
    assert (counted, limited) == (999_990, False)
    assert counted / seconds == pytest.approx(1e6, rel=0.01)


def test_a_blast_of_a_frame_or_two_is_a_lower_bound_of_what_came_behind_the_first() -> None:
    """Regression: the first one counted as if it had taken no time, as 1 GB/s of a line of 10 Mbit/s."""
    blast = Blast()
    blast.add(1000, 3.0)
    assert blast.sample() == (0, 1e-6, True)
    blast.add(500, 4.0)
    assert blast.sample() == (500, 1.0, True)
