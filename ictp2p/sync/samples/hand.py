"""Which batch a gradient is of: what was drawn from a sampler, and what of it is in the program's hands.

A loader draws ahead, so what was drawn last says nothing about what is trained now. But it gives out in the order in
which it drew: the first block that was drawn and not stepped with is the one in hand, as long as a step is taken with
each. Not every loop does so. A loss scaler skips the step of a batch whose gradients overflow, and programs go on to
the next batch where a loss is NaN; from then on each block would be counted in the name of another. So whoever can see
what the program is given tells it here (`Batches`): a block whose batches are all out is behind when the next one
comes, and if no step was taken with it by then, none will be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ictp2p.errors import ConfigError, LocalProtocolError, shown

if TYPE_CHECKING:
    from ictp2p.sync.samples.sampler import ElasticSampler

T_co = TypeVar("T_co", covariant=True)
Block = tuple[int, int]
"""An epoch, and the number of a block in it."""


class Hand:
    """Blocks that were drawn and neither stepped with nor passed over, in the order in which they are given out.

    Args:
        batches: in a block.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._drawn: deque[Block] = deque()
        self._given: int | None = None
        """How many batches of the first block were given out; None if nobody tells."""
        self.tellings = 0
        """How often anybody has told that a batch was given out."""

    def __len__(self) -> int:
        return len(self._drawn)

    @property
    def told(self) -> bool:
        """Whether anybody tells what is given out."""
        return self._given is not None

    def clear(self) -> None:
        """A loader begins: nothing that was drawn before comes from it."""
        self._drawn.clear()
        self._given = None

    def draw(self, block: Block) -> None:
        """A block was drawn."""
        self._drawn.append(block)

    def blocks(self, epoch: int) -> set[int]:
        """Those that are of an epoch."""
        return {block for of, block in self._drawn if of == epoch}

    def gave(self) -> Block | None:
        """One more batch was given out; tells the block that was passed over, if it is of the next one.

        Raises:
            LocalProtocolError: there is none that it could be.
        """
        self.tellings += 1
        passed = self.take() if self._given == self._batches else None
        if not self._drawn:
            raise LocalProtocolError(
                "the loader gave more batches than the sampler drew: each must be one of the sampler's"
            )
        self._given = (self._given or 0) + 1
        return passed

    def first(self) -> Block:
        """The block in hand.

        Raises:
            LocalProtocolError: there is none, or not all of it.
        """
        if not self._drawn or self._given not in (None, self._batches):
            raise LocalProtocolError(
                f"an inner step was taken after {self._given or 0} batches of the sampler: "
                f"it takes accumulate = {self._batches}"
            )
        return self._drawn[0]

    def take(self) -> Block:
        """Be done with the block in hand."""
        self._given = None if self._given is None else 0
        return self._drawn.popleft()


class Batches(Generic[T_co]):
    """What a loader gives, each told to the sampler as it is given.

    Args:
        sampler: whose batches they are.
        hand: the sampler's.
        gave: told.
        loader: gives them, one by one and in order.

    Raises:
        ConfigError: the loader gives batches out of order.
    """

    def __init__(self, sampler: ElasticSampler, hand: Hand, gave: Callable[[], None], loader: Iterable[T_co]) -> None:
        if not getattr(loader, "in_order", True):
            raise ConfigError(
                "a loader with in_order=False gives batches in another order than they were drawn in, so nobody knows "
                "which of them a step was taken with: a sampler that counts needs in_order=True"
            )
        self.batch_sampler = sampler
        """As a `DataLoader` has it."""
        self._hand, self._gave, self._loader = hand, gave, loader

    def __iter__(self) -> Iterator[T_co]:
        """The batches.

        Raises:
            ConfigError: the loader tells the sampler of them itself: each would count for two.
        """
        batches = iter(self._loader)
        while True:
            before = self._hand.tellings
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self._hand.tellings != before:
                raise ConfigError(
                    f"{shown(self._loader)} counts its batches with the sampler itself, as peer.steps(loader) "
                    "does, so each would count twice: let one do it, or nest them as peer.steps(sampler.over(loader))"
                )
            self._gave()
            yield batch
