"""What happened in a world, and one hash over all of it.

The hash takes in every delivered message and every event, so two runs with one hash took the same course down to the
last byte count. Only events are kept as values, for people, pictures and assertions.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_DELIVERY = struct.Struct("!dI")
_AT_ONCE = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """One event."""

    at: float
    """True virtual time, seconds."""
    host: str
    """Where; "world" for what the simulator did."""
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.at:12.6f} {self.host:<10} {self.kind} {words}".rstrip()


class Trace:
    """The record of one run.

    Args:
        clock: true virtual time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()
        """Deliveries that the hash has not taken in yet: it takes many at once in a fraction of the time."""
        self._ways: dict[tuple[str, str], bytes] = {}
        """Every pair of hosts as it is hashed."""
        self.entries: list[Entry] = []
        self.deliveries = 0
        self.bytes = 0
        self.subscribers: list[Callable[[Entry], None]] = []
        """Told every event as it happens."""

    def event(self, host: str, kind: str, **fields: Any) -> None:
        """Note an event; fields must print the same in every run."""
        entry = Entry(self._clock(), host, kind, fields)
        self.entries.append(entry)
        self._unhashed += str(entry).encode()
        for subscriber in self.subscribers:
            subscriber(entry)

    def delivery(self, source: str, target: str, size: int) -> None:
        """Note a message that a process got."""
        self.deliveries += 1
        self.bytes += size
        way = self._ways.get((source, target))
        if way is None:
            way = self._ways[source, target] = f"{source}>{target}".encode()
        self._unhashed += _DELIVERY.pack(self._clock(), size)
        self._unhashed += way
        if len(self._unhashed) > _AT_ONCE:
            self._take_in()

    def digest(self) -> str:
        """The hash so far."""
        self._take_in()
        return self._hash.copy().hexdigest()

    def _take_in(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()

    def of(self, *kinds: str, host: str | None = None, since: float = 0.0) -> Iterator[Entry]:
        """The events of some kinds, oldest first."""
        for entry in self.entries:
            if entry.kind in kinds and entry.at >= since and host in (None, entry.host):
                yield entry

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))
