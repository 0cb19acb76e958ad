"""A machine that is late itself, and the helpers that keep it from blaming others for it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    Ack,
    Gossip,
    MemberFailed,
    Nack,
    Ping,
    PingRequest,
    Suspect,
)
from ictp2p.gossip.suspicion import limits
from ictp2p.machine import Send
from tests.gossip.swim_group import LAN, keep_answering, notices, record, sends, started

# --- our own lag


def test_late_machine_blames_itself() -> None:
    swim = started("a", "b")
    due = swim.next_timeout() or 0.0
    swim.handle_timeout(due)
    while not sends(effects := swim.handle_timeout(swim.next_timeout() or 0.0), Ping):
        pass
    asked_at = max(due, (swim.next_timeout() or 0.0) - LAN.probe_timeout)
    resumed = asked_at + 100.0
    effects = swim.handle_timeout(resumed)
    assert not notices(effects)
    assert swim.suspects() == frozenset()
    assert swim.health == 1
    for _ in range(5):
        assert not notices(swim.handle_timeout(resumed + 0.01)), "a whole probe timeout is left to read the answer"
    swim.heard("b", resumed + 0.1)
    assert swim.health == 0


def test_lag_told_by_the_driver_is_not_counted_twice() -> None:
    swim = started("a", "b")
    while not sends(swim.handle_timeout(swim.next_timeout() or 0.0), Ping):
        pass
    resumed = (swim.next_timeout() or 0.0) + 30.0
    swim.lagged(30.0, resumed)
    swim.lagged(30.0, resumed)
    swim.handle_timeout(resumed)
    assert swim.health == 1


def test_small_lag_is_nothing() -> None:
    swim = started("a", "b")
    swim.lagged(LAN.probe_timeout / 2, 10.0)
    swim.lagged(math.nan, 10.0)
    assert swim.health == 0


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from(["detail", "news", "accusation", "turn"])), max_size=60))
def test_whatever_comes_a_machine_that_is_called_in_time_is_not_late(inputs: list[tuple[float, str]]) -> None:
    """News that presses goes out earlier than the details it joins were to: that is nobody's delay."""
    swim, now = started("a", "b", "c", "d", "e"), 0.0
    for number, (pause, what) in enumerate(inputs):
        now += pause
        keep_answering(swim, now, except_for="nobody")
        match what:
            case "detail" | "news":
                swim.publish(str(number).encode(), now, detail=what == "detail")
            case "accusation":
                swim.receive("b", Gossip((Suspect("c", 1, "b"),)), now)
            case _:
                swim.receive("c", Gossip((record("c", number + 2),)), now)
        due = swim.next_timeout()
        assert due is not None
        assert due >= now
    assert swim.health == 0


def test_running_suspicion_is_extended_by_our_own_pause() -> None:
    swim = started("a", "b")
    swim.broken("b", False, 1.0)
    verdict = 1.0 + limits(2, LAN)[0]
    assert not any(isinstance(n, MemberFailed) for n in notices(swim.handle_timeout(verdict + 50)))
    assert swim.suspects() == {"b"}


# --- helpers


def test_helper_passes_the_answer_on() -> None:
    helper = started("h", "a", "b")
    asked = sends(helper.receive("a", PingRequest(41, "b"), 1.0), Ping)
    number = asked[0].message.number  # type: ignore[attr-defined]
    effects = helper.receive("b", Ack(number), 1.1)
    assert [(s.to, s.message.number) for s in sends(effects, Ack)] == [("a", 41)]  # type: ignore[attr-defined]


def test_helper_says_when_the_target_is_silent_to_it_as_well_and_a_late_answer_still_counts() -> None:
    helper = started("h", "a", "b")
    number = sends(helper.receive("a", PingRequest(41, "b"), 1.0), Ping)[0].message.number  # type: ignore[attr-defined]
    said: list[Send] = []
    while (due := helper.next_timeout()) is not None and due <= 1.0 + LAN.probe_timeout:
        said += sends(helper.handle_timeout(due), Nack)
    assert said == [Send("a", Nack(41))]
    assert sends(helper.receive("b", Ack(number), 1.6), Ack)[0].to == "a"


def test_helper_refuses_at_once_whom_it_does_not_know_and_answers_for_itself() -> None:
    helper = started("h", "a")
    assert helper.receive("a", PingRequest(1, "stranger"), 1.0) == [Send("a", Nack(1))]
    assert [type(s.message) for s in sends(helper.receive("a", PingRequest(2, "h"), 1.0))] == [Ack]


def test_flood_of_requests_is_bounded() -> None:
    helper = started("h", "a", "b")
    pings = [p for i in range(1000) for p in sends(helper.receive("a", PingRequest(i, "b"), 1.0), Ping)]
    assert len(pings) == 256


def test_health_falls_by_the_helpers_that_said_nothing() -> None:
    def health_after(nacks: int) -> int:
        swim = started("a", "b", "c", "d", "e")
        while True:
            effects = swim.handle_timeout(swim.next_timeout() or 0.0)
            requests = sends(effects, PingRequest)
            for request in requests[:nacks]:
                swim.receive(request.to, Nack(request.message.number), 1.0)  # type: ignore[attr-defined]
            if swim.suspects():
                return swim.health

    assert [health_after(n) for n in range(4)] == [3, 2, 1, 0]


@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_helper_s_word_counts_once_be_it_before_the_verdict_or_after(in_time: list[bool]) -> None:
    swim = started("a", "b", "c", "d", "e")
    asked: list[Send] = []
    while not swim.suspects():
        asked = sends(swim.handle_timeout(swim.next_timeout() or 0.0), PingRequest) or asked
        for early, request in zip(in_time, asked, strict=False):
            if early:
                swim.receive(request.to, Nack(request.message.number), 1.0)  # type: ignore[attr-defined]
    assert swim.health == in_time.count(False)
    for request in (*asked, *asked):
        swim.receive(request.to, Nack(request.message.number), 1.0)  # type: ignore[attr-defined]
    assert swim.health == 0
