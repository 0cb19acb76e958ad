"""Work that runs beside what began it, and ends with its owner at the latest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


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
        await asyncio.gather(*self._running, return_exceptions=True)
