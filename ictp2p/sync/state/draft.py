"""The next state while it is written: which of its chunks are final, and their digests, taken one by one.

A large state takes longer to hash than to compute. What is computed while an average arrives is final long before all
of it is there, and is hashed then, while it is in the caches and the rest is still on the wire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch import Tensor

from ictp2p.sync.state.halves import Halves


class Draft:
    """The chunks of a tentative state that are written to.

    Args:
        halves: its memory; the chunks are touched, and hold what was agreed last.
        names: the tensors that will be written to; other parts of those chunks stay as they are.
    """

    def __init__(self, halves: Halves, names: Collection[str]) -> None:
        self._halves = halves
        self._open = halves.bytes_under(names)
        self._digests: dict[int, bytes] = {}

    def final(self, views: Iterable[Tensor]) -> None:
        """Take these contiguous parts of the tensors for final: none is written to again, or told twice."""
        whole = []
        for view in views:
            for chunk, size in self._halves.chunks_of(view):
                self._open[chunk] -= size
                if not self._open[chunk]:
                    whole.append(chunk)
        self._digests |= self._halves.digests(whole)

    def seal(self) -> dict[int, bytes]:
        """All is final, told or not: give the digests of the chunks that were touched."""
        return self._digests | self._halves.digests(self._halves.touched - self._digests.keys())
