"""A loop in a thread: what other threads get when it is closed under them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ictp2p.errors import PeerClosed
from ictp2p.loop_thread import LoopThread


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

    future = loop.submit(forever())
    assert began.wait(10)
    loop.close()
    with pytest.raises(PeerClosed):
        loop.wait(future, 10)


def test_a_closed_loop_takes_nothing_more() -> None:
    loop = LoopThread("test")
    loop.close()
    loop.close()
    loop.post(lambda: None)
    with pytest.raises(PeerClosed):
        loop.call(lambda: None)
