"""Whom to probe next, and how one probe stands.

Targets come from a shuffled list that is walked to its end before it is shuffled again, not from independent draws:
each prober's first probe of a crashed member then comes within 2n - 1 of its turns with the list, always, instead of
only on average (Das, Gupta, Motivala: SWIM, DSN 2002, section 4.3). Newcomers enter at a random place.

A probe has two chances. Directly, for `patience` seconds; then through helpers, until the interval ends, or for as
long as answers have taken of late. Helpers that get no answer say so (Lifeguard's nack), early enough to be counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

_NACK_SHARE = 0.8
"""A helper says "silent to me too" after this share of its patience, so that the word arrives within the prober's."""


class Rota:
    """The order of probing."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left: list[str] = []

    def next(self, eligible: Callable[[], list[str]], is_eligible: Callable[[str], bool]) -> str | None:
        """Return the next target, or None if there is nobody to probe."""
        while self._left:
            target = self._left.pop()
            if is_eligible(target):
                return target
        self._left = eligible()
        self._rng.shuffle(self._left)
        return self._left.pop() if self._left else None

    def insert(self, member: str) -> None:
        """Let a newcomer be probed in the current round, at a random place."""
        if member not in self._left:
            self._left.insert(self._rng.randint(0, len(self._left)), member)

    def clear(self) -> None:
        """Start over."""
        self._left = []


@dataclass(slots=True)
class Probe:
    """The one outstanding probe of this member."""

    target: str
    incarnation: int
    """What the target was known by when it was asked: the only incarnation that its silence accuses."""
    number: int
    indirect_at: float
    """When helpers are asked, seconds."""
    verdict_at: float
    """When it has failed."""
    helpers: tuple[str, ...] = ()
    refused: set[str] = field(default_factory=set)
    """Helpers that said "silent to me too"."""
    asked: bool = False
    answered: bool = False

    def due(self) -> float:
        """Return when it next needs attention, if it is not answered."""
        return self.verdict_at if self.asked else self.indirect_at

    def postpone(self, seconds: float) -> None:
        """Allow for time in which an answer could not have been heard."""
        self.indirect_at += seconds
        self.verdict_at += seconds


@dataclass(slots=True)
class Relay:
    """One probe made for another member."""

    requester: str
    number: int
    """The requester's number of it."""
    patience: float
    due: float
    refused: bool = False


class Relays:
    """The probes made for others, keyed by our own number of each. Bounded: a flood of requests is not served."""

    LIMIT = 256

    def __init__(self) -> None:
        self._running: dict[int, Relay] = {}

    def __len__(self) -> int:
        return len(self._running)

    def open(self, own_number: int, requester: str, number: int, patience: float, now: float) -> bool:
        """Note a request; False if too many are running."""
        if len(self._running) >= self.LIMIT:
            return False
        self._running[own_number] = Relay(requester, number, patience, now + _NACK_SHARE * patience)
        return True

    def answered(self, own_number: int) -> Relay | None:
        """Return the request that this answer settles, if any."""
        return self._running.pop(own_number, None)

    def silent(self, now: float) -> list[Relay]:
        """Return the requests to be told of silence now. An answer may still come, for as long again."""
        told = []
        for own_number, relay in list(self._running.items()):
            if relay.due > now:
                continue
            if relay.refused:
                del self._running[own_number]
                continue
            relay.refused = True
            relay.due = now + relay.patience
            told.append(relay)
        return told

    def due(self) -> float:
        """Return when `silent` next has something to do; never, as infinity, without requests."""
        return min((relay.due for relay in self._running.values()), default=math.inf)

    def clear(self) -> None:
        """Drop all."""
        self._running.clear()
