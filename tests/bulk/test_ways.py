"""Several ways to one place: what is taken, what becomes of the others, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.ways import first_way
from ictp2p.errors import ConnectionLost, HandshakeFailed, Unreachable
from tests.bulk.conftest import run_turns

Way = Callable[[], Coroutine[Any, Any, int]]


class Ways:
    """Ways that succeed, fail or never end, and what became of each."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.spared: list[int] = []

    async def go(self, number: int) -> int:
        self.begun.append(number)
        match self.kinds[number]:
            case "silent":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.append(number)
                    raise
            case "refused":
                raise Unreachable(f"way {number} is blocked")
        return number

    async def first(self, head_start: float) -> int:
        ways = [lambda n=n: self.go(n) for n in range(len(self.kinds))]
        async with asyncio.timeout(5):
            return await first_way(ways, head_start, self.spared.append)


@given(st.lists(st.sampled_from(["silent", "refused", "works"]), max_size=6))
def test_a_silent_way_holds_up_no_other_and_nothing_is_left_behind(kinds: list[str]) -> None:
    async def trial() -> None:
        ways = Ways(kinds)
        if "works" in kinds:
            assert await ways.first(0.0) in [n for n, kind in enumerate(kinds) if kind == "works"]
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert set(ways.cancelled) == {n for n in ways.begun if kinds[n] == "silent"}
        elif "silent" not in kinds:
            told = "; ".join(f"way {n} is blocked" for n in range(len(kinds))) or "there is no way"
            with pytest.raises(Unreachable, match=told):
                await ways.first(60.0)

    run_turns(trial())


async def test_a_way_that_never_answers_holds_up_no_other() -> None:
    ways = Ways(["silent", "silent", "works"])
    assert await ways.first(0.0) == 2
    assert ways.cancelled == [0, 1]


async def test_the_next_way_begins_at_once_if_all_before_have_failed_and_no_other_after_a_success() -> None:
    ways = Ways(["refused", "refused", "works", "works"])
    assert await ways.first(60.0) == 2
    assert ways.begun == [0, 1, 2]


async def test_what_succeeds_in_the_same_moment_is_told() -> None:
    gate = asyncio.Event()
    spared: list[str] = []

    async def opened(name: str) -> str:
        if name == "two":
            asyncio.get_running_loop().call_soon(gate.set)
        await gate.wait()
        return name

    taken = await first_way([lambda: opened("one"), lambda: opened("two")], 0.0, spared.append)
    assert sorted([taken, *spared]) == ["one", "two"]


async def test_who_is_cancelled_leaves_no_way_running() -> None:
    ways = Ways(["silent", "silent"])
    waiting = asyncio.ensure_future(ways.first(0.0))
    for _ in range(100):
        await asyncio.sleep(0)
    assert ways.begun == [0, 1]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ways.cancelled == [0, 1]


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ConnectionLost("reset"), Unreachable), (HandshakeFailed("forged"), Unreachable), (ZeroDivisionError(), None)],
)
async def test_only_errors_of_the_network_mean_another_way(error: Exception, raised: type[Exception] | None) -> None:
    async def broken() -> int:
        raise error

    with pytest.raises(raised or type(error)):
        await first_way([broken], 0.0, print)


async def test_who_is_cancelled_while_the_others_end_gives_back_what_was_won() -> None:
    ending = asyncio.Event()
    spared: list[int] = []

    async def slow() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.sleep(0)
        return 1

    async def works() -> int:
        return 2

    caller = asyncio.ensure_future(first_way([slow, works], 0.0, spared.append))
    await ending.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert spared == [2]
    assert asyncio.all_tasks() == {asyncio.current_task()}
