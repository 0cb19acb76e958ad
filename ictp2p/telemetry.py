"""What a peer can tell about itself: counters, and the last few hundred things that happened.

One object per peer, given to whoever has something to tell; no global registry, no thread, no file. Events are
plain values in the order in which they happened, so a test, the demo's display and a log file read the same thing.
The ring is bounded: a peer that runs for months must not remember all of it.

A subscriber runs inside the call that reports the event. It must be quick, and if it raises, the peer goes on
without it: whoever watches must not be able to bring down whoever trains.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ictp2p.concurrency import logs

_log = logging.getLogger(__name__)

RING = 512
"""Events kept for whoever asks later."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    at: float
    """Seconds, by the peer's clock."""
    kind: str
    """What, as a noun or a past tense: "round_committed"."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The particulars."""

    def __str__(self) -> str:
        particulars = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.at:.3f} {self.kind} {particulars}".rstrip()


class Telemetry:
    """Collects what happens. All methods are called from the event loop's thread."""

    def __init__(self, clock: Callable[[], float], ring: int = RING) -> None:
        self._clock = clock
        self._counters: dict[str, float] = {}
        self._events: deque[Event] = deque(maxlen=ring)
        self._subscribers: list[Callable[[Event], None]] = []

    def event(self, kind: str, /, **fields: Any) -> None:
        """Report that something happened, and count it under its kind."""
        happened = Event(self._clock(), kind, MappingProxyType(fields))
        self._events.append(happened)
        self.count(kind)
        for subscriber in list(self._subscribers):
            self._tell(subscriber, happened)

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a counter, which only grows: bytes sent, rounds committed."""
        self._counters[name] = self._counters.get(name, 0) + amount

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Have every later event given to `subscriber`, until the returned function is called."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def events(self, kind: str | None = None) -> tuple[Event, ...]:
        """The latest events, oldest first, all or those of one kind."""
        return tuple(event for event in self._events if kind is None or event.kind == kind)

    def counters(self) -> dict[str, float]:
        """All counters now; later changes do not show in it."""
        return dict(self._counters)

    def __repr__(self) -> str:
        return f"<Telemetry events={len(self._events)} counters={len(self._counters)}>"

    def _tell(self, subscriber: Callable[[Event], None], event: Event) -> None:
        try:
            subscriber(event)
        except Exception:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
            logs.exception(_log, "a subscriber failed on %s and is dropped", event)
