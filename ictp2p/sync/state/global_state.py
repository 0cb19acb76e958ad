"""The global state: what the mesh agrees on, held twice.

`committed` is what was agreed last; `tentative` is where the next one is computed, or received, beside it. `commit`
exchanges the two, `rollback` forgets the second. So a round that comes to nothing leaves the committed bytes exactly
as they were, without undo.

Each of the two is one flat range of memory that the tensors are views of: a chunk of it is hashed, served, received and
verified where it lies. Reading chunks for other peers is safe from any thread: it names the digest it wants, and is
refused once that is neither the committed nor the sealed one. The sealed one, too, for the mesh may have agreed on it
long before it is committed here: a round under cover of training lands a phase later, as the next one is agreed on.
Whoever reads is the event loop, which must not wait while a thread commits; so nothing is locked. Commits are counted
where they begin and where they end, who writes to a sealed state breaks the seal before, and whatever was read is
thrown away if either happened meanwhile (a seqlock: Lameter, "Effective synchronization on Linux/NUMA systems", 2005).

A round that touches a fragment of the model costs what the fragment costs, in time and in memory. Only the chunks that
it touches are copied when the next state begins, hashed when it is sealed, and exchanged when it is committed (all of
them at once, where the round was of the whole model, by exchanging the two ranges). The other pages of the second range
go back to the system (`pages`) once another fragment begins. Who receives a whole state has both in full for as long
as it compares the two, and then gives back the other one (`release`).

A process may come to have another state: a second policy begins with one that holds nothing yet. What the first one
held may be the only copy that there is, so the second has it as its `predecessor`, and answers for it until it has come
as far itself; then it lets go of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from ictp2p.errors import MeshMismatch, StateError
from ictp2p.sync.state.manifest import (
    CHUNK,
    Entry,
    Manifest,
    check,
    decode,
    describe,
    difference,
    digest_of,
    extent,
    offsets,
)
from ictp2p.sync.state.pages import Pages

if TYPE_CHECKING:
    from ictp2p.sync.mesh import Receiver

_T = TypeVar("_T")

_READS, _PAUSE = 1000, 0.01
"""How many times a reader beside training tries, and seconds between: a commit takes less, and rounds take longer."""
_PARALLEL = 64
"""Chunks from which hashing them is shared among threads (`hashlib` releases the interpreter lock)."""


class GlobalState:
    """Named tensors on the CPU, with a version, a digest and counters."""

    own = False
    """Whether each cluster holds another content under the same digest; see `sync.state.own`."""

    def __init__(self, entries: Sequence[Entry], settings: Sequence[tuple[str, str]] = ()) -> None:
        """Allocate the state, all zeros, at version 0.

        Args:
            entries: the tensors, in the order that counts everywhere.
            settings: what every worker must share, in words.

        Raises:
            ConfigError: others could not read what it consists of.
        """
        check(entries, settings)
        self.entries, self.settings = tuple(entries), tuple(settings)
        self.version = 0
        self.digest = b""
        """Digest of the committed state; empty until `seal` and `commit` gave it one."""
        self.sealed = b""
        """Digest of the tentative state while it is whole, from `seal` until somebody writes to it again."""
        self.counters: dict[str, int] = {}
        self.lineage = b""
        """Of which founding of a mesh its versions are."""
        self.brought: int | None = None
        """As which version what is held at version 0 may stand in for a state that was lost.

        0 if this mesh never agreed on it, or nobody can tell; None: as none at all.
        """
        self.predecessor: GlobalState | None = None
        """What this process held before, while that is further."""
        self._held = (0, b"")
        self._moves = 0
        """How many times a commit has begun or ended; odd while one is under way."""
        self._size = extent(self.entries)
        self._halves = [Pages(self._size) for _ in range(2)]
        self._tensors = [_views(self.entries, half.bytes) for half in self._halves]
        self._manifest = self._next = Manifest(self.entries, self.settings, (), b"")
        self._manifest_bytes = b""
        self._spans = {
            item.name: range(start // CHUNK, -(-(start + item.nbytes) // CHUNK))
            for item, start in zip(self.entries, offsets(self.entries), strict=True)
        }
        self._touched = self._everywhere()
        """The chunks of the second half that mean anything: after a commit, what the first one held there before."""
        self._resident = set(self._touched)
        """The chunks of the second half that may take up memory."""

    @property
    def incoming(self) -> Manifest:
        """The manifest of the state that is expected."""
        return self._next

    @property
    def contents(self) -> bytes:
        """Digest of all that the committed state holds."""
        return digest_of(self._manifest_bytes)

    @property
    def next_contents(self) -> bytes:
        """Digest of all that the sealed state holds."""
        return digest_of(self._next.encode())

    def __repr__(self) -> str:
        return f"<GlobalState version {self.version} {self.digest.hex()[:16] or 'unsealed'} {self._size} bytes>"

    @property
    def committed(self) -> Mapping[str, Tensor]:
        """The tensors that were agreed. Do not write to them."""
        return self._tensors[0]

    @property
    def tentative(self) -> Mapping[str, Tensor]:
        """The tensors of what may be agreed next, all of them to be written to."""
        self._touch(self._everywhere())
        return self._tensors[1]

    @property
    def former(self) -> Mapping[str, Tensor]:
        """After a state was received or committed: the tensors of the one before it. Do not write to them."""
        now, then = self._tensors
        return {name: (then if self._touched.issuperset(span) else now)[name] for name, span in self._spans.items()}

    def begin(self, names: Collection[str] | None = None) -> Mapping[str, Tensor]:
        """Start the next state as a copy of the committed one.

        Args:
            names: the only tensors that will be written to; None for all.
        """
        self.sealed = b""
        spans = self._spans.values() if names is None else [self._spans[name] for name in names]
        self._touch({index for span in spans for index in span})
        self._copy(self._touched)
        return self._tensors[1]

    def seal(self, counters: Mapping[str, int]) -> bytes:
        """Fix the tentative state and give its digest; write to it no more."""
        touched = sorted(self._touched)
        found = dict(zip(touched, _digests(self.memory(committed=False), touched), strict=True))
        chunks = b"".join(found.get(i) or self._manifest.chunk_digest(i) for i in range(self._count))
        self._next = Manifest(self.entries, self.settings, tuple(sorted(counters.items())), chunks)
        self.sealed = self._name(self._next)
        return self.sealed

    def commit(self, version: int) -> None:
        """Make the sealed state the committed one; while that is done, neither is served."""
        encoded, digest = self._next.encode(), self._name(self._next)
        self._moves |= 1  # though one that failed has left it odd
        self._held = (version, digest)  # whoever asks for it now is refused, and asks again
        self._exchange()
        self._manifest, self._manifest_bytes = self._next, encoded
        self.digest, self.counters = digest, dict(self._next.counters)
        self.sealed = b""
        self._number(version)
        self._moves += 1

    def confirm(self, version: int) -> None:
        """Take the mesh's word that the committed state is this version."""
        self._held = (version, self.digest)
        self._number(version)

    def rollback(self) -> None:
        """Forget the tentative state. The committed one was never touched."""
        self.sealed = b""  # first: nobody is served what comes next
        self._next = self._manifest

    def release(self) -> None:
        """Give back the memory of the state before this one: nobody will ask for what was there.

        Not if the next one is sealed there: the mesh may have committed it, and nobody else may hold it.
        """
        if not self.sealed:
            self._touch(set())

    def succeed(self, former: GlobalState) -> None:
        """Take the place of the state that this process held before; see `predecessor`.

        That may have had one itself, of a policy that ended before it had come anywhere.
        """
        further = [
            each
            for each in (former, former.predecessor)
            if each is not None and each is not self and each.version > self.version
        ]
        former.predecessor, self.predecessor = None, max(further, key=lambda each: each.version, default=None)
        if self.predecessor is not None:
            self.predecessor.release()

    def hand_on(self, digest: bytes, version: int, receiver: Receiver) -> None:
        """Have it received by another state of this process.

        Raises:
            StateError: `digest` is not to be had here.
            MeshMismatch: the other one is of another training; the message names the first difference.
        """
        for index in receiver.expect(self.manifest(digest), digest):
            receiver.take(index, memoryview(self.chunk(digest, index)))
        receiver.verified(version)

    def held(self) -> tuple[int, bytes]:
        """Version and digest of what other peers can have here, from any thread; no digest if that is nothing."""
        before = self.predecessor
        return self._answered_for() if before is None else before.held()

    def _answered_for(self) -> tuple[int, bytes]:
        """The same of this state alone."""
        version, digest = self._held
        if version:
            return version, digest
        return (0, b"") if self.brought is None else (self.brought, digest)

    def steadily(self, read: Callable[[], _T]) -> _T:
        """What `read` finds in the committed state, all of one version: read again if a commit came between.

        From any thread: a program may save or evaluate beside its training.

        Raises:
            StateError: so many commits came between that none of many attempts was whole.
        """
        for _ in range(_READS):
            moves = self._moves
            found = None if moves % 2 else read()
            if found is not None and self._moves == moves:
                return found
            time.sleep(_PAUSE)
        raise StateError(f"the state was committed anew whenever it was read, {_READS} times: version {self.version}")

    def memory(self, *, committed: bool) -> memoryview:
        """All bytes of one of the two states."""
        return self._halves[0 if committed else 1].bytes.numpy().data

    # For other peers, from any thread.

    def manifest(self, digest: bytes) -> bytes:
        """The manifest of the committed state or of the sealed one, or of the predecessor's, encoded.

        Raises:
            StateError: `digest` is of none, or the next one is about to be the committed one.
        """
        if (before := self._elsewhere(digest)) is not None:
            return before.manifest(digest)
        with self._served(digest) as sealed:
            return self._next.encode() if sealed else self._manifest_bytes

    def chunk(self, digest: bytes, index: int) -> bytes:
        """A copy of one chunk of the committed state or of the sealed one, or of the predecessor's.

        Raises:
            StateError: `digest` is of none, the next is about to be the committed one, or there is no such chunk.
        """
        if (before := self._elsewhere(digest)) is not None:
            return before.chunk(digest, index)
        with self._served(digest) as sealed:
            manifest = self._next if sealed else self._manifest
            if not 0 <= index < manifest.count:
                raise StateError(f"chunk {index} of {manifest.count} does not exist")
            start, stop = manifest.chunk_range(index)
            return bytes(self.memory(committed=not (sealed and index in self._touched))[start:stop])

    # From other peers.

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state; say which of its chunks are not here already.

        The tentative memory may hold part of it from an attempt that was broken off, and the committed one other parts.

        Args:
            encoded: its manifest, from anyone.
            digest: what was agreed.

        Raises:
            StateError: this is not the manifest that was agreed.
            MeshMismatch: the mesh trains something else; the message names the first difference.
        """
        manifest = self.same_training(encoded, digest)
        self.sealed = b""  # first, as in `rollback`
        self._next = manifest
        begun = sorted(self._touched)
        found = dict(zip(begun, _digests(self.memory(committed=False), begun), strict=True))
        self._touch(self._everywhere())
        lacking = [i for i in range(manifest.count) if found.get(i) != manifest.chunk_digest(i)]
        unchanged = {i for i in lacking if self._manifest.chunk_digest(i) == manifest.chunk_digest(i)}
        self._copy(unchanged)
        return [i for i in lacking if i not in unchanged]

    def same_training(self, encoded: bytes, digest: bytes) -> Manifest:
        """Read a manifest, and check that it is that of the state that was agreed on, and of this training.

        Raises:
            StateError: this is not the manifest that was agreed.
            MeshMismatch: the mesh trains something else; the message names the first difference.
        """
        manifest = self._read(encoded, digest)
        wrong = self._difference(manifest)
        if wrong is not None:
            raise MeshMismatch(f"the mesh trains something else than this peer: {wrong}")
        return manifest

    def destination(self, index: int) -> memoryview:
        """Where a chunk of the expected state goes. What lies there counts only after verification."""
        start, stop = self._next.chunk_range(index)
        return self.memory(committed=False)[start:stop]

    def take(self, index: int, data: memoryview) -> None:
        """Take a chunk of the expected state. It counts only after verification."""
        self.destination(index)[:] = data

    def verified(self, version: int) -> None:
        """Commit the expected state.

        Raises:
            StateError: a chunk is missing or wrong.
        """
        found = _digests(self.memory(committed=False), range(self._next.count))
        wrong = next((i for i, digest in enumerate(found) if digest != self._next.chunk_digest(i)), None)
        if wrong is not None:
            raise StateError(f"chunk {wrong} of state version {version} does not match its digest")
        self.commit(version)

    def _number(self, version: int) -> None:
        """What is agreed on as a version stands in for no other."""
        self.version = version
        if version:
            self.brought = None
        if self.predecessor is not None and version >= self.predecessor.version:
            self.predecessor = None

    def _elsewhere(self, digest: bytes) -> GlobalState | None:
        """The predecessor, if what is asked for is not here."""
        return None if digest in (self.digest, self.sealed) else self.predecessor

    def _name(self, manifest: Manifest) -> bytes:
        """What a state is agreed on by."""
        return digest_of(manifest.encode())

    def _read(self, encoded: bytes, digest: bytes) -> Manifest:
        """The manifest of the state that was agreed on as `digest`."""
        return decode(encoded, digest)

    def _difference(self, manifest: Manifest) -> str | None:
        """The first difference between this training and another."""
        return difference(describe(self.entries, self.settings), describe(manifest.entries, manifest.settings))

    @property
    def _count(self) -> int:
        return math.ceil(self._size / CHUNK)

    def _everywhere(self) -> set[int]:
        return set(range(self._count))

    def _touch(self, chunks: set[int]) -> None:
        """Have these chunks of the second half written to, and no others; the memory of all others is given back."""
        for start, stop in _runs(self._resident - chunks):
            self._halves[1].release(start * CHUNK, stop * CHUNK)
        self._touched, self._resident = chunks, set(chunks)

    def _copy(self, chunks: Collection[int]) -> None:
        """Bring chunks from the first half to the second."""
        theirs, ours = self._halves
        for start, stop in _runs(chunks):
            ours.bytes[start * CHUNK : stop * CHUNK].copy_(theirs.bytes[start * CHUNK : stop * CHUNK])

    def _exchange(self) -> None:
        """Exchange what the two halves hold in the chunks that were touched."""
        if len(self._touched) == self._count:
            self._halves.reverse()
            self._tensors.reverse()
            return
        for index in self._touched:
            one, other = (half.bytes[index * CHUNK : (index + 1) * CHUNK] for half in self._halves)
            before = one.clone()
            one.copy_(other)
            other.copy_(before)

    @contextmanager
    def _served(self, digest: bytes) -> Iterator[bool]:
        """What is read in this context is of the state `digest`, or it ends with an error. Say whether it is sealed."""
        moves = self._moves
        if moves % 2:
            raise StateError(f"version {self._held[0]} is about to take its place: ask again")
        sealed = bool(digest) and digest == self.sealed
        if digest != self.digest and not sealed:
            version, held = self.held()
            what = f"version {version} is {held.hex()[:16]}" if held else "no other can be had here"
            raise StateError(f"state {digest.hex()[:16]} is gone; {what}")
        yield sealed
        if self._moves != moves or (sealed and self.sealed != digest):
            raise StateError(f"{digest.hex()[:16]} was replaced while it was read; version {self._held[0]} is here")


def entry(name: str, tensor: Tensor) -> Entry:
    """Describe a tensor."""
    return Entry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _views(entries: Sequence[Entry], held: Tensor) -> dict[str, Tensor]:
    views = {}
    for item, start in zip(entries, offsets(entries), strict=True):
        flat = held[start : start + item.nbytes].view(getattr(torch, item.dtype))
        views[item.name] = flat.view(item.shape)
    return views


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


def _digests(memory: memoryview, indices: Sequence[int]) -> list[bytes]:
    pieces = [memory[i * CHUNK : (i + 1) * CHUNK] for i in indices]
    if len(pieces) < _PARALLEL:
        return [digest_of(piece) for piece in pieces]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(digest_of, pieces))
