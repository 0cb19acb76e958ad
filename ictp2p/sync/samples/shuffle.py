"""A seeded permutation of any range that is never written down.

An epoch of a thousand million samples has a permutation of 8 GB, which each worker of each cluster would need for the
few indices that it trains. A Feistel network is a permutation of the numbers of 2h bits for any round function (Luby
and Rackoff, "How to Construct Pseudorandom Permutations from Pseudorandom Functions", 1988); walking its cycle until
the value falls within the range makes it one of the range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
2002). Integers only, so every machine gets the same; not for secrets, the round function is a mixer (splitmix64).
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def shuffled(positions: NDArray[np.uint64], size: int, seed: int, epoch: int) -> NDArray[np.uint64]:
    """What stands at these positions of the permutation of `range(size)` that belongs to a seed and an epoch.

    Args:
        positions: each below `size`; flat.
        size: at least 1.
        seed: any integer.
        epoch: not negative; each has a permutation of its own.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    digest = hashlib.blake2b(f"{seed} {epoch} {size}".encode(), digest_size=8 * _ROUNDS).digest()
    keys = struct.unpack(f"<{_ROUNDS}Q", digest)
    found = _network(positions, half, keys)
    while (outside := found >= np.uint64(size)).any():
        found[outside] = _network(found[outside], half, keys)
    return found


def _network(values: NDArray[np.uint64], half: int, keys: tuple[int, ...]) -> NDArray[np.uint64]:
    width, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> width, values & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right + np.uint64(key)) & mask)
    return (left << width) | right


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in _MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))
