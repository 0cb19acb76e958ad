"""Every sample once per epoch, however many clusters there are and whatever becomes of them.

The sampler leases blocks of a seeded permutation from the mesh (`leases`) and yields them as batches to an ordinary
`DataLoader`. What counts is not what was yielded but what is in a committed contribution, and three gaps lie between:

- *From a yield to a step.* A loader draws ahead. Batches are consumed by inner steps, in the order in which they were
  drawn; what was drawn and never consumed is drawn again (`hand`). So is what no step was taken with, because a loss
  scaler or the program skipped it: it is in nobody's model (`drawing`).
- *From a step to the cluster's model.* Before each step the workers say which block their gradient is of. It counts if
  it is leased, was not trained before, and no lower rank has it too; else the gradient has no weight. So every worker
  knows exactly what is in the cluster's model (`trained`), whatever died in a step, and any of them can lead.
- *From there to the global model.* The note of a contribution says which blocks are in it, and the commit makes them
  done. Whether a contribution whose leader died is in the agreed state, that state itself tells. A cluster whose leases
  were revoked meanwhile forgets what it trained apart (`Fate.REVOKED`).

Where gradients are accumulated over several batches before a step, a block is all the batches of one step
(`accumulate`): a gradient counts as a whole or not at all, so what is counted must be as much as a gradient is of.

A worker that has nothing to draw gets a batch that will have no weight: it must not hold up the others of its cluster,
in whose steps it takes part. A cluster that has trained all it leased goes to the next round at once, and so does a
newcomer, which brings nothing yet (weight `values.LOOKS_ON`) and asks for its first lease.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch.utils.data import Sampler

from ictp2p.errors import ConfigError, LocalProtocolError, shown
from ictp2p.sync import options
from ictp2p.sync.cluster.averaging import NOTHING
from ictp2p.sync.samples.drawing import Deck, Passed
from ictp2p.sync.samples.hand import Batches, Block, Hand
from ictp2p.sync.samples.leases import EPOCH, Leases, Wish
from ictp2p.sync.samples.shuffle import shuffled
from ictp2p.sync.samples.trained import Fate, Trained
from ictp2p.sync.state.agreed import Said
from ictp2p.types import ClusterId

if TYPE_CHECKING:
    from torch import Tensor

_SPARE = 0.25
"""Share by which a lease exceeds what the last phase says is needed: to run dry costs a round, a block held too long
costs the others a wait at the end of the epoch."""
_LARGEST = 2**53

T = TypeVar("T")


class ElasticSampler(Sampler[list[int]]):
    """A `batch_sampler` for a `DataLoader`: each sample is trained once per epoch, by one worker of all clusters.

    Give it to the policy as well. Each inner step takes `accumulate` batches.

    ```python
    sampler = ictp2p.ElasticSampler(len(data), 32, epochs=3)
    loader = DataLoader(data, batch_sampler=sampler)
    with ictp2p.Peer(config) as peer, ictp2p.DiLoCo(peer, model, inner, sampler=sampler):
        while not sampler.finished:
            for batch in peer.steps(loader):       # until the epoch has ended for the whole mesh
                ...
    ```
    """

    name = "samples"

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        accumulate: int = 1,
        seed: int = 0,
        epochs: int | None = None,
        keep: int = 8,
    ) -> None:
        """Set it up. All settings must be the same on all workers of all clusters.

        Args:
            size: number of samples in the data set.
            batch_size: samples per batch; the batches of an epoch's last inner step may be smaller.
            accumulate: batches whose gradients are added up before each inner step, the same number in every step.
            seed: of the permutations of the samples, a new one for each epoch.
            epochs: number of epochs after which training is finished; None for no end.
            keep: rounds that a cluster may miss before others train the samples that were leased to it.

        Raises:
            ConfigError: a value is out of range.
        """
        size, batch_size = options.whole("size", size, 1), options.whole("batch_size", batch_size, 1)
        accumulate, keep = options.whole("accumulate", accumulate, 1), options.whole("keep", keep, 1)
        seed = options.whole("seed", seed)
        epochs = None if epochs is None else options.whole("epochs", epochs, 1)
        if size > _LARGEST:
            raise ConfigError(f"size {shown(size)} is not from 1 to {_LARGEST}")
        if 0 < size % (batch_size * accumulate) < accumulate:
            raise ConfigError(f"size {size!r} leaves less than a sample for each of the {accumulate} last batches")
        self.batch_size = batch_size
        """Samples per batch, by the name that torch's own samplers have for it."""
        self.accumulate = accumulate
        """Batches per inner step."""
        self._size = size
        self._seed, self._epochs, self._keep = seed, epochs, keep
        self._blocks = math.ceil(size / (batch_size * accumulate))
        self._leases = Leases(self._blocks, epochs, keep)
        self.entries, self.counters = self._leases.entries, self._leases.counters
        self._cluster: ClusterId | None = None
        self._drained = False
        self._trained, self._deck, self._passed = Trained(), Deck(), Passed()
        self._wish = Wish(0, 0, self._trained.leased)
        self._hand = Hand(accumulate)
        """What was yielded and not stepped with: this worker's own."""
        self._filler: Block = (0, 0)
        """What a batch is made of that has no weight: what a step was taken with last, which the program can train."""
        self._ran_out = False

    # As a sampler.

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of this worker until the epoch has ended for the whole mesh.

        Raises:
            LocalProtocolError: no policy has it, or the policy was not entered yet.
        """
        if self._cluster is None:
            raise LocalProtocolError("give the sampler to a policy, and enter that, before iterating over it")
        if self._ran_out and len(self._hand) and not self._hand.told:
            self._passed.tell(
                f"{len(self._hand)} batches were drawn more than steps were taken: from a skipped step on, samples are "
                "counted in the name of others. peer.steps(loader) and sampler.over(loader) see where one was"
            )
        self._hand.clear()
        self._ran_out = False
        self._sort()
        epoch = self.epoch
        while self.epoch == epoch and not self.ended:
            block = self._draw()
            self._hand.draw((epoch, block))
            yield from self._batches(self._indices(*(self._filler if block == NOTHING else (epoch, block))))
        self._ran_out = True

    def __len__(self) -> int:
        """The batches of a whole epoch in all clusters together: nobody can know how many of them come here."""
        return self._blocks * self.accumulate

    def over(self, loader: Iterable[T]) -> Batches[T]:
        """Iterate over `loader` and count its batches, so that one with which no step was taken is given again.

        `Peer.steps` does this for a loader that has this sampler as its `batch_sampler`. A loop without it, or around
        a loader of another kind, takes its batches from here. A prefetcher belongs inside: `sampler.over(prefetcher)`.
        With `Peer.steps`, this belongs inside too: `peer.steps(sampler.over(loader))`.

        Args:
            loader: yields one item for each batch of this sampler, in the order in which they were drawn.

        Raises:
            ConfigError: it yields them in another order, or has another sampler; or, with the first batch, its batches
                are counted inside of it already.
        """
        other = getattr(loader, "batch_sampler", self)
        if isinstance(other, ElasticSampler) and other is not self:
            raise ConfigError(f"{shown(loader)} gives the batches of another sampler: {shown(other)}")
        return loader if isinstance(loader, Batches) else Batches(self, self._hand, self._gave, loader)

    def skip(self) -> None:
        """Leave the batches of the current step out of this epoch: they count as trained, and are not given again.

        For samples that the program does not want to train: call it instead of the inner step, after the last batch of
        the step was given. They are counted with the next step of this worker.

        Raises:
            LocalProtocolError: not all batches of a step were given.
        """
        block = self._hand.first()
        self._passed.leave_out(block)
        self._refill(block)
        self._hand.take()

    def leave_out(self) -> None:
        """As `skip`, for a trainer that takes the inner step all the same, without the gradients of these batches.

        Raises:
            LocalProtocolError: not all batches of a step were given.
        """
        self._passed.leave_out(self._hand.first())

    @property
    def epoch(self) -> int:
        """Epochs that have ended for the whole mesh."""
        return self._trained.epoch

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to train here: all epochs have ended, or this worker has drained."""
        return self.ended or self._drained

    @property
    def ended(self) -> bool:
        """Whether all epochs have ended for the whole mesh."""
        return self._epochs is not None and self.epoch >= self._epochs

    def drain(self) -> None:
        """Be finished, and leave the rest to others: `Peer.steps` calls it when this worker has drained."""
        self._drained = True

    def state_dict(self) -> dict[str, Any]:
        """Which samples this cluster has trained since the agreed state. All else is in the global state."""
        return self._trained.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`, which must be of the same time as the model."""
        self._trained.load_state_dict(state_dict)
        self._sort()

    # As something that is agreed on.

    def describe(self) -> Sequence[tuple[str, str]]:
        """Its settings, which must be equal everywhere, in words."""
        epochs = "endless" if self._epochs is None else str(self._epochs)
        batches = f"{self.accumulate} batches of {self.batch_size} a step"
        return [("samples", f"{self._size}, {batches}, seed {self._seed}, {epochs} epochs, kept {self._keep} rounds")]

    def note(self) -> bytes:
        """Which blocks are in the contribution, and how many are wanted."""
        return self._wish.encode()

    def decide(self, counters: dict[str, int], tensors: Mapping[str, Tensor], said: Sequence[Said]) -> None:
        """Count what was contributed, and lease anew."""
        self._leases.decide(counters, tensors, said)

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor]) -> None:
        """Train what is leased now. What was consumed and is leased no longer is done."""
        if self._cluster is None:
            return
        if self.epoch != counters[EPOCH]:
            self._passed.begin()
        self._trained.lease(counters[EPOCH], self._leases.holding(tensors, self._cluster).blocks)
        self._sort()

    # As a part of the policy.

    def join(self, cluster: ClusterId, tell: Callable[[str], None]) -> None:
        """Lease for this cluster, and `tell` people what they should know."""
        self._cluster, self._passed.tell, self._drained = cluster, tell, False

    def regroup(self, rank: int, workers: int) -> None:
        """Share the lease among so many workers, of which this is one."""
        self._deck.rank, self._deck.workers = rank, workers
        self._sort()

    def mark(self) -> int:
        """Which block the gradient in hand is of, or `NOTHING` if it must not count.

        Raises:
            LocalProtocolError: a step was taken without a batch.
        """
        block = self._hand.first()
        return block[1] if self._trained.counts(block) and block[1] not in self._passed.blocks(block[0]) else NOTHING

    def left(self) -> int:
        """Which block this worker leaves out, or `NOTHING`: said with each step until all know it."""
        block = self._passed.left_out(self._trained.counts)
        return NOTHING if block is None else block[1]

    def stepped(self, marks: Sequence[int], left: Sequence[int] = (), *, taken: bool = True) -> None:
        """All workers came to a step with the gradients of these blocks.

        Args:
            marks: the blocks.
            left: those that some worker leaves out.
            taken: whether it was taken, or skipped by all, because the gradients overflowed.
        """
        block = self._hand.take()
        done = (*marks, *left) if taken else left
        self._trained.add(each for each in done if each != NOTHING)
        if not taken:
            self._again(block)
        elif block[1] != NOTHING and block[1] not in left:
            self._filler = block
            self._passed.used()

    @property
    def dry(self) -> bool:
        """Whether the cluster has trained all that it leased."""
        return self._trained.all and not self.ended

    def launches(self, steps: int) -> None:
        """A round is being launched, with a phase of so many inner steps after it.

        What was only left out is said, too, in a contribution without weight.
        """
        ahead = steps + len(self._hand) + 1
        wanted = math.ceil((1.0 + _SPARE) * ahead * self._deck.workers)
        self._wish = Wish(self.epoch, wanted, self._trained.launch())

    def fate(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor], *, mine: bool) -> Fate:
        """What became of what this cluster trained, in a state that it received.

        Args:
            counters: of that state.
            tensors: of that state.
            mine: what the mesh says, for a contribution without samples.
        """
        assert self._cluster is not None
        held = self._leases.holding(tensors, self._cluster)
        fate = self._trained.fate(counters, tensors, held, mine=mine)
        self._sort()
        return fate

    def forget(self) -> None:
        """The model is the agreed one again."""
        self._trained.forget()
        self._sort()

    # Drawing.

    def _gave(self) -> None:
        """A batch is in the program's hands; if it is of another block than before, that one was passed over."""
        passed = self._hand.gave()
        if passed is not None:
            self._again(passed)

    def _again(self, block: Block) -> None:
        """No step was taken with a block: draw it again after all others, or leave it out."""
        self._passed.wasted()
        self._refill(block)
        epoch, number = block
        if number == NOTHING or epoch != self.epoch:
            return
        if self._passed.again(block, lambda: self._indices(epoch, number)):
            self._deck.again(number)

    def _refill(self, block: Block) -> None:
        """What a batch without weight was made of came to no step: another one may, and the others wait for it."""
        if block[1] == NOTHING:
            epoch, number = self._filler
            self._filler = epoch, (number + 1) % self._blocks

    def _draw(self) -> int:
        if not len(self._deck):
            self._sort()
        drawn = self._busy()
        while (block := self._deck.draw()) != NOTHING:
            if block not in self._trained and block not in drawn:
                return block
        return NOTHING

    def _sort(self) -> None:
        """Line up what may be drawn."""
        drawn = self._busy()
        self._deck.sort(block for block in self._trained.left() if block not in drawn)

    def _busy(self) -> set[int]:
        """What is not to be drawn, though nobody trained it."""
        return self._hand.blocks(self.epoch) | self._passed.blocks(self.epoch)

    def _indices(self, epoch: int, block: int) -> list[int]:
        start, length = block * self.batch_size * self.accumulate, self.batch_size * self.accumulate
        positions = np.arange(start, min(self._size, start + length), dtype=np.uint64)
        found: list[int] = shuffled(positions, self._size, self._seed, epoch).tolist()
        return found

    def _batches(self, indices: list[int]) -> list[list[int]]:
        """The batches of one step; of equal size, but for one sample where fewer are left."""
        ends = [len(indices) * (number + 1) // self.accumulate for number in range(self.accumulate)]
        return [indices[start:stop] for start, stop in itertools.pairwise([0, *ends])]
