"""Who may train which samples, decided with each round, as part of the global state.

An epoch is cut into blocks, a batch each. A block is free, leased to a cluster, or done: 16 bits in the global state.
A cluster trains only what is leased to it, and says with its contribution which of these blocks are *in* it; the commit
of that round makes them done, in the same decision that moves the parameters. So neither can be without the other: a
round that came to nothing leaves both as they were, and a contribution that died with its cluster takes nothing along.

A lease ends when its cluster was in none of the last `keep` rounds. Others train the blocks then, and a cluster that
comes back finds itself without a seat: what it trained apart must not be brought any more. The seat is how it can tell,
whatever became of the blocks meanwhile. No clock is involved: rounds are counted, and they are the same everywhere.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ictp2p.sync.state.agreed import Said
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import MAX_NOTE
from ictp2p.types import ClusterId

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]

FREE, DONE, _SEATED = 0, 1, 2
SEATS = 1024
"""Most clusters that hold leases at a time: as many as a round may have."""
WINDOW = 6400
"""How far behind the first leased block that is not in a contribution others may be trained that are to be: bits of its
note. A later lease may put more before and between them, of which nothing is said; so the bits are compressed."""
MOST = 1 << 24
"""Most blocks that a cluster may ask for."""
BLOCKS, SEATED, EPOCH = "blocks of samples", "seats of samples", "epoch of samples"
_NOTE = struct.Struct("<QIII")
"""Epoch, blocks to hold from now on, leading leased blocks that are in the contribution, and how many behind these are
not; then bits for those behind them, compressed."""

Blocks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Holding:
    """What one cluster holds in one state."""

    seated: bool
    """Whether its leases were never revoked since it got them."""
    blocks: Blocks
    """Leased to it and not done, ascending."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a cluster says with its contribution."""

    epoch: int
    """That its blocks are of."""
    blocks: int
    """How many it would hold for the next phase."""
    places: Blocks
    """Which of the blocks that it holds are in the contribution, as places in `Holding.blocks`, ascending."""

    def encode(self) -> bytes:
        """Its bytes: at most `WINDOW` / 8 and a few, whatever lies before the first of them that something is said of.

        More where bits without any order have others leased between them, which can be more than a round carries.
        """
        gaps = np.flatnonzero(self.places != np.arange(len(self.places)))
        whole = int(gaps[0]) if len(gaps) else len(self.places)
        rest = self.places[whole:] - whole
        gap = int(rest[0]) if len(rest) else 0
        rest -= gap
        bits = np.zeros(int(rest[-1]) + 1 if len(rest) else 0, dtype=np.uint8)
        bits[rest] = 1
        said = zlib.compress(np.packbits(bits).tobytes(), 9) if len(rest) else b""
        return _NOTE.pack(self.epoch, min(MOST, self.blocks), whole, gap) + said


def _read(note: bytes, held: int) -> Wish | None:
    """Read what another cluster said; None if it makes no sense."""
    if not _NOTE.size <= len(note) <= MAX_NOTE:
        return None
    epoch, blocks, whole, gap = _NOTE.unpack_from(note)
    bits = _inflated(note[_NOTE.size :], held // 8 + 1)
    if bits is None:
        return None
    rest = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8))) + whole + gap
    if whole > held or blocks > MOST or (len(rest) and rest[-1] >= held):
        return None
    return Wish(epoch, blocks, np.concatenate([np.arange(whole), rest]))


def _inflated(said: bytes, most: int) -> bytes | None:
    """Decompress at most so many bytes; None if there are more, or it is something else."""
    if not said:
        return b""
    inflater = zlib.decompressobj()
    try:
        bits = inflater.decompress(said, most)
    except zlib.error:
        return None
    return bits if inflater.eof and not inflater.unused_data else None


class Leases:
    """The rules; what they are applied to is in the state."""

    def __init__(self, blocks: int, epochs: int | None, keep: int) -> None:
        """Take the settings, which must be equal everywhere.

        Args:
            blocks: of an epoch.
            epochs: after which nothing is leased any more; None for no end.
            keep: rounds that a cluster may miss before its leases are others'.
        """
        self._epochs, self._keep = epochs, keep
        self.entries = (Entry(BLOCKS, "int16", (blocks,)), Entry(SEATED, "int64", (SEATS, 2)))
        """Per block who has it, and per seat whose it is and in which round it was last taken."""
        self.counters: Mapping[str, int] = {EPOCH: 0}

    def holding(self, tensors: Tensors, cluster: ClusterId) -> Holding:
        """What a cluster holds."""
        seat = _seat(tensors[SEATED].numpy(), _key(cluster))
        blocks = tensors[BLOCKS].numpy()
        return Holding(seat is not None, np.flatnonzero(blocks == _SEATED + seat) if seat is not None else _none())

    def decide(self, counters: dict[str, int], tensors: Tensors, said: Sequence[Said]) -> None:
        """Count what is contributed, take back what is late, and lease what is free in the order of the round."""
        blocks, seats = tensors[BLOCKS].numpy(), tensors[SEATED].numpy()
        wishes = [(_key(cluster), self._counted(counters[EPOCH], tensors, cluster, note)) for cluster, note in said]
        now = counters["round"]
        for key, _ in wishes:
            seat = _seat(seats, key)
            if seat is not None:
                seats[seat, 1] = now
        self._revoke(blocks, seats, now)
        if (blocks == DONE).all():
            counters[EPOCH] += 1
            blocks[:] = FREE
        if self._epochs is None or counters[EPOCH] < self._epochs:
            _lease(blocks, [(_take(seats, key, now), wish.blocks) for key, wish in wishes if wish is not None])

    def _counted(self, epoch: int, tensors: Tensors, cluster: ClusterId, note: bytes) -> Wish | None:
        held = self.holding(tensors, cluster).blocks
        wish = _read(note, len(held))
        if wish is not None and wish.epoch == epoch:
            tensors[BLOCKS].numpy()[held[wish.places]] = DONE
        return wish

    def _revoke(self, blocks: NDArray[Any], seats: NDArray[Any], now: int) -> None:
        for seat in np.flatnonzero((seats[:, 0] != 0) & (seats[:, 1] < now - self._keep)):
            blocks[blocks == _SEATED + seat] = FREE
            seats[seat] = 0


def _lease(blocks: NDArray[Any], wishes: Sequence[tuple[int | None, int]]) -> None:
    """Give each what it lacks; if there is less, to each the same share of that."""
    lacking = [
        (seat, max(0, wanted - int(np.count_nonzero(blocks == _SEATED + seat))))
        for seat, wanted in wishes
        if seat is not None
    ]
    free = np.flatnonzero(blocks == FREE)
    total = sum(lack for _, lack in lacking)
    share = min(total, len(free))
    given = passed = 0
    for seat, lack in lacking:
        passed += lack
        until = passed * share // total if total else 0
        blocks[free[given:until]] = _SEATED + seat
        given = until


def _take(seats: NDArray[Any], key: int, now: int) -> int | None:
    """The seat of a cluster, a new one if it has none; None if all are taken."""
    seat = _seat(seats, key)
    if seat is None:
        seat = next(iter(np.flatnonzero(seats[:, 0] == 0).tolist()), None)
        if seat is not None:
            seats[seat] = key, now
    return seat


def _seat(seats: NDArray[Any], key: int) -> int | None:
    return next(iter(np.flatnonzero(seats[:, 0] == key).tolist()), None)


def _key(cluster: ClusterId) -> int:
    """63 bits for a name, never 0."""
    return int.from_bytes(hashlib.blake2b(cluster.encode(), digest_size=8).digest(), "little") >> 1 or 1


def _none() -> Blocks:
    return np.zeros(0, dtype=np.int64)
