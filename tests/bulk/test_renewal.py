"""That a connection of bbr need not pause to measure its round trip while it sends, and is otherwise left alone."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ictp2p.bulk import connection as connections
from ictp2p.bulk import kernel, renewal, resting
from ictp2p.bulk.frames import Kind
from ictp2p.bulk.outbound import Outbound
from ictp2p.bulk.renewal import EARLY, EXPIRY, Renewal
from tests.bulk.conftest import PROFILE, TURN, run_turns
from tests.bulk.test_connection import Talker, connected
from tests.bulk.test_resting import Carrier, carry
from tests.bulk.test_splice import SIZE, STALL, Spliced

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")

MAX_PACING_RATE = 47
UNPACED = (1 << 64) - 1
STARTUP, CRUISE = 739, 256  # gains of bbr, in 1/256
RATE, ROUND_TRIP = 3_000_000, 0.05
gaps = st.floats(0.001, 0.9 * resting.REST)
rests = st.floats(resting.REST, 3 * EXPIRY)


@pytest.fixture(autouse=True)
def _bbr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this host has it is no matter but to the last test."""
    monkeypatch.setattr(renewal, "_allowed", lambda: True)


class Line:
    """A socket with a bbr of which the test sees what it knows, and since when."""

    family = socket.AF_INET

    def __init__(self, control: bytes = b"bbr", gain: int = CRUISE, repair: int = 0, pauses: bool = False) -> None:
        self.control, self.gain, self.repair, self.pauses = control, gain, repair, pauses
        self.rate, self.limit = RATE, UNPACED
        self.round_trip = self.found = self.least = ROUND_TRIP
        """The smoothed one, what bbr has found, and the kernel's least one."""
        self.silence = 0.0
        """Seconds since the last acknowledgement."""
        self.given: list[bytes] = []
        """To which controls it was given."""

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        if option == socket.TCP_CONGESTION:
            return self.control.ljust(size, b"\0")
        if option == renewal._TCP_CC_INFO:
            return struct.pack("=5I", self.rate, 0, int(self.found * 1e6), self.gain, 256 if self.pauses else 512)
        info = bytearray(size)
        info[1] = self.repair
        trips = int(self.round_trip * 1e6), int(self.least * 1e6)
        silence = int(self.silence * 1000)
        for offset, value in ((56, silence), (68, trips[0]), (148, trips[1])):  # linux/tcp.h
            struct.pack_into("=I", info, offset, value)
        return bytes(info)

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if option == MAX_PACING_RATE:
            self.limit = int.from_bytes(value, sys.byteorder)
        else:
            self.control = value
            self.given.append(value)


def old(line: Line) -> Renewal:
    """Of a connection that has sent for so long that bbr soon measures again."""
    made = Renewal(Carrier(line), 0.0)
    made.sent(EXPIRY - EARLY)
    return made


@given(
    st.lists(st.one_of(gaps, gaps, gaps, rests), max_size=400),
    st.lists(st.tuples(st.one_of(gaps, st.floats(resting.REST, EXPIRY)), st.floats(0, 1)), max_size=8),
)
@example([0.001, 16.342749840807098], [(9.999999999999998, 0.0), (2.0, 0.0)])
@example([0.001, 16.342749840807098], [(9.999999999999998, 0.0), (10.0, 0.5)])
def test_what_bbr_knows_is_never_old_while_we_send(pauses: list[float], shorter: list[tuple[float, float]]) -> None:
    """By a model of the kernel: what is old is measured for nothing after a rest, and else with a pause.

    A shorter round trip renews it too, at any time; it comes after a part of some pauses.
    """
    line, now, known = Line(), 0.0, 0.0
    spared = Renewal(Carrier(line), now)
    for pause, part in (*((pause, None) for pause in pauses), *shorter, *[(0.1, None)] * 150):
        if part is not None:
            known, line.found = now + part * pause, line.found - 2e-6
        now, line.silence = now + pause, pause * (1 - (part or 0.0))
        if pause >= resting.REST:
            spared.woken(now)
            if now >= known + EXPIRY:
                known, line.found = now, 1.1 * ROUND_TRIP
            continue
        line.given.clear()
        spared.sent(now)
        known = now if line.given else known
        assert now < known + EXPIRY
        assert line.control == b"bbr"


@given(st.lists(gaps, min_size=1, max_size=300))
def test_it_is_renewed_no_more_often_than_needed(pauses: list[float]) -> None:
    line, now = Line(), 0.0
    spared = Renewal(Carrier(line), now)
    for pause in pauses:
        spared.sent(now := now + pause)
    assert line.given.count(b"bbr") <= now / (EXPIRY - EARLY)


def test_a_connection_is_held_near_the_rate_that_it_knew_until_it_knows_it_again() -> None:
    line, now = Line(), EXPIRY - EARLY
    spared = old(line)
    assert line.given == [b"reno", b"bbr"]
    limit = line.limit
    assert RATE < limit < 1.1 * RATE
    for line.rate, line.gain, later in ((0, 0, 1.0), (RATE, STARTUP, 2.0), (RATE // 2, STARTUP, 3 * EXPIRY)):
        spared.sent(now + later)
        assert line.limit == limit, "before its first acknowledgement, while it searches, and when renewed again"
    line.rate, line.gain = RATE, CRUISE
    spared.sent(now + 3 * EXPIRY + 5.1 * ROUND_TRIP)
    assert line.limit == UNPACED
    assert line.given == 2 * [b"reno", b"bbr"]


@given(st.integers(1, RATE))
def test_who_knew_next_to_nothing_is_held_at_what_still_shows_the_rate(known: int) -> None:
    line = Line()
    line.rate = known
    old(line)
    assert line.limit == int(max(renewal._ABOVE * known, 4 * 1460 / ROUND_TRIP))


def test_a_connection_that_is_given_to_another_control_is_held_no_more() -> None:
    line = Line()
    spared = old(line)
    line.control = b"cubic"
    spared.sent(EXPIRY)
    assert line.limit == UNPACED


@given(st.sampled_from([0.5, 2.0]))
def test_a_pace_stands_while_the_rate_is_renewed_and_after(times: float) -> None:
    line = Line()
    spared = Renewal(Carrier(line), 0.0)
    assert spared.pace(times * RATE)
    spared.sent(EXPIRY - EARLY)
    assert line.limit == int(min(times, renewal._ABOVE) * RATE)
    spared.sent(EXPIRY)
    assert line.limit == int(times * RATE)
    spared.pace(None)
    assert line.limit == UNPACED


def test_who_still_searches_for_the_rate_is_not_held() -> None:
    line = Line(gain=STARTUP)
    old(line)
    assert (line.given, line.limit) == ([b"reno", b"bbr"], UNPACED)


@pytest.mark.parametrize("line", [Line(control=b"cubic"), Line(pauses=True)], ids=["another", "pausing"])
def test_another_control_and_one_that_pauses_are_left_alone(line: Line) -> None:
    spared = old(line)
    line.control, line.pauses = b"bbr", False
    spared.sent(2 * (EXPIRY - EARLY) - 0.1)
    assert not line.given, "it was as new just now"
    spared.sent(2 * (EXPIRY - EARLY))
    assert line.given


def test_a_longer_way_that_bbr_has_found_is_not_taken_from_it() -> None:
    """With the least round trip that the kernel remembers its window would be that of the shorter way."""
    line, now = Line(), 0.0
    line.round_trip = line.found = 4 * ROUND_TRIP
    spared = Renewal(Carrier(line), now)
    while now < 300.0:
        spared.sent(now := now + 0.1)
    assert not line.given
    line.least = line.found  # the kernel has forgotten the shorter one
    while now < 300.0 + EXPIRY:
        spared.sent(now := now + 0.1)
    assert line.given == [b"reno", b"bbr"]


@given(
    st.one_of(st.floats(1.1, 1.9), st.floats(2.1, 10.0)),
    st.floats(1.0, 1.1),
    st.one_of(st.just(1.0), st.floats(0.1, 0.8)),
)
def test_bbr_is_let_look_once_in_a_while_where_the_way_may_be_longer(queued: float, found: float, sinks: float) -> None:
    """A queue is no other way: whoever finds that out with each pause would pause as often as without us.

    Where the way is another one its rate sinks, for bbr has too little on its way; that of a queue's line stays.
    """
    line, now, pauses, known = Line(), 0.0, 0, 0.0
    line.round_trip, line.found = queued * ROUND_TRIP, found * ROUND_TRIP
    spared = Renewal(Carrier(line), now)
    while now < 300.0:
        line.given.clear()
        spared.sent(now := now + 0.1)
        line.rate = RATE if now % EXPIRY < EXPIRY / 2 else int(sinks * RATE)
        pauses += now >= known + EXPIRY
        known = now if line.given or now >= known + EXPIRY else known
    assert pauses in (range(3, 300 // 60 + 1) if queued > 2 and sinks < 1 else [0])


def test_a_loss_is_repaired_first() -> None:
    line = Line(repair=3)
    spared = old(line)
    assert not line.given
    line.repair = 1
    spared.sent(EXPIRY - EARLY / 2)
    assert line.given


@given(st.floats(resting.REST, EXPIRY / 2))
def test_a_pause_that_ends_with_the_first_message_renews(rest: float) -> None:
    """It fell silent in the pause; nothing that it found is another after it."""
    line, now = Line(pauses=True), 1.0
    spared = Renewal(Carrier(line), 0.0)
    spared.sent(now)
    line.silence, now = rest, now + rest
    spared.woken(now)
    line.pauses, line.silence = False, EXPIRY - 1
    spared.woken(now + EXPIRY - 1)
    spared.sent(now + EXPIRY - 0.9)
    assert line.given, "it was as new when the pause ended, and soon is not"


def test_a_first_message_after_the_rest_of_ten_seconds_costs_no_search() -> None:
    line, now = Line(), 0.0
    spared = Renewal(Carrier(line), now)
    for _ in range(5):
        line.silence, now = EXPIRY + 1, now + EXPIRY + 1
        spared.woken(now)
        line.found = ROUND_TRIP + now / 1e3
        for _ in range(20):
            spared.sent(now := now + 0.2)
    assert not line.given


def test_a_pace_that_was_lowered_is_no_rate_that_has_sunk() -> None:
    line = Line()
    line.round_trip = 3 * ROUND_TRIP
    spared = Renewal(Carrier(line), 0.0)
    spared.sent(1.0)
    spared.pace(RATE / 2)
    line.rate = RATE // 2
    spared.sent(EXPIRY - EARLY)
    assert line.given


def test_who_searches_for_its_rate_is_not_let_look_for_having_less() -> None:
    line = Line()
    line.round_trip = 3 * ROUND_TRIP
    spared = Renewal(Carrier(line), 0.0)
    spared.sent(1.0)
    line.rate, line.gain = RATE // 2, STARTUP
    spared.sent(EXPIRY - EARLY)
    assert line.given


def test_a_connection_that_has_just_gone_is_no_error() -> None:
    class Gone(Line):
        def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
            raise OSError("bad file descriptor")

    old(Gone()).woken(2 * EXPIRY)
    closing, line = Carrier(Line()), Line()
    closing.closing = True
    Renewal(closing, 0.0).sent(EXPIRY)
    assert not line.given


def test_what_we_may_not_give_back_is_not_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may have bbr by its route, on a host that lets only its administrator choose it."""
    monkeypatch.setattr(renewal, "_allowed", lambda: False)
    line = Line()
    spared = old(line)
    spared.woken(3 * EXPIRY)
    spared.sent(4 * EXPIRY)
    assert not line.given


async def test_a_connection_renews_as_it_sends_and_not_with_the_first_after_a_rest(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mesh(2)
    connection = await world.bulks[world.names[0]].connection(world.names[1], 5)
    told: list[tuple[str, float]] = []
    monkeypatch.setattr(connection._renewal, "sent", lambda now: told.append(("sent", now)))
    monkeypatch.setattr(connection._renewal, "woken", lambda now: told.append(("woken", now)))
    monkeypatch.setattr(resting, "wake", lambda transport: 2)
    for now in (50.0, 50.0 + 0.9 * resting.REST, 60.0):
        connection._clock = lambda now=now: now
        connection.wake()
        connection.send(Kind.ALIVE)
    assert told == [("woken", 50.0), ("sent", 50.0 + 0.9 * resting.REST), ("woken", 60.0)]
    monkeypatch.setattr(Outbound, "pending", property(lambda self: SIZE))
    connection._clock = lambda: 70.0
    connection.send(Kind.ALIVE)
    assert told[3:] == [("sent", 70.0)], "what left before it is still on its way to the kernel"


async def test_a_connection_that_waits_for_a_slow_line_renews_without_a_frame(
    mesh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was held at a tenth of its line had no frame within a rest of the last one: it stayed held for good."""
    connection, talker = await connected(mesh(2)), Talker(1, [])
    told: list[float] = []
    monkeypatch.setattr(connection._renewal, "sent", told.append)
    monkeypatch.setattr(connections, "SEALS", 1 << 40)
    monkeypatch.setattr(resting, "REST", 0.0)  # no frame tells it
    connection.join(talker)
    await asyncio.sleep(2 * PROFILE.stall)
    assert not told, "nothing waits"
    taken = itertools.count(1 << 40, -1)
    monkeypatch.setattr(kernel, "unacknowledged", lambda transport: next(taken))
    connection.transport.frozen = True  # type: ignore[attr-defined]  # it takes nothing more from us
    talker.left = 1
    connection.kick(talker)
    await asyncio.sleep(PROFILE.stall)
    assert told


def test_a_relay_renews_what_it_knows_of_the_way_onward(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, str, float]] = []
    monkeypatch.setattr(Renewal, "sent", lambda self, now: told.append((self._transport, "sent", now)))
    monkeypatch.setattr(Renewal, "woken", lambda self, now: told.append((self._transport, "woken", now)))
    monkeypatch.setattr(resting, "wake", lambda transport: 2)

    async def story() -> None:
        relay = Spliced(SIZE)
        assert relay.sender.other is not None
        protocol: Any = relay.sender.other.get_protocol()
        for now in (1e9, 1e9 + 0.9 * resting.REST, 2e9):
            protocol._clock = lambda now=now: now
            protocol.buffer_updated(1)
            await asyncio.sleep(TURN)
        onward = relay.onward
        assert told == [(onward, "woken", 1e9), (onward, "sent", 1e9 + 0.9 * resting.REST), (onward, "woken", 2e9)]

    run_turns(story())


def test_a_relay_renews_the_way_onward_while_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both for what comes after a pause, in which it has read nothing because the way was full, and in that pause."""
    told: list[tuple[Any, str]] = []
    monkeypatch.setattr(Renewal, "sent", lambda self, now: told.append((self._transport, "sent")))
    monkeypatch.setattr(Renewal, "woken", lambda self, now: told.append((self._transport, "woken")))
    monkeypatch.setattr(resting, "wake", lambda transport: 2)

    async def story() -> None:
        relay = Spliced(1)
        onward = relay.onward
        onward.frozen = True
        assert relay.sender.other is not None
        protocol: Any = relay.sender.other.get_protocol()
        protocol._clock = lambda: 1e9
        protocol.buffer_updated(1)
        protocol._clock = lambda: 2e9
        protocol.buffer_updated(1)
        assert told == [(onward, "woken"), (onward, "sent")]
        relay.sender.write(bytes(SIZE))
        while protocol.transport.is_reading():
            await asyncio.sleep(0)
        told.clear()
        await asyncio.sleep(STALL / 2)
        assert (onward, "sent") in told

    run_turns(story())


def test_the_kernel_does_it(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    try:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    except OSError:
        pytest.skip("this host lacks bbr, or keeps it from us")
    for _ in range(500):
        carry(near, far, 1 << 22)
        if known(near)[1] <= 1.25 * 256:
            break
    else:
        pytest.skip("it found no rate on this host")
    spared = Renewal(Carrier(near), 0.0)
    spared.sent(EXPIRY)  # round trips of some microseconds are doubled by anything, which is doubted once
    spared.sent(2 * EXPIRY)
    assert known(near)[0] == 0, "it begins anew"
    assert limit(near) < UNPACED
    carry(near, far, 1 << 20)
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    spared.sent(3 * EXPIRY)
    assert limit(near) == UNPACED


def known(endpoint: socket.socket) -> tuple[int, int]:
    rate, _, gain, _ = renewal._CC_INFO.unpack(endpoint.getsockopt(socket.IPPROTO_TCP, renewal._TCP_CC_INFO, 20))
    return rate, gain


def limit(endpoint: socket.socket) -> int:
    return int.from_bytes(endpoint.getsockopt(socket.SOL_SOCKET, MAX_PACING_RATE, 8), sys.byteorder)
