"""What machines make of it when nothing happens to them any more: whatever is said arrives, soon, and timers are kept.

All clocks go alike, whatever they show; a message takes as long as any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from ictp2p.machine import Effects, Message, Notice, Send

DELAY = 0.01
"""Seconds that a message takes."""


class Calm:
    """Machines that are left alone.

    Args:
        machines: by name, with what each one's clock shows.
        heard: is told of all that arrives.
        noticed: is told of all that a machine notices.
    """

    def __init__(
        self,
        machines: Mapping[str, tuple[Any, float]],
        heard: Callable[[Message], None] = lambda message: None,
        noticed: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        self.now = 0.0
        self._machines = machines
        self._heard, self._noticed = heard, noticed
        self._under_way: list[tuple[float, int, str, Send]] = []
        self._sent = 0

    def do(self, name: str, act: Callable[[Any, float], Effects]) -> None:
        """Have one of them do something."""
        machine, clock = self._machines[name]
        for effect in act(machine, clock + self.now):
            if isinstance(effect, Send) and effect.to in self._machines:
                self._sent += 1
                heapq.heappush(self._under_way, (self.now + DELAY, self._sent, name, effect))
            elif isinstance(effect, Notice):
                self._noticed(effect)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while (due := self._next())[0] <= end:
            self.now, name = max(self.now, due[0]), due[1]
            if name:
                self.do(name, lambda machine, now: machine.handle_timeout(max(now, machine.next_timeout() or now)))
            else:
                _, _, sender, send = heapq.heappop(self._under_way)
                self._heard(send.message)
                self._arrive(sender, send)
        self.now = end

    def _arrive(self, sender: str, send: Send) -> None:
        self.do(send.to, lambda machine, now: machine.receive(sender, send.message, now))

    def _next(self) -> tuple[float, str]:
        """When something happens next, and whose timer it is; nobody's, if something arrives."""
        timers = [
            (due - clock, name)
            for name, (machine, clock) in self._machines.items()
            if (due := machine.next_timeout()) is not None
        ]
        arrivals = [(at, "") for at, *_ in self._under_way[:1]]
        return min([*timers, *arrivals], default=(float("inf"), ""))
