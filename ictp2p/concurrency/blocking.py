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


async def blocking(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call `work` beside the running event loop, and give what it gives."""
    try:
        answer = asyncio.get_running_loop().run_in_executor(None, work, *args)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return work(*args)
    return await answer
