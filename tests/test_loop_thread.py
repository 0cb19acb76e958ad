"""Another thread's coroutines run on the loop, and its end ends them."""

import asyncio
import threading

import pytest

from ictp2p.errors import PeerClosed
from ictp2p.loop_thread import LoopThread


def test_results_and_errors_come_back_to_the_caller() -> None:
    loop = LoopThread("test")

    async def work(value: int) -> str:
        if value < 0:
            raise ValueError("negative")
        return threading.current_thread().name

    assert loop.run(work(1)) == "test"
    with pytest.raises(ValueError, match="negative"):
        loop.run(work(-1))
    assert loop.call(lambda: 7) == 7
    loop.close()


def test_closing_cancels_what_still_runs_and_refuses_what_comes_later() -> None:
    loop = LoopThread("test")
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def nothing() -> None:
        return

    loop.submit(forever())
    loop.call(lambda: None)
    loop.close()
    loop.close()
    assert cancelled.is_set()
    loop.post(lambda: None)
    with pytest.raises(PeerClosed):
        loop.run(nothing())
