"""How far a worker is, and what its cluster has still to contribute.

Weights are counted per fragment of the model, because each fragment has its own last sync: a round carries what was
trained since then. Work counts as contributed once a commit holds it, and not before, so a round that comes to nothing
leaves it to be brought again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class Progress:
    """Equal on all workers of a cluster at every step boundary."""

    version: int = 0
    """Of the global state."""
    step: int = 0
    """Inner steps taken by this cluster's training."""
    since: int = 0
    """Inner steps since a round was launched last."""
    aloft: int = 0
    """Inner steps since the round that is under way was launched, plus one; 0 if there is none."""
    due: bool = False
    """Whether the next round is to be launched at this boundary."""
    brought: float = 0.0
    """Weight that the round under way brings."""
    weights: list[float] = field(default_factory=lambda: [0.0])
    """For each fragment, what the cluster trained since it was last in a committed round."""

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Greater is further. Between equal steps, whoever launched is further, and whoever landed further still."""
        return (self.version, self.step, -self.since, int(not self.aloft))

    def averaged(self, weight: float, *, due: bool) -> None:
        """The gradients of a step were averaged, with that much weight in them.

        Args:
            weight: of all workers.
            due: whether a round is to be launched after this step.
        """
        self.weights = [held + weight for held in self.weights]
        self.due = self.due or due

    def launched(self, fragment: int) -> None:
        """A round with that fragment is under way."""
        self.since, self.due, self.aloft, self.brought = 0, False, 1, self.weights[fragment]

    def missed(self) -> None:
        """What was brought was not taken, and others were: it is due again at once."""
        self.due = True

    def counted(self, fragment: int) -> None:
        """What was brought is in the agreed state."""
        self.weights[fragment] = max(0.0, self.weights[fragment] - self.brought)

    def pack(self) -> bytes:
        """Its bytes, equally many for equally many fragments."""
        whole = (self.version, self.step, self.since, self.aloft, self.due)
        return struct.pack(f"<5Q{len(self.weights) + 1}d", *whole, self.brought, *self.weights)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` wrote."""
        version, step, since, aloft, due, brought, *weights = struct.unpack(f"<5Q{len(data) // 8 - 5}d", data)
        return cls(version, step, since, aloft, bool(due), brought, weights)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint of a cluster's own part has to remember, beside the model."""
        return {"weights": list(self.weights)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.weights = list(state_dict["weights"])

    def become(self, other: Progress) -> None:
        """Be as far as another worker."""
        self.version, self.step, self.since = other.version, other.step, other.since
        self.aloft, self.due, self.brought, self.weights = other.aloft, other.due, other.brought, list(other.weights)
