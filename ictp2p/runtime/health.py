"""Is this process itself well? How late its event loop runs, and whom it suspected wrongly.

A peer shares its process with a training loop that may hold the interpreter lock, and a process that is late sees
everybody else as late. Lifeguard's local health score corrects for that while it happens; these figures show it
afterwards, to whoever reads `Peer.stats()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_PERIOD = 0.5  # seconds between two looks at the clock
_SAMPLES = 4096


class Health:
    """Latency of the event loop, and false suspicions."""

    def __init__(self) -> None:
        self.lags: deque[float] = deque(maxlen=_SAMPLES)
        """Seconds by which the loop was late, newest last."""
        self.false_suspicions = 0
        """Members that were suspected and then cleared under the same leadership: they had been there all along."""
        self._suspected: dict[tuple[str, str], str | None] = {}
        self._clock: Callable[[], float]
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, clock: Callable[[], float]) -> None:
        """Measure, on the running event loop, until `rest`."""
        self._clock, self._loop = clock, asyncio.get_running_loop()
        self._wait()

    def rest(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        """Look at the clock again in a while: a timer, for a task that sleeps costs several times as much."""
        self._timer = self._loop.call_later(_PERIOD, self._look, self._clock())

    def _look(self, began: float) -> None:
        self.lags.append(max(0.0, self._clock() - began - _PERIOD))
        self._wait()

    def judged(self, scope: str, member: str, status: str, speaker: str | None) -> None:
        """A membership machine changed its mind about a member; `speaker` is who speaks for it now."""
        before = self._suspected.pop((scope, member), None)
        if status == "suspect":
            self._suspected[scope, member] = speaker
        elif status == "alive" and before is not None and before == speaker:
            self.false_suspicions += 1


def quantile(samples: deque[float], share: float) -> float:
    """The sample that `share` of them do not exceed; 0 without samples."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
