"""How long the answers to our probes take: a smoothed mean and deviation, as TCP has of round trips (RFC 6298).

Links measure neighbours only. In a sparse mesh most probes pass several connections, and on each may wait for what TCP
has to send again. Any one member is probed too seldom to be measured alone, so this is over all of them. An answer that
comes after the verdict counts like any other: from the quick ones alone one would never learn that many are slow.

While a mesh comes up an answer may take ten seconds, which should not be remembered for a minute. So, unlike TCP's, the
mean begins at nothing and not at the first sample, it moves by a quarter of each error and not by an eighth, and no
sample counts for more than `most`.
"""

from __future__ import annotations

_LATE = 4
"""Probes back to which an answer still tells how long answers take."""
_GAIN = 0.25
"""Share of each error by which mean and deviation move."""


class Answers:
    """The probes of late, and how long their answers took.

    Args:
        most: seconds beyond which it makes no difference how long an answer took.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._asked: dict[int, float] = {}
        self._mean = self._deviation = 0.0

    @property
    def wanted(self) -> float:
        """Seconds within which nearly all come; 0 before the first."""
        return self._mean + 4 * self._deviation

    def asked(self, number: int, now: float) -> None:
        """Note the beginning of a probe; numbers ascend."""
        self._asked[number] = now
        if len(self._asked) > _LATE:
            del self._asked[min(self._asked)]

    def came(self, number: int, now: float) -> None:
        """Note an answer: the first to each probe counts, whoever brought it."""
        at = self._asked.pop(number, None)
        if at is not None:
            self._measure(now - at)

    def excuse(self) -> None:
        """Learn nothing from the probes under way: this process was late itself."""
        self._asked.clear()

    def _measure(self, sample: float) -> None:
        error = min(sample, self._most) - self._mean
        self._deviation += _GAIN * (abs(error) - self._deviation)
        self._mean += _GAIN * error
