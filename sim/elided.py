"""Large models in a small simulator: what is nothing but zeros is carried, and held, as a size.

A simulated world with `elide` stands for a model that no simulator could hold once per worker. All its tensors are
zeros, and stay zeros under every sum, so leaving their bytes out loses nothing: whoever receives them finds the zeros
that were sent. Everything else (headers, manifests, views of the mesh) travels as it is, and so plans, digests,
connections, timing and every decision are those of a real transfer. `SizeOnly` is the state of such a model: it has
the manifest, the digests and the chunks of a state of that size, and holds one chunk.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from ictp2p.errors import StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import CHUNK, Entry, Manifest, by_content, digest_of, extent

KEPT = 64
"""Bytes at the beginning of a large message that are carried as they are."""


def is_empty(data: bytes | bytearray | memoryview) -> bool:
    """Whether nothing but zeros follows the first `KEPT` bytes."""
    rest = memoryview(data).cast("B")[KEPT:]
    return nothing(len(rest)).startswith(rest)  # compares memory, where views are compared element by element


@functools.lru_cache(64)
def nothing(size: int) -> bytes:
    """So many zeros, made once."""
    return bytes(size)


@functools.lru_cache(64)
def _digest_of_nothing(size: int) -> bytes:
    return digest_of(bytes(size))


class SizeOnly(GlobalState):
    """The global state of a model whose parameters are zeros, whatever was trained.

    Only its counters tell one version from another, so every version has a digest of its own, and whoever fetches one
    fetches all of it, as after a round that touched every parameter.

    Args:
        elements: float32 elements that it stands for.
        settings: what every worker must share, in words.
    """

    def __init__(self, elements: int, settings: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__([Entry("weights", "float32", (1,))], settings)
        self.entries = (Entry("weights", "float32", (elements,)),)
        self._length = extent(self.entries)
        self._scratch = bytearray(CHUNK)

    def beside(self) -> SizeOnly:
        """An empty state for another version; see `GlobalState.beside`."""
        return SizeOnly(self.entries[0].shape[0], self.settings)

    @property
    def chunks(self) -> int:
        """How many it stands for."""
        return math.ceil(self._length / CHUNK)

    def seal(self, counters: Mapping[str, int]) -> bytes:
        """Fix the next state and give its digest; see `GlobalState.seal`."""
        whole = _digest_of_nothing(CHUNK) * (self.chunks - 1)
        last = _digest_of_nothing(self._length - (self.chunks - 1) * CHUNK)
        self._next = Manifest(self.entries, self.settings, tuple(sorted(counters.items())), whole + last)
        self.sealed = by_content(self._next)
        return self.sealed

    def chunk(self, digest: bytes, index: int) -> bytes:
        """One chunk of the committed state; see `GlobalState.chunk`."""
        with self._served(digest):
            if not 0 <= index < self.chunks:
                raise StateError(f"chunk {index} of {self.chunks} does not exist")
            start, stop = self._manifest.chunk_range(index)
            return bytes(stop - start)

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state, of which nothing is here; see `GlobalState.expect`."""
        self._next, self.sealed = self.same_training(encoded, digest), b""
        return list(range(self._next.count))

    def destination(self, index: int) -> memoryview:
        """Room for one chunk; see `GlobalState.destination`."""
        start, stop = self._next.chunk_range(index)
        return memoryview(self._scratch)[: stop - start]

    def verified(self, version: int) -> None:
        """Commit the expected state, each of whose chunks was checked as it came; see `GlobalState.verified`."""
        self.commit(version)
