"""What takes too long is bitten, and nothing else is; whether or not another thread can be had."""

from __future__ import annotations

import queue
import threading

import pytest

from ictp2p.handle.watchdog import Watchdog
from tests.threads import Threads


def test_what_takes_too_long_is_bitten_once_also_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bitten: queue.SimpleQueue[str] = queue.SimpleQueue()
    watchdog = Watchdog("watchdog", bitten.put)

    def cannot(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        with watchdog.limited(1000.0, "leave"), watchdog.limited(0.01, "answer"):
            assert bitten.get(timeout=20.0) == "answer within 0.01 s"
        with watchdog.limited(1000.0, "leave"):
            pass
    watchdog.close()
    assert bitten.empty()


def test_it_ends_in_the_middle_of_a_watch() -> None:
    threads = Threads()
    watchdog = Watchdog("watchdog", print)
    with watchdog.limited(1000.0, "leave"):
        watchdog.close()
    assert threads.more() == []
