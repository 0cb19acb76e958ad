"""A loop in a thread: what other threads get when it is closed under them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.errors import PeerClosed


def test_what_is_called_runs_on_the_loop_and_its_error_comes_back() -> None:
    loop = LoopThread("test")
    assert loop.call(lambda: threading.current_thread().name) == "test"
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)
    loop.close()


def test_who_waits_when_the_loop_is_closed_gets_a_typed_error() -> None:
    loop = LoopThread("test")
    began = threading.Event()

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    future = loop.submit(forever)
    assert began.wait(10)
    loop.close()
    with pytest.raises(PeerClosed):
        loop.wait(future, 10)


def test_who_waits_when_the_loop_is_ended_from_within_gets_a_typed_error_too() -> None:
    """Regression: `sys.exit` on it ended its thread without a word, and nobody was ever answered."""
    loop = LoopThread("test")
    began = threading.Event()

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    future = loop.submit(forever)
    assert began.wait(10)
    loop.post(sys.exit)
    with pytest.raises(PeerClosed):
        loop.wait(future, 10)
    with pytest.raises(PeerClosed):
        loop.call(lambda: None)
    loop.close()
    assert loop._loop.is_closed()


def test_a_closed_loop_takes_nothing_more() -> None:
    loop = LoopThread("test")
    assert loop.post(lambda: None)
    loop.close()
    loop.close()
    assert not loop.post(lambda: None)
    with pytest.raises(PeerClosed):
        loop.call(lambda: None)


@pytest.mark.parametrize("where", ["in the loop", "beside it"])
def test_a_close_does_not_wait_for_ever_for_what_cannot_be_cancelled(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a thread that looked up a host name held up whoever closed the peer for as long as it took."""
    monkeypatch.setattr("ictp2p.concurrency.loop_thread._CLOSING", 0.05)
    loop = LoopThread("test")
    began, end, ended = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        began.set()
        end.wait(20)
        ended.set()

    async def work() -> None:
        await asyncio.get_running_loop().run_in_executor(None, stuck)

    if where == "in the loop":
        loop.post(stuck)
    else:
        loop.submit(work)
    assert began.wait(10)
    loop.close()
    assert not ended.is_set()
    end.set()
    loop._thread.join(10)
    assert not loop._thread.is_alive(), "it ends by itself then"
    assert loop._loop.is_closed()


_LAST = """
import atexit, threading
atexit.register(lambda: print([t.name for t in threading.enumerate()]))  # called after what is registered later
from ictp2p.concurrency.loop_thread import LoopThread
loop = LoopThread("loop")
began = threading.Event()
"""


@pytest.mark.parametrize(
    ("ending", "status", "left"),
    [
        ("", 0, "['MainThread']"),
        ("raise SystemExit(3)", 3, "['MainThread']"),
        ("loop.close()", 0, "['MainThread']"),
        ("atexit.register(loop.close)", 0, "['MainThread']"),
        ("loop.post(lambda: (began.set(), threading.Event().wait())); began.wait()", 0, "['MainThread', 'loop']"),
    ],
)
def test_a_loop_ends_before_the_interpreter_does_unless_it_is_stuck(ending: str, status: int, left: str) -> None:
    script = subprocess.run([sys.executable, "-c", _LAST + ending], capture_output=True, text=True, timeout=60)
    assert (script.stdout.strip(), script.stderr, script.returncode) == (left, "", status)
