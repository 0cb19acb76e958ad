"""Closing what has many parts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.concurrency.closing import Step, close_all

ENDINGS = st.sampled_from(["well", "raises", "raises later", "waits"])


class Parts:
    """Steps that end as they are told to; notes which have been taken."""

    def __init__(self, endings: list[str]) -> None:
        self.taken: list[int] = []
        self.errors = [ZeroDivisionError(n) for n in range(len(endings))]
        self.steps: list[Step] = [self._step(n, ending) for n, ending in enumerate(endings)]

    def _step(self, number: int, ending: str) -> Step:
        def at_once() -> None:
            self.taken.append(number)
            if ending == "raises":
                raise self.errors[number]

        async def later() -> None:
            self.taken.append(number)
            await asyncio.sleep(0)
            if ending == "raises later":
                raise self.errors[number]

        return later if ending in ("raises later", "waits") else at_once


@given(endings=st.lists(ENDINGS, max_size=6))
def test_every_step_is_taken_in_turn_and_the_first_error_is_raised_and_no_other_is_lost(endings: list[str]) -> None:
    parts, told = Parts(endings), list[dict[str, Any]]()

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        await close_all(*parts.steps)

    failed = [error for error, ending in zip(parts.errors, endings, strict=True) if ending.startswith("raises")]
    if failed:
        with pytest.raises(ZeroDivisionError) as caught:
            asyncio.run(story())
        assert caught.value is failed[0]
    else:
        asyncio.run(story())
    assert parts.taken == list(range(len(endings)))
    assert [each["exception"] for each in told] == failed[1:]


@given(endings=st.lists(ENDINGS, min_size=1, max_size=6))
def test_a_cancellation_ends_one_step_and_is_not_hidden_by_what_others_raise(endings: list[str]) -> None:
    parts = Parts([*endings, "waits", "raises"])

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        closing = asyncio.create_task(close_all(*parts.steps))
        while len(endings) not in parts.taken:
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(story())
    assert parts.taken == list(range(len(endings) + 2))
