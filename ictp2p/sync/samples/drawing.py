"""What a worker draws next of its cluster's lease: first its own, then what others would have drawn last.

A block is a worker's own by its number, so the workers of a cluster need not ask each other. That is a matter of
efficiency alone: of two who came to a step with the same block one counts (`averaging`). What came to no step is drawn
again after all others, a number of times; a block that never comes to one, as of a loss that is NaN each time, would
keep the epoch from ending, and is left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable

from ictp2p.sync.cluster.averaging import NOTHING
from ictp2p.sync.samples.hand import Block

_PATIENCE = 32
"""Times that a block is given without a step before it is left out: a loss scaler that begins at 2^16 halves its scale
17 times before it is less than 1."""
_LEAK, _MANY = 2, 64
"""How much more a batch without a step counts than one with it, and from where on people are told: from a third of the
batches on, but not of a loss scaler that looks for its scale."""


class Deck:
    """The blocks that one worker may draw, in order."""

    def __init__(self) -> None:
        self.rank, self.workers = 0, 1
        self._own: deque[int] = deque()
        self._others: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    def sort(self, blocks: Iterable[int]) -> None:
        """Line up what may be drawn."""
        mine: tuple[deque[int], deque[int]] = deque(), deque()
        for block in blocks:
            mine[block % self.workers == self.rank].append(block)
        self._others, self._own = mine

    def again(self, block: int) -> None:
        """Draw one again, after all others of this worker's own."""
        self._own.append(block)

    def draw(self) -> int:
        """The next one, or `NOTHING`."""
        if self._own:
            return self._own.popleft()
        return self._others.pop() if self._others else NOTHING


class Passed:
    """Blocks with which no step was taken, how often, and which of them are to be left out of the epoch."""

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda text: None
        """People what they should know."""
        self._times: Counter[int] = Counter()
        self._left: deque[Block] = deque()
        self._wasted, self._warned = 0, False

    def begin(self) -> None:
        """An epoch begins."""
        self._times.clear()

    def again(self, block: Block, samples: Callable[[], Collection[int]]) -> bool:
        """Whether to draw a block of this epoch again; else it is left out, and people are told of its `samples`."""
        epoch, number = block
        self._times[number] += 1
        if self._times[number] < _PATIENCE:
            return True
        self.leave_out(block)
        left = f"samples {samples()} are left out of epoch {epoch}"
        self.tell(f"{left}: given {_PATIENCE} times, and no step was taken")
        return False

    def leave_out(self, block: Block) -> None:
        """A block counts as trained, once all workers know it."""
        self._left.append(block)

    def left_out(self, counts: Callable[[Block], bool]) -> Block | None:
        """The first that is left out and still `counts`."""
        while self._left and not counts(self._left[0]):
            self._left.popleft()
        return self._left[0] if self._left else None

    def blocks(self, epoch: int) -> set[int]:
        """Those of an epoch that are to be left out, and were not by all workers yet."""
        return {block for of, block in self._left if of == epoch}

    def used(self) -> None:
        """A batch came to a step."""
        self._wasted = max(0, self._wasted - 1)

    def wasted(self) -> None:
        """A batch came to none."""
        self._wasted += _LEAK
        if self._wasted >= _MANY and not self._warned:
            self._warned = True
            self.tell(
                "many batches come to no step, and are given again. Where the gradients of several are added up before "
                "a step, the sampler must know: ElasticSampler(..., accumulate=...)"
            )
