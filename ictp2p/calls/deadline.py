"""The patience of one call, or of several that make one."""

from __future__ import annotations

import time
from collections.abc import Callable

from ictp2p.errors import NoQuorum, RoundTimeout


class Deadline:
    """The end of a call's patience, and how to say what it was waiting for."""

    def __init__(
        self, seconds: float, waiting: Callable[[], tuple[bool, str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin.

        Args:
            seconds: how long it may take.
            waiting: whether a quorum is in sight, and what is waited for.
            clock: monotonic seconds.
        """
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds
        self._waiting = waiting

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self._clock() >= self._end

    def sleep(self, seconds: float, wait: Callable[[float], object]) -> None:
        """Let so many seconds pass, but none beyond it, in waits that may end early."""
        end = min(self._clock() + seconds, self._end)
        while (left := end - self._clock()) > 0:
            wait(left)

    def check(self) -> None:
        """Raise once it has passed.

        Raises:
            NoQuorum: too few voters can be reached.
            RoundTimeout: anything else is missing; the message says what. Or this peer itself stands still.
        """
        if self.over:
            quorum, words = self._waiting()
            raise (RoundTimeout if quorum else NoQuorum)(f"nothing was decided within {self._seconds:g} s: {words}")
