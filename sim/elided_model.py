"""Policies over models that are sizes only: everything happens but the arithmetic.

How long training takes depends on how much travels, and when; not on what. `SizeOnlyWeights` takes the place of a
policy's `sync.model.weights.Weights`: each fragment of a small model stands for as many elements as it is told, rounds
carry so many zeros, and the outer step only counts. The timetable, the conversations, the votes and the data plane are
the policy's and the peers' own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from ictp2p.sync.model.weights import Weights
from ictp2p.sync.values import LOOKS_ON, Participant
from sim.view import View


class SizeOnlyWeights(Weights):
    """`Weights` of which only the sizes are there. Make it with `functools.partial`; give it as `arithmetic`.

    Args:
        world: keeps one buffer of zeros for all.
        size: float32 elements that each fragment stands for.
        given: as for `Weights`.
        options: as for `Weights`.
    """

    in_parts = False

    def __init__(self, world: View, size: int, *given: Any, **options: Any) -> None:
        self._blank, self._result = world.blank(size)
        self._size = size
        super().__init__(*given, **options)
        self._delta = self._average = torch.zeros(0)

    def elements(self, fragment: int) -> int:
        """Number of elements that a fragment stands for."""
        return self._size

    @property
    def delta(self) -> Tensor:
        """Zeros."""
        return self._blank

    @property
    def average(self) -> Tensor:
        """Zeros, or what a codec makes of them."""
        return self._result

    def capture(self, weight: float) -> None:
        """Take note of the fragment."""
        self._captured = self.fragment

    def finish(self, parts: Sequence[Participant]) -> bytes:
        """Count the round, and decide what is on the agenda."""
        assert any(part.weight > LOOKS_ON for part in parts)
        tentative = self.state.begin(self.agenda.names)
        counters = {**self.state.counters, "round": self.state.counters["round"] + 1}
        return self.state.seal(self.agenda.decide(counters, tentative, parts))

    def commit(self, version: int) -> None:
        """Make the counted state the agreed one."""
        self.state.commit(version)

    def adopt(self, *, mine: Collection[int]) -> None:
        """There is nothing to mix."""

    def load(self) -> None:
        """There is nothing to load."""
