"""Closing what has many parts: every one is closed, whatever another one raises.

A step that raises, or that is cancelled, must not leave the port open that a later step would have closed, nor the
folder locked. `contextlib.AsyncExitStack` does that too, but raises the last error, which may hide a cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Step = Callable[[], Awaitable[None] | None]


async def close_all(*steps: Step) -> None:
    """Take every step, one after the other.

    Raises:
        BaseException: the first error that ended a step, once all have been taken, or a cancellation, if there was one.
            What else was raised goes to the event loop's handler.
    """
    raised: list[BaseException] = []
    for step in steps:
        try:
            if (rest := step()) is not None:
                await rest
        except BaseException as error:
            raised.append(error)
    if not raised:
        return
    first = next((each for each in raised if not isinstance(each, Exception)), raised[0])
    for other in raised:
        if other is not first and isinstance(other, Exception):
            told = {"message": "closing failed once more", "exception": other}
            asyncio.get_running_loop().call_exception_handler(told)
    raise first
