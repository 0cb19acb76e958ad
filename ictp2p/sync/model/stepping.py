"""The outer step, taken while the average arrives.

Where each element of the next state follows from its own element of the average, and from nothing else of it, nothing
has to wait until all of that is here: a round of a model of gigabytes spends seconds on the wire, and would then spend
another one on the step and on the digest of what comes out. The bits are those of a step at once.

What has arrived is stepped in batches, each by as many threads as there are cores: so many bytes keep them busy, and
what is left at the very end is less than one batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from torch import Tensor

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import Job
from ictp2p.sync.state.global_state import GlobalState

_BATCH = 16 * 1024 * 1024
"""Bytes of the average that are stepped at once."""

Range = tuple[int, int]
"""Elements `[start, stop)` of the average."""


class Stepping:
    """One step, from the next state's beginning to its last element.

    Args:
        state: whose next state was begun.
        tentative: the tensors of that.
        jobs: what is done to each tensor, in the order in which their parts of the average lie. The second tensor of a
            job is that part, the others are of the next state; all are contiguous.
    """

    def __init__(self, state: GlobalState, tentative: Mapping[str, Tensor], jobs: Sequence[Job]) -> None:
        self.tentative = tentative
        """As it was given."""
        self._state, self._draft = state, state.draft
        self._jobs = [(act, [tensor.detach().view(-1) for tensor in tensors]) for act, tensors in jobs]
        self._ends = list(accumulate(tensors[1].numel() for _, tensors in self._jobs))
        self._arrived = list[Range]()
        self._waiting = list[Range]()
        """Of these, what is not stepped yet."""
        self._waits = 0
        """Elements of that."""

    @property
    def stands(self) -> bool:
        """Whether the next state is still the one that was begun, and nothing went wrong with it."""
        return self._draft is not None and self._state.draft is self._draft

    def arrived(self, start: int, stop: int) -> None:
        """Elements `[start, stop)` of the average are final; each of them is told at most once."""
        self._arrived.append((start, stop))
        self._waiting.append((start, stop))
        self._waits += stop - start
        if self._waits * self._jobs[0][1][1].itemsize >= _BATCH:
            self._step(self._waiting)
            self._waiting, self._waits = [], 0

    def complete(self) -> None:
        """All elements are final, told or not."""
        self._step([*self._waiting, *_gaps(self._arrived, self._ends[-1] if self._ends else 0)])

    def _step(self, ranges: Iterable[Range]) -> None:
        pieces = [piece for each in ranges for piece in self._cut(*each)]
        draft, self._draft = self._draft, None  # who is interrupted here has stepped nobody knows what
        assert draft is not None
        elementwise(pieces)
        draft.final(tensor for _, (value, _, *kept) in pieces for tensor in (value, *kept))
        self._draft = draft

    def _cut(self, start: int, stop: int) -> Iterator[Job]:
        """The jobs of a range, each with its part of the tensors."""
        at = bisect_right(self._ends, start)
        while start < stop:
            act, tensors = self._jobs[at]
            begins = self._ends[at] - tensors[1].numel()
            end = min(stop, self._ends[at])
            yield act, [tensor[start - begins : end - begins] for tensor in tensors]
            start, at = end, at + 1


def _gaps(ranges: Iterable[Range], size: int) -> Iterator[Range]:
    """What of `[0, size)` is in none of these ranges."""
    end = 0
    for start, stop in sorted(ranges):
        if start > end:
            yield end, start
        end = max(end, stop)
    if end < size:
        yield end, size
