"""Which of the leased blocks are in the cluster's model, and what becomes of them with a state that others computed.

All workers of a cluster keep the same: it changes with each step, by what all of them said (`averaging`), with each
state that lands, and in healing. Only blocks that are leased are in it, and no further behind the first that is not
than a note can say (`leases.WINDOW`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ictp2p.sync.samples.hand import Block
from ictp2p.sync.samples.leases import BLOCKS, DONE, EPOCH, WINDOW, Blocks, Holding

if TYPE_CHECKING:
    from torch import Tensor


class Fate(enum.Enum):
    """What became of the local progress of a cluster that received a state which it did not compute."""

    IN = enum.auto()
    """What was brought last is in the state."""
    OUT = enum.auto()
    """It is not, and is to be brought again."""
    REVOKED = enum.auto()
    """Its samples are others' by now: to bring it would train them twice."""


class Trained:
    """Blocks that are in the cluster's model and in no agreed one, in the order of the steps."""

    def __init__(self) -> None:
        self.epoch = 0
        """Epochs that have ended for the whole mesh."""
        self.leased: Blocks = np.zeros(0, dtype=np.int64)
        """What the cluster may train, ascending."""
        self._place: dict[int, int] = {}
        self._blocks: dict[int, None] = {}
        self._aloft = 0
        """How many of these, from the first, were brought to the round that was launched last."""
        self._whole = 0
        """How many leased blocks, from the first, are all trained."""

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    @property
    def all(self) -> bool:
        """Whether there is nothing left of the lease."""
        return len(self._blocks) == len(self.leased)

    def counts(self, block: Block) -> bool:
        """Whether a block is this cluster's to train, and not trained yet."""
        epoch, number = block
        due = epoch == self.epoch and number in self._place and number not in self._blocks
        return due and self._place[number] < self._whole + WINDOW

    def left(self) -> list[int]:
        """What may be trained next, ascending."""
        near = self.leased[self._whole : self._whole + WINDOW].tolist()
        return [block for block in near if block not in self._blocks]

    def add(self, blocks: Iterable[int]) -> None:
        """A step was taken with these."""
        self._blocks.update(dict.fromkeys(blocks))
        self._advance()

    def lease(self, epoch: int, leased: Blocks) -> None:
        """Train what is leased now. What was trained and is leased no longer is done."""
        if self.epoch != epoch:
            self._blocks.clear()
        self.epoch, self.leased = epoch, leased
        self._place = {block: place for place, block in enumerate(leased.tolist())}
        kept = [block in self._place for block in self._blocks]
        self._aloft = sum(kept[: self._aloft])
        self._set(block for block, keep in zip(list(self._blocks), kept, strict=True) if keep)

    def launch(self) -> Blocks:
        """Bring what there is to a round; gives the places of these blocks in the lease, ascending."""
        self._aloft = len(self._blocks)
        return np.sort(np.array([self._place[block] for block in self._blocks], dtype=np.int64))

    def fate(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor], held: Holding, *, mine: bool) -> Fate:
        """What became of it in a state that this cluster received.

        Args:
            counters: of that state.
            tensors: of that state.
            held: what the cluster holds there.
            mine: what the mesh says, for a contribution without samples.
        """
        blocks = tensors[BLOCKS]
        others = set(self._blocks) - set(held.blocks.tolist()) if self.epoch == counters[EPOCH] else set()
        if self._blocks and (not held.seated or any(int(blocks[block]) != DONE for block in others)):
            self.forget()
            return Fate.REVOKED
        if self._aloft and self.epoch != counters[EPOCH]:
            return Fate.IN  # no epoch ends while a cluster with a seat has blocks that are not done
        if self._aloft:
            mine = self._keep_what_is_inside(blocks)
        return Fate.IN if mine else Fate.OUT

    def _keep_what_is_inside(self, blocks: Tensor) -> bool:
        """Tell whether what was brought is done; what was added since an earlier attempt to bring it is gone then."""
        order = list(self._blocks)
        inside = [block for block in order[: self._aloft] if int(blocks[block]) == DONE]
        if inside:
            later = order[self._aloft :]
            self._aloft = len(inside)
            self._set([*inside, *later])
        return bool(inside)

    def forget(self) -> None:
        """The model is the agreed one again."""
        self._aloft = 0
        self._set([])

    def state_dict(self) -> dict[str, Any]:
        """What newcomers of the cluster take over; the lease is in the global state."""
        return {"epoch": self.epoch, "consumed": list(self._blocks), "aloft": self._aloft}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, with a model that it fits."""
        self.epoch, self._aloft = state_dict["epoch"], state_dict["aloft"]
        self._set(state_dict["consumed"])

    def _set(self, blocks: Iterable[int]) -> None:
        self._blocks = dict.fromkeys(blocks)
        self._whole = 0
        self._advance()

    def _advance(self) -> None:
        while self._whole < len(self.leased) and int(self.leased[self._whole]) in self._blocks:
            self._whole += 1
