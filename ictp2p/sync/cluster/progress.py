"""How far a worker is, and what its cluster has still to contribute.

Weights are counted per fragment of the model, because each fragment has its own last sync: a round carries what was
trained since then. Work counts as contributed once a commit holds it, and not before, so a round that comes to nothing
leaves it to be brought again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
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
    behind: list[int] = field(default_factory=lambda: [0])
    """For each fragment, how many of its rounds were decided without what the cluster had trained for them."""
    scheduled: int = 0
    """Least that a schedule of the whole mesh is at; see `Policy.schedule_step`."""

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

    def missed(self, fragments: Iterable[int]) -> None:
        """What was brought was not taken, and others were: it is due again at once.

        Args:
            fragments: that the rounds were about that were decided meanwhile.
        """
        self.due = True
        for fragment in fragments:
            self.behind[fragment] += 1

    def counted(self, fragment: int) -> None:
        """What was brought is in the agreed state."""
        self.weights[fragment] = max(0.0, self.weights[fragment] - self.brought)
        self.behind[fragment] = 0

    def gone(self, fragments: Iterable[int]) -> None:
        """All that was trained of these is in the agreed state, by another worker, and what it had of them died."""
        for fragment in fragments:
            self.weights[fragment], self.behind[fragment] = 0.0, 0

    def forgotten(self) -> None:
        """Nothing is left to be brought."""
        self.weights, self.behind = [0.0] * len(self.weights), [0] * len(self.behind)

    def pack(self) -> bytes:
        """Its bytes, equally many for equally many fragments."""
        whole = (self.version, self.step, self.since, self.aloft, self.due)
        rest = (self.brought, *self.weights, *self.behind, self.scheduled)
        return struct.pack(self._layout(len(self.weights)), *whole, *rest)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` wrote."""
        count = (len(data) // 8 - 7) // 2
        version, step, since, aloft, due, brought, *rest = struct.unpack(cls._layout(count), data)
        return cls(version, step, since, aloft, bool(due), brought, rest[:count], rest[count:-1], rest[-1])

    @staticmethod
    def _layout(fragments: int) -> str:
        return f"<5Q{fragments + 1}d{fragments + 1}Q"

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint of a cluster's own part has to remember, beside the model.

        Not how far a schedule is beyond the agreed state: who begins anew is where every newcomer is.
        """
        return {"weights": list(self.weights), "behind": list(self.behind)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.weights, self.behind = list(state_dict["weights"]), list(state_dict["behind"])

    def become(self, other: Progress) -> None:
        """Be as far as another worker."""
        self.version, self.step, self.since = other.version, other.step, other.since
        self.aloft, self.due, self.brought = other.aloft, other.due, other.brought
        self.weights, self.behind, self.scheduled = list(other.weights), list(other.behind), other.scheduled
