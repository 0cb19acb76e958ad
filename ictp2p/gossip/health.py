"""How far this process trusts its own ears.

A trainer that holds the interpreter for seconds misses answers that did arrive, and would bury healthy members.
Lifeguard's local health multiplier (Dadgar, Phillips, Currey: arXiv 1707.00788, section 3.1) counts the signs of being
the sick one: a probe that failed although the helpers, who should at least have said "silent to me too", said nothing
either; a suspicion of oneself that had to be refuted; here also a late event loop. Every successful probe takes one
off. The probe interval, and with it the time that an indirect probe may take, grows with the score.
"""

from __future__ import annotations


class LocalHealth:
    """A saturating counter: 0 is healthy, `limit - 1` as sick as it gets."""

    __slots__ = ("_limit", "score")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    def note(self, delta: int) -> None:
        """Add the signs of sickness seen (or -1 for a sign of health)."""
        self.score = min(self._limit - 1, max(0, self.score + delta))

    @property
    def factor(self) -> int:
        """What to multiply the probe interval by, at least 1."""
        return self.score + 1


def missed_probe(asked: int, refusals: int) -> int:
    """Return the sign of sickness in a failed probe: how many of the helpers asked did not even say no.

    With nobody to ask, the failure says as much about this process as about the target: one.
    """
    return asked - refusals if asked else 1
