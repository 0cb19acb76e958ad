"""Trying several ways to one place, none of which holds up the next.

The way that one would like best may be one that never answers: whoever dials a peer behind an address translator
hears nothing, not even a refusal. To wait for that before the next way is tried costs a whole deadline each time, more
than a round waits for its connections. So each way gets a head start on the next one, as addresses do in "Happy
Eyeballs" (RFC 8305, section 5), and whichever arrives first is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ictp2p.concurrency import tasks
from ictp2p.errors import NetworkError, ProtocolError, Unreachable

T = TypeVar("T")


async def first_way(
    ways: Iterable[Callable[[], Coroutine[Any, Any, T]]], head_start: float, spare: Callable[[T], None]
) -> T:
    """Give what the first way that succeeds gives; the others are cancelled.

    Args:
        ways: best first; each has a deadline of its own.
        head_start: seconds that a way has before the next one begins beside it; at once, if all before have failed.
        spare: told what a way gave that succeeded in the moment in which another one was taken.

    Raises:
        Unreachable: none succeeds; names the reasons, in the order in which they came.
    """
    trying: list[asyncio.Task[T]] = []
    reasons: list[str] = []
    won: asyncio.Task[T] | None = None
    try:
        for way in ways:
            trying.append(asyncio.get_running_loop().create_task(way()))
            if won := await _succeeded(trying, reasons, head_start):
                break
        else:
            won = await _succeeded(trying, reasons, None)
        others = [task for task in trying if task is not won]
        trying = [] if won is None else [won]
        await _end(others, spare)
    except BaseException:  # nobody is there any more to take what is given, not even by the one that won
        await _end(trying, spare)
        raise
    if won is None:
        raise Unreachable("; ".join(reasons) or "there is no way")
    return won.result()


async def _end(trying: list[asyncio.Task[T]], spare: Callable[[T], None]) -> None:
    """Cancel, and wait for it; what some give all the same is spare, even if the wait is cancelled too."""

    def over(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            spare(task.result())

    for task in trying:
        task.add_done_callback(over)
        task.cancel()
    await tasks.ended(trying)


async def _succeeded(
    trying: list[asyncio.Task[T]], reasons: list[str], seconds: float | None
) -> asyncio.Task[T] | None:
    """Wait for a success; None once all have failed or the time is over. The failed ones leave the list."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    while trying:
        await asyncio.wait(
            trying, timeout=None if end is None else max(0.0, end - loop.time()), return_when=asyncio.FIRST_COMPLETED
        )
        for task in [task for task in trying if task.done()]:
            error = task.exception()
            if error is None:
                return task
            trying.remove(task)
            if not isinstance(error, NetworkError | ProtocolError):
                raise error
            reasons.append(str(error) or type(error).__name__)
        if end is not None and loop.time() >= end:
            return None
    return None
