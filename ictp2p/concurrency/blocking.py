"""Work that blocks, beside an event loop: in a thread, as long as there are any.

When a program ends, the interpreter takes no more work for the threads that it keeps for that, and only then calls what
was registered with `atexit`. A peer that is closed there has still to close what takes a moment. Nothing is waiting for
its loop by then, so that is done on the loop itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def blocking(work: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
    """Call `work` beside the running event loop; gives what will be its answer.

    It is begun here, and not when somebody first waits: who is cancelled before that has still begun it.
    """
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(None, work, *args)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return _on_the_loop(loop, work, *args)


def _on_the_loop(loop: asyncio.AbstractEventLoop, work: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
    answer: asyncio.Future[T] = loop.create_future()
    try:
        answer.set_result(work(*args))
    except Exception as error:
        answer.set_exception(error)
    return answer
