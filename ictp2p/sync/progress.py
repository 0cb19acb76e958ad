"""How far a worker is, and what its cluster has still to contribute.

Weights are counted per fragment of the model, because each fragment has its own last sync: a round carries what was
trained since then. Work counts as contributed once a commit holds it, and not before, so a round that comes to nothing
leaves it to be brought again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Self

OVERDUE = 2**32
"""Inner steps after which every policy has a round due."""


@dataclass(slots=True)
class Progress:
    """Equal on all workers of a cluster at every step boundary."""

    version: int = 0
    """Of the global state."""
    step: int = 0
    """Inner steps taken by this cluster's training."""
    since: int = 0
    """Inner steps since a round was launched last; `OVERDUE` or more if that was missed."""
    aloft: int = 0
    """Inner steps since the round that is under way was launched, plus one; 0 if there is none."""
    brought: float = 0.0
    """Weight that the round under way brings."""
    weights: list[float] = field(default_factory=lambda: [0.0])
    """For each fragment, what the cluster trained since it was last in a committed round."""

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Greater is further. Between equal steps, whoever launched is further, and whoever landed further still."""
        return (self.version, self.step, -self.since, int(not self.aloft))

    def stepped(self, weight: float) -> None:
        """A step was averaged, with that much weight in it."""
        self.weights = [held + weight for held in self.weights]

    def launched(self, fragment: int) -> None:
        """A round with that fragment is under way."""
        self.since, self.aloft, self.brought = 0, 1, self.weights[fragment]

    def missed(self) -> None:
        """What was brought was not taken, and others were: it is due again at once."""
        self.since = OVERDUE

    def counted(self, fragment: int) -> None:
        """What was brought is in the agreed state."""
        self.weights[fragment] = max(0.0, self.weights[fragment] - self.brought)

    def pack(self) -> bytes:
        """Its bytes, equally many for equally many fragments."""
        whole = (self.version, self.step, self.since, self.aloft)
        return struct.pack(f"<4Q{len(self.weights) + 1}d", *whole, self.brought, *self.weights)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` wrote."""
        version, step, since, aloft, brought, *weights = struct.unpack(f"<4Q{len(data) // 8 - 4}d", data)
        return cls(version, step, since, aloft, brought, weights)

    def become(self, other: Progress) -> None:
        """Be as far as another worker."""
        self.version, self.step, self.since = other.version, other.step, other.since
        self.aloft, self.brought, self.weights = other.aloft, other.brought, list(other.weights)
