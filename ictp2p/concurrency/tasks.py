"""Work that runs beside what began it, and ends with its owner at the latest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until these have ended, however, and what is to be called at their ends has been.

    Since Python 3.12 `gather` does not wait where all have ended already, not even for that.
    """
    running = tuple(tasks)
    if running and all(task.done() for task in running):
        await asyncio.sleep(0)
    else:
        await asyncio.gather(*running, return_exceptions=True)


class Tasks:
    """The tasks of one owner, in the order in which they began: they are ended in that order too."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something on the running event loop, and keep hold of it: a loop itself does not."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def end(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        for task in list(self._running):
            task.cancel()
        await ended(self._running)
