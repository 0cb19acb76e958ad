import logging
import re
from pathlib import Path

import pytest

from ictp2p.concurrency import logs
from ictp2p.telemetry import Event, Telemetry

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def telemetry() -> Telemetry:
    ticks = iter(range(1000))
    return Telemetry(lambda: float(next(ticks)), ring=3)


def test_events_reach_subscribers_in_order_until_they_leave(telemetry: Telemetry):
    seen: list[str] = []
    leave = telemetry.subscribe(lambda event: seen.append(event.kind))
    telemetry.event("round_opened", round=1)
    telemetry.event("round_committed", round=1)
    leave()
    leave()
    telemetry.event("round_opened", round=2)
    assert seen == ["round_opened", "round_committed"]


def test_the_ring_keeps_the_latest_and_the_counters_all(telemetry: Telemetry):
    for number in range(5):
        telemetry.event("step", number=number)
    telemetry.event("join")
    assert [event.fields.get("number") for event in telemetry.events()] == [3, 4, None]
    assert [event.at for event in telemetry.events("step")] == [3.0, 4.0]
    assert telemetry.counters() == {"step": 5, "join": 1}


def test_counters_that_were_given_do_not_change(telemetry: Telemetry):
    telemetry.count("bytes_sent", 100)
    before = telemetry.counters()
    telemetry.count("bytes_sent", 50)
    assert before == {"bytes_sent": 100}
    before["bytes_sent"] = 0
    assert telemetry.counters() == {"bytes_sent": 150}


def test_a_subscriber_that_fails_is_dropped_and_hurts_nobody(telemetry: Telemetry, caplog: pytest.LogCaptureFixture):
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise RuntimeError("display gone")

    telemetry.subscribe(broken)
    telemetry.subscribe(lambda event: seen.append(event.kind))
    with caplog.at_level(logging.ERROR):
        telemetry.event("one")
        telemetry.event("two")
        logs.flush()
    assert seen == ["one", "two"]
    assert len(caplog.records) == 1


def test_a_subscriber_may_leave_or_report_while_it_is_told(telemetry: Telemetry):
    seen: list[str] = []

    def once(event: Event) -> None:
        leave()
        seen.append(event.kind)
        telemetry.event("echo")

    leave = telemetry.subscribe(once)
    telemetry.event("call")
    assert seen == ["call"]
    assert [event.kind for event in telemetry.events()] == ["call", "echo"]


def test_events_and_telemetry_print_as_one_line(telemetry: Telemetry):
    telemetry.event("round_committed", round=3, participants=2)
    assert str(telemetry.events()[0]) == "0.000 round_committed round=3 participants=2"
    assert repr(telemetry) == "<Telemetry events=1 counters=1>"


def test_every_event_that_a_peer_tells_is_on_the_page_of_events():
    sources = "".join(path.read_text() for path in (ROOT / "ictp2p").rglob("*.py"))
    told = set(re.findall(r'\bevent\(\s*"([a-z_]+)"', sources))
    events = (ROOT / "docs/reference.md").read_text().split("## Events")[1].split("## Figures")[0]
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", events, re.MULTILINE))
    assert told - listed == set()
    assert all(f'"{kind}"' in sources for kind in listed)
