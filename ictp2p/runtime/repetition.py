"""Which warnings of single rounds are logged: of those that are alike, but for numbers, one each ten minutes.

Where a program of one cluster calls what does not fit to the others', and tries again, each round is worth a warning. A
program that watches events hears of all of them. In a log a month of them is a million lines, which fill a disk and in
which nobody finds what else was said.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

_NUMBER = re.compile(r"\b\d[\d.]*\b")
PERIOD = 600.0
"""Seconds from one that is logged to the next that is like it."""
_REMEMBERED = 256
"""Different warnings at most of which it is known when they were logged."""


@dataclass(slots=True)
class _Logged:
    at: float
    since: int = 0
    """How many there were since that were not."""


class Repetition:
    """What one peer has logged of late."""

    def __init__(self) -> None:
        self._logged: OrderedDict[str, _Logged] = OrderedDict()

    def to_log(self, text: str, now: float, about: str = "") -> str | None:
        """What to log of a warning that came `now` (seconds); None: nothing, since one like it was logged of late.

        Those that are `about` different things are not alike, whatever they say.
        """
        what = f"{about} {_NUMBER.sub('#', text)}"
        before = self._logged.get(what)
        if before is not None and now < before.at + PERIOD:
            before.since += 1
            return None
        self._logged[what] = _Logged(now)
        self._logged.move_to_end(what)
        if len(self._logged) > _REMEMBERED:
            self._logged.popitem(last=False)
        if before is None or not before.since:
            return text
        return f"{text} ({before.since} more like this were not logged in the {now - before.at:.0f} s before it)"
