from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.health import LocalHealth
from ictp2p.gossip.ledger import Ledger
from ictp2p.gossip.messages import Ack, Delta, MemberSuspected, Nack, Ping, PingRequest, Record
from ictp2p.gossip.prober import Prober
from ictp2p.gossip.profile import SwimProfile
from ictp2p.machine import Effects, Send

LAN = SwimProfile.lan()


def prober(*others: str) -> Prober:
    health = LocalHealth(8)
    ledger = Ledger("a", LAN, health, lambda r: r, lambda _r: True)
    ledger.begin(b"", 1, 0.0)
    for name in others:
        ledger.learn(Record(name, 1, 0, b""), 0.0)
    asking = Prober("a", LAN, random.Random(0), health, ledger)
    asking.start(0.0)
    return asking


def messages(effects: Effects) -> list[tuple[str, type]]:
    return [(e.to, type(e.message)) for e in effects if isinstance(e, Send)]


def ping_of(effects: Effects) -> Ping:
    return next(e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Ping))


def test_a_silent_target_is_asked_directly_then_through_helpers_then_suspected() -> None:
    asking = prober("b", "c")
    began = asking.due()
    target = messages(asking.proceed(began))[0][0]
    helper = "c" if target == "b" else "b"
    assert asking.due() == began + LAN.probe_timeout
    assert messages(asking.proceed(asking.due())) == [(helper, PingRequest)]
    assert asking.due() == began + LAN.probe_interval
    assert MemberSuspected(target) in asking.proceed(asking.due())


def answer_after(asking: Prober, seconds: float, probes: int) -> list[str]:
    """Let each of so many probes be answered so late, directly; return who was suspected."""
    answers: list[tuple[float, int]] = []
    suspects: list[str] = []
    while probes:
        if answers and answers[0][0] <= asking.due():
            at, number = heapq.heappop(answers)
            asking.acked(number, at)
            probes -= 1
            continue
        now = asking.due()
        effects = asking.proceed(now)
        suspects += [e.member for e in effects if isinstance(e, MemberSuspected)]
        for ping in (e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Ping)):
            heapq.heappush(answers, (now + seconds, ping.number))
    return suspects


@given(st.floats(0.001, 0.95))
def test_a_verdict_waits_as_long_as_answers_take_within_reason(seconds: float) -> None:
    asking = prober("b", "c")
    assert answer_after(asking, seconds, probes=40) == []
    began = asking.due()
    asking.proceed(began)
    assert asking.due() == began + LAN.probe_timeout, "helpers are asked no later"
    asking.proceed(asking.due())
    waited = asking.due() - began
    assert waited == pytest.approx(max(LAN.probe_interval, min(2 * seconds, 3 * LAN.probe_timeout)), abs=0.01)


def test_an_answer_after_the_verdict_is_learned_from() -> None:
    asking = prober("b", "c")
    began = asking.due()
    number = ping_of(asking.proceed(began)).number
    (helper, _), *_ = messages(asking.proceed(asking.due()))
    asking.refused(helper, number)  # so that the failure is no sign that this process is the sick one
    ping = ping_of(asking.proceed(began + LAN.probe_interval))
    asking.acked(number, began + 1.1)
    asking.acked(ping.number, began + 1.2)
    began = asking.due()
    asking.proceed(began)
    asking.proceed(asking.due())
    assert asking.due() == began + 3 * LAN.probe_timeout


def test_an_early_or_repeated_call_does_nothing() -> None:
    asking = prober("b", "c")
    assert asking.proceed(asking.due() - 0.001) == []
    now = asking.due()
    asking.proceed(now)
    assert asking.proceed(now) == []
    assert asking.proceed(now + 0.1) == []


def test_an_answer_through_a_helper_counts_and_a_foreign_number_does_not() -> None:
    asking = prober("b", "c")
    began = asking.due()
    number = ping_of(asking.proceed(began)).number
    asking.proceed(asking.due())
    assert asking.acked(number + 1, began + 0.6) == []
    assert asking.due() == began + LAN.probe_interval
    asking.acked(number, began + 0.7)
    effects = asking.proceed(asking.due())
    assert not any(isinstance(e, MemberSuspected) for e in effects)
    assert ping_of(effects).number == number + 1


def test_a_late_answer_does_not_put_the_next_probe_into_the_past() -> None:
    asking = prober("b")
    asking.measured("b", 4.0)
    began = asking.due()
    asking.proceed(began)
    asking.heard("b", began + 3.0)
    assert asking.due() == began + 3.0


def test_postponed_probe_waits_longer() -> None:
    asking = prober("b")
    began = asking.due()
    asking.postpone(9.0)
    asking.proceed(began)
    asking.postpone(9.0)
    assert asking.due() == began + LAN.probe_timeout + 9.0


def test_from_answers_of_a_time_in_which_it_could_not_hear_a_prober_learns_nothing() -> None:
    asking = prober("b")
    number = ping_of(asking.proceed(asking.due())).number
    asking.postpone(9.0)
    asking.acked(number, asking.due() + 9.0)
    began = asking.due()
    asking.proceed(began)
    asking.proceed(asking.due())
    assert asking.due() == began + LAN.probe_interval


def test_alone_there_is_nobody_to_ask() -> None:
    asking = prober()
    assert asking.proceed(asking.due()) == []
    assert asking.due() > LAN.probe_interval


def test_helping_and_answering() -> None:
    asking = prober("b", "c")
    assert messages(asking.acknowledge("z", 3)) == [("z", Ack), ("z", Delta)]
    assert messages(asking.help("b", 7, "nobody", 0.0)) == [("b", Nack)]
    assert messages(asking.help("b", 7, "a", 0.0)) == [("b", Ack)]
    number = ping_of(asking.help("b", 7, "c", 0.0)).number
    answers = asking.acked(number, 0.1)
    assert [(e.to, e.message.number) for e in answers] == [("b", 7)]  # type: ignore[union-attr]
    assert asking.acked(number, 0.2) == [], "once"


def test_alarm_asks_everybody_who_can_help() -> None:
    assert sorted(messages(prober("b", "c", "d").alarm("b")), key=lambda m: m[0]) == [
        ("b", Ping),
        ("c", PingRequest),
        ("d", PingRequest),
    ]


def test_stopped_prober_forgets_its_requests() -> None:
    asking = prober("b", "c")
    number = ping_of(asking.help("b", 7, "c", 0.0)).number
    asking.stop()
    assert asking.acked(number, 0.1) == []
