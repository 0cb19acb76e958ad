"""The search itself finds what it is there to find, and says where."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.cuts.meshes import cancels
from tests.cuts.search import Cut, Story, search, spread

STEPS = 6


class Careless(Story):
    """Does a few things one after the other, and one of them without care."""

    mistake = ""

    def __init__(self) -> None:
        super().__init__()
        self.leaked: list[asyncio.Task[Any]] = []
        self.unclean = False

    async def prepare(self) -> None:
        """There is nothing before."""

    def parts(self) -> Sequence[Any]:
        return [self.part()]

    async def part(self) -> None:
        for step in range(STEPS):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if step == 3:
                    self.err()
                if step != 3 or self.mistake != "swallows":
                    raise

    def err(self) -> None:
        loop = asyncio.get_running_loop()
        if self.mistake == "leaks":
            self.leaked.append(asyncio.ensure_future(asyncio.sleep(60)))
        elif self.mistake == "unheard":
            loop.create_future().set_exception(ZeroDivisionError())
        elif self.mistake == "raises":
            raise ZeroDivisionError
        elif self.mistake == "unclean":
            self.unclean = True
        elif self.mistake == "breaks":
            self.again = lambda: 1 / 0  # type: ignore[method-assign, assignment]

    async def ended(self) -> None:
        """Nothing else was begun."""

    def left(self) -> Iterator[str]:
        if self.unclean:
            yield "it is unclean"

    async def again(self) -> None:
        """Nothing is to be done."""

    async def close(self) -> None:
        """There is nothing to close."""


FOUND = {
    "leaks": "a task is left",
    "unheard": "Future exception was never retrieved",
    "raises": "came to ZeroDivisionError",
    "swallows": "was cancelled, and nobody noticed",
    "unclean": "it is unclean",
    "breaks": "the next one: ZeroDivisionError",
}


@pytest.mark.parametrize("mistake", FOUND)
def test_a_mistake_is_found_where_it_is_made(mistake: str) -> None:
    found = search(type("Made", (Careless,), {"mistake": mistake}), Cut("cancelled", cancels(0)))
    assert any(FOUND[mistake] in each for each in found), found
    assert {re.match(r"at \d+", each).group() for each in found} == {"at 4"}  # type: ignore[union-attr]


def test_nothing_is_found_where_no_mistake_is_made() -> None:
    assert search(Careless, Cut("cancelled again", cancels(0), cancels(0))) == []


@pytest.mark.parametrize("count", [1, 8, 100, 1601])
def test_places_are_evenly_spread_and_each_gap_has_its_turn(count: int) -> None:
    for begin in range(20):
        chosen = list(spread(count, begin, 8))
        assert 0 < len(chosen) <= 8
        assert len({each % 8 for each in chosen}) == len(chosen)
    assert list(spread(count, 3, count)) == list(range(count))
