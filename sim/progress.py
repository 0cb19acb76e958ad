"""What is shown while a run goes on: milestones as lines, and between them how far virtual time has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from sim.stage import Stage

TERMINAL, PIPE = 0.2, 10.0
"""Real seconds between two looks at virtual time, where a line can be overwritten and where it cannot."""
_CLEAR = "\r\x1b[2K"


class Progress:
    """Give its instance to a `Stage`.

    Args:
        stream: where to write.
        clock: real time, seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._overwrites = stream.isatty()
        self._began = self._shown = clock()

    def __call__(self, stage: Stage, text: str) -> None:
        """Show a milestone, or that time has passed."""
        if text:
            self._line(f"{stage.world.now:9.1f} s  {text}")
        elif self._clock() - self._shown >= (TERMINAL if self._overwrites else PIPE):
            self._shown = self._clock()
            self._status(stage)

    def end(self) -> None:
        """Leave the cursor at the beginning of an empty line."""
        if self._overwrites:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _line(self, text: str) -> None:
        self._stream.write(f"{_CLEAR if self._overwrites else ''}{text}\n")
        self._stream.flush()

    def _status(self, stage: Stage) -> None:
        world = stage.world
        real = max(self._clock() - self._began, 1e-9)
        running = len(world.running())
        text = (
            f"{world.now:9.1f} s  . version {world.version()}, {running}/{len(world.hosts)} workers run, "
            f"{world.trace.deliveries} messages, {world.now / real:.0f} times as fast as the clock"
        )
        if self._overwrites:
            self._stream.write(f"{_CLEAR}{text}")
            self._stream.flush()
        else:
            self._line(text)
