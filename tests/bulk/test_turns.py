"""Turns of probes: one at a time, in the order in which they were asked for, and nobody waits for one who is gone."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import NO_TAG, Header, Kind
from ictp2p.bulk.turns import Turn, Turns
from ictp2p.errors import ConnectionLost
from tests.bulk.conftest import run_turns

SECONDS = 4.0


class Line:
    """A connection, as far as turns see it: notes what was granted."""

    def __init__(self, granted: list[tuple[int, bytes]], number: int) -> None:
        self._granted, self._number = granted, number

    def send(self, kind: Kind, tag: bytes = NO_TAG, first: int = 0, second: int = 0, body: bytes = b"") -> None:
        assert kind is Kind.GRANT
        self._granted.append((self._number, tag))


asks = st.tuples(st.just("ask"), st.integers(0, 3), st.integers(0, 3))
ends = st.tuples(st.just("end"), st.integers(0, 3), st.none() | st.integers(0, 3))
waits = st.tuples(st.just("wait"), st.integers(1, 6), st.none())


@given(st.lists(asks | ends | waits, max_size=30))
def test_one_has_the_turn_and_the_next_gets_it_when_it_ends(steps: list[tuple[str, int, int | None]]) -> None:
    async def story() -> None:
        granted: list[tuple[int, bytes]] = []
        lines = [cast("BulkConnection", Line(granted, number)) for number in range(4)]
        turns, loop = Turns(SECONDS), asyncio.get_running_loop()
        waiting: dict[int, bytes] = {}
        holder: tuple[int, bytes] | None = None
        since = 0.0

        def due(now: float) -> None:
            """What should be granted now."""
            nonlocal holder, since
            if holder is None and waiting:
                number = next(iter(waiting))
                holder, since = (number, waiting.pop(number)), now
                expected.append(holder)

        expected: list[tuple[int, bytes]] = []
        for what, number, tag in steps:
            label = None if tag is None else bytes([tag])
            if what == "ask":
                assert label is not None
                turns.ask(lines[number], label)
                waiting[number] = label
            elif what == "end":
                turns.end(lines[number], label)
                if label in (None, waiting.get(number)):
                    waiting.pop(number, None)
                if holder is not None and holder[0] == number and label in (None, holder[1]):
                    holder = None
            else:
                await asyncio.sleep(number + 0.0371)  # so that no turn ends just then
                while holder is not None and since + SECONDS <= loop.time():
                    holder = None
                    due(since + SECONDS)
            due(loop.time())
            assert granted == expected

    run_turns(story())


def test_a_turn_is_granted_stopped_or_lost_once() -> None:
    async def story() -> None:
        granted, stopped, lost = Turn(), Turn(), Turn()
        granted.take(Header(Kind.MEASURED), memoryview(b""))
        assert not granted.granted.done()
        for _ in range(2):
            granted.take(Header(Kind.GRANT), memoryview(b""))
            stopped.stop()
            lost.lost(ConnectionLost("gone"))
        granted.stop()
        assert await granted.granted
        assert not await stopped.granted
        with pytest.raises(ConnectionLost, match="gone"):
            await lost.granted

    run_turns(story())
