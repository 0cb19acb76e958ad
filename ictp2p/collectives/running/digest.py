"""What participants vote on: the digest of a result, taken block by block while it arrives.

A digest over one run of bytes can only be begun when the first of them is there and ended when all are; of a result
that arrives in several shares at once that is at the very end, with every core idle but one. So this one is a tree of
two levels (as in Merkle's, and BLAKE3's): the SHA-256 of the result's length and of a checksum of each of its blocks.
Blocks are of the result, not of what travels, so the digest is the same whatever the plan, and every block is hashed
as soon as it is whole, while it is still in the caches and the next ones are on the wire.

A block's checksum is GMAC (NIST SP 800-38D: AES-GCM of no text, with the block as what goes with it) under a key that
everybody knows: 128 bits of a polynomial in all of the block's bits, at 23 GB/s here, where SHA-256 has 1.8 with the
processor's instructions for it, and BLAKE2b 1.3. What is to be noticed is a bit that flipped, a library that rounds
otherwise, a bug: two blocks that differ by any of these agree once in 2^112. It does not withstand somebody who makes
two results of one digest on purpose; but that would be a participant, who could as well contribute whatever it likes.
The global state, which newcomers take from anybody, has a digest of SHA-256 throughout (`sync/state/manifest`).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

BLOCK = 1024 * 1024
"""Bytes: few enough to be in the caches still, so many that a call costs nothing beside them."""
_KEY = b"ictp2p: a result"
_NONCE = bytes(12)


class ResultDigest:
    """The digest of some bytes that arrive in any order.

    Args:
        views: where they lie, one behind the other, each of them contiguous.
    """

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._views = [view.cast("B") for view in views if view.nbytes]
        self._ends = list(accumulate(map(len, self._views)))
        self._size = self._ends[-1] if self._ends else 0
        self._checksum = AESGCM(_KEY)
        self.restart()

    def restart(self) -> None:
        """Forget what has arrived: it will be written over."""
        self._leaves = [b""] * -(-self._size // BLOCK)
        self._missing = [min(BLOCK, self._size - start) for start in range(0, self._size, BLOCK)]

    def arrived(self, start: int, stop: int) -> None:
        """Take bytes `[start, stop)` for final; each of them arrives once. Beyond the end is none of ours."""
        stop = min(stop, self._size)
        while start < stop:
            number = start // BLOCK
            end = min(stop, (number + 1) * BLOCK)
            self._missing[number] -= end - start
            if not self._missing[number]:
                self._leaves[number] = self._leaf(number)
            start = end

    def digest(self) -> bytes:
        """All bytes are final, told or not: give their digest."""
        leaves = (leaf or self._leaf(number) for number, leaf in enumerate(self._leaves))
        return hashlib.sha256(self._size.to_bytes(8, "big") + b"".join(leaves)).digest()

    def _leaf(self, number: int) -> bytes:
        start, stop = number * BLOCK, min((number + 1) * BLOCK, self._size)
        at, pieces = bisect_right(self._ends, start), list[memoryview]()
        while start < stop:
            end = min(stop, self._ends[at])
            base = self._ends[at] - len(self._views[at])
            pieces.append(self._views[at][start - base : end - base])
            start, at = end, at + 1
        return self._checksum.encrypt(_NONCE, b"", pieces[0] if len(pieces) == 1 else b"".join(pieces))


def result_digest(*views: memoryview) -> bytes:
    """Give the digest of bytes that are all there, one view behind the other."""
    return ResultDigest(views).digest()


EMPTY = result_digest()
"""What is voted when there is nothing to hold, or something else for each."""
