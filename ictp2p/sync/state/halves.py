"""The memory of the state that was agreed, and of the one that may be next: two equal ranges, in chunks.

Each is one flat range of memory that the tensors are views of: a chunk of it is hashed, served, received and verified
where it lies.

A round that touches a fragment of the model costs what the fragment costs, in time and in memory. Only the chunks that
it touches are copied when the next state begins, hashed when it is sealed, and exchanged when it is committed (all of
them at once, where the round was of the whole model, by exchanging the two ranges). The other pages of the second range
go back to the system (`pages`) once another fragment begins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import each_alone
from ictp2p.sync.state.manifest import CHUNK, Entry, digest_of, extent, offsets
from ictp2p.sync.state.pages import Pages

_PARALLEL, _EACH = 16, 4
"""Chunks from which hashing them is shared among threads (`hashlib` releases the interpreter lock), and how many each
thread has at least."""


class Halves:
    """Those of one state; zeros to begin with.

    Args:
        entries: the tensors, in the order in which they lie in memory.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.size = extent(entries)
        """Bytes of each."""
        self.count = math.ceil(self.size / CHUNK)
        """Chunks of each."""
        self._halves = [Pages(self.size) for _ in range(2)]
        self._tensors = [_views(entries, half.bytes) for half in self._halves]
        self._places = {
            item.name: (start, start + item.nbytes) for item, start in zip(entries, offsets(entries), strict=True)
        }
        self._spans = {name: range(start // CHUNK, -(-stop // CHUNK)) for name, (start, stop) in self._places.items()}
        self.touched = self.everywhere()
        """The chunks of the second half that mean anything: after an exchange, what the first one held there before."""
        self._resident = set(self.touched)
        """The chunks of the second half that may take up memory."""

    @property
    def committed(self) -> Mapping[str, Tensor]:
        """The tensors of the first half."""
        return self._tensors[0]

    @property
    def tentative(self) -> Mapping[str, Tensor]:
        """Those of the second. What counts of them is what lies in chunks that were touched."""
        return self._tensors[1]

    @property
    def former(self) -> Mapping[str, Tensor]:
        """After an exchange: the tensors that were there before it."""
        now, then = self._tensors
        return {name: (then if self.touched.issuperset(span) else now)[name] for name, span in self._spans.items()}

    def memory(self, *, committed: bool) -> memoryview:
        """All bytes of one of the two."""
        return self._halves[0 if committed else 1].bytes.numpy().data

    def everywhere(self) -> set[int]:
        """All chunks."""
        return set(range(self.count))

    def under(self, names: Collection[str]) -> set[int]:
        """The chunks in which any part of these tensors lies."""
        return {index for name in names for index in self._spans[name]}

    def bytes_under(self, names: Collection[str]) -> dict[int, int]:
        """How many bytes of these tensors lie in each of those chunks."""
        found = Counter[int]()
        for name in names:
            found.update(dict(_cut(*self._places[name])))
        return found

    def chunks_of(self, view: Tensor) -> Iterator[tuple[int, int]]:
        """How many bytes of a part of a tensor of the second half, contiguous, lie in which chunks."""
        start = view.data_ptr() - self._halves[1].bytes.data_ptr()
        return _cut(start, start + view.nbytes)

    def touch(self, chunks: set[int]) -> None:
        """Have these chunks of the second half written to, and no others; the memory of all others is given back."""
        for start, stop in _runs(self._resident - chunks):
            self._halves[1].release(start * CHUNK, stop * CHUNK)
        self.touched, self._resident = chunks, set(chunks)

    def copy(self, chunks: Collection[int]) -> None:
        """Bring chunks from the first half to the second."""
        theirs, ours = self._halves
        runs = [slice(start * CHUNK, stop * CHUNK) for start, stop in _runs(chunks)]
        elementwise((Tensor.copy_, (ours.bytes[run], theirs.bytes[run])) for run in runs)

    def digests(self, chunks: Iterable[int]) -> dict[int, bytes]:
        """Those of chunks of the second half."""
        memory, found = self.memory(committed=False), dict[int, bytes]()

        def take(chunk: int) -> None:
            found[chunk] = digest_of(memory[chunk * CHUNK : (chunk + 1) * CHUNK])

        indices = sorted(chunks)
        if len(indices) < _PARALLEL:
            for chunk in indices:
                take(chunk)
        else:
            each_alone(((partial(take, chunk), ()) for chunk in indices), len(indices) // _EACH)
        return {chunk: found[chunk] for chunk in indices}

    def exchange(self) -> None:
        """Exchange what the two hold in the chunks that were touched."""
        if len(self.touched) == self.count:
            self._halves.reverse()
            self._tensors.reverse()
            return
        runs = [slice(start * CHUNK, stop * CHUNK) for start, stop in _runs(self.touched)]
        elementwise((_swap, [half.bytes[run] for half in self._halves]) for run in runs)


def _swap(one: Tensor, other: Tensor) -> None:
    before = one.clone()
    one.copy_(other)
    other.copy_(before)


def _views(entries: Sequence[Entry], held: Tensor) -> dict[str, Tensor]:
    views = {}
    for item, start in zip(entries, offsets(entries), strict=True):
        flat = held[start : start + item.nbytes].view(getattr(torch, item.dtype))
        views[item.name] = flat.view(item.shape)
    return views


def _cut(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The chunks in which bytes `[start, stop)` lie, and how many of them lie in each."""
    while start < stop:
        chunk = start // CHUNK
        end = min(stop, (chunk + 1) * CHUNK)
        yield chunk, end - start
        start = end


def _runs(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Consecutive indices as ranges `[start, stop)`."""
    start = stop = -1
    for index in sorted(indices):
        if index != stop:
            if stop > start:
                yield start, stop
            start = index
        stop = index + 1
    if stop > start:
        yield start, stop
