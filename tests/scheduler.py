"""Virtual time for several pure machines at once: an adversary's events and the machines' own timers, in order."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Scheduled(ABC):
    """A world of machines by name; a subclass has a method for each kind of event, and one that executes effects."""

    machines: dict[str, Any] = field(default_factory=dict)
    queue: list[tuple[float, int, tuple[Any, ...]]] = field(default_factory=list)
    now: float = 0.0
    count: int = 0

    def put(self, at: float, *event: Any) -> None:
        """Have a method called with these arguments at that time; those of one time in the order in which they came."""
        self.count += 1
        heapq.heappush(self.queue, (at, self.count, event))

    @abstractmethod
    def execute(self, name: str, effects: list[Any]) -> None:
        """Carry out what a machine asked for."""

    def run(self, until: float) -> None:
        """Let all happen that is due before a point in time, and stand there."""
        while True:
            timers = [(m.next_timeout(), name) for name, m in self.machines.items() if m.next_timeout() is not None]
            due, name = min(timers, default=(until, ""))
            event = self.queue[0][0] if self.queue else until
            if min(due, event) >= until:
                self.now = until
                return
            self.now = max(self.now, min(due, event))
            if event <= due:
                kind, *arguments = heapq.heappop(self.queue)[2]
                getattr(self, kind)(*arguments)
            else:
                machine = self.machines[name]
                self.execute(name, machine.handle_timeout(self.now))
                assert (machine.next_timeout() or self.now + 1) > self.now, "the timer spins"
