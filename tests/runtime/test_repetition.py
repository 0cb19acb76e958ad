"""Which warnings of rounds go to the log."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p import Config, Peer
from ictp2p.concurrency import logs
from ictp2p.runtime import repetition
from ictp2p.runtime.repetition import PERIOD, Repetition

TEXTS = st.sampled_from(["round {} goes on with a, b only", "probe of c1 failed: {} s", "probe of c2 failed: {} s"])


def test_what_is_said_each_round_is_logged_once_in_a_while_and_with_how_often() -> None:
    """Regression: a program that went on calling what does not fit cost each other worker a line for each round."""
    log = Repetition()
    lines = [log.to_log(f"round {number} goes on with a, b only: c differs", 2.0 * number) for number in range(1, 602)]
    assert [line for line in lines if line] == [
        "round 1 goes on with a, b only: c differs",
        "round 301 goes on with a, b only: c differs (299 more like this were not logged in the 600 s before it)",
        "round 601 goes on with a, b only: c differs (299 more like this were not logged in the 600 s before it)",
    ]


def test_what_differs_in_more_than_numbers_is_logged() -> None:
    log = Repetition()
    for text in ("round 1 without c1: float32[3]", "round 1 without c2: float32[3]", "round 2 without c1: int8[3]"):
        assert log.to_log(text, 0.0) == text
    assert log.to_log("round 2 without c1: float32[4]", 1.0) is None


@given(st.lists(st.tuples(TEXTS, st.floats(0.0, 400.0)), max_size=40))
def test_each_warning_is_in_the_log_or_counted_there(said: list[tuple[str, float]]) -> None:
    """But for those since the last line: and a first one is always there."""
    log, now = Repetition(), 0.0
    shown: dict[str, tuple[float, int]] = {}
    for number, (text, pause) in enumerate(said):
        now += pause
        line = log.to_log(text.format(number), now)
        at, hidden = shown.get(text, (-PERIOD, 0))
        assert (line is None) == (now < at + PERIOD)
        if line is None:
            shown[text] = at, hidden + 1
        else:
            counted = re.search(r"\((\d+) more", line)
            assert (int(counted[1]) if counted else 0) == hidden
            assert line.startswith(text.format(number))
            shown[text] = now, 0


def test_no_more_is_remembered_than_a_number_of_warnings() -> None:
    log = Repetition()
    for number in range(2 * repetition._REMEMBERED):
        log.to_log(f"cluster c{number} is odd", 0.0)
    assert len(log._logged) == repetition._REMEMBERED
    assert log.to_log("cluster c0 is odd", 1.0) is not None


def test_a_peer_logs_alarms_always_and_what_is_so_in_each_round_once(caplog: pytest.LogCaptureFixture) -> None:
    """A quorum that is lost, regained and lost is one that is lost; and a program hears of everything."""
    caplog.set_level(logging.WARNING)
    peer, events = Peer(Config.local(cluster="a", token="a token for tests only")), list[dict[str, Any]]()
    peer.on_event(events.append)
    for number in (1, 2):
        peer._tell("warning", {"text": "no quorum"})
        peer._tell("warning", {"text": f"round {number} goes on without b", "round": number})
    logs.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "a: no quorum",
        "a: round 1 goes on without b",
        "a: no quorum",
    ]
    assert [event["text"] for event in events if "round" in event] == [
        "round 1 goes on without b",
        "round 2 goes on without b",
    ]


def test_a_peer_logs_who_came_with_another_release_once_per_host(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: the mesh that refused a peer of another release said so in an event alone; scanners stay there."""
    caplog.set_level(logging.WARNING)
    peer, words = Peer(Config.local(cluster="a", token="a token for tests only")), "it speaks wire versions 7 to 7"
    for port in (1, 2):
        for host in ("192.0.2.1", "192.0.2.2"):
            for error in ("VersionMismatch", "HandshakeFailed"):
                peer._tell("refused", {"address": f"{host}:{port}", "error": error, "text": words})
    logs.flush()
    assert [record.getMessage() for record in caplog.records] == [
        f"a: 192.0.2.1 was not let in: {words}",
        f"a: 192.0.2.2 was not let in: {words}",
    ]
