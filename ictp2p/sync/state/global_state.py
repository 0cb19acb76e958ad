"""The global state: what the mesh agrees on, held twice.

`committed` is what was agreed last; `tentative` is where the next one is computed, or received, beside it. `commit`
exchanges the two, `rollback` forgets the second. So a round that comes to nothing leaves the committed bytes exactly
as they were, without undo.

Reading chunks for other peers is safe from any thread: it names the digest it wants, and is refused once that is
neither the committed nor the sealed one. The sealed one, too, for the mesh may have agreed on it long before it is
committed here: a round under cover of training lands a phase later, as the next one is agreed on.
Whoever reads is the event loop, which must not wait while a thread commits; so nothing is locked. Commits are counted
where they begin and where they end, who writes to a sealed state breaks the seal before, and whatever was read is
thrown away if either happened meanwhile (a seqlock: Lameter, "Effective synchronization on Linux/NUMA systems", 2005).

A round that touches a fragment of the model costs what the fragment costs, in time and in memory (`halves`). Who
receives a whole state has both in full for as long as it compares the two, and then gives back the other one
(`release`).

A process may come to have another state: a second policy begins with one that holds nothing yet. What the first one
held may be the only copy that there is, so the second has it as its `predecessor`, and answers for it until it has come
as far itself; then it lets go of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from ictp2p.errors import MeshMismatch, StateError
from ictp2p.sync.state.draft import Draft
from ictp2p.sync.state.halves import Halves
from ictp2p.sync.state.manifest import (
    Entry,
    Manifest,
    by_content,
    check,
    describe,
    difference,
    digest_of,
    is_of_a_training,
    read,
)

if TYPE_CHECKING:
    from ictp2p.sync.mesh import Receiver

_T = TypeVar("_T")

_READS, _PAUSE = 1000, 0.01
"""How many times a reader beside training tries, and seconds between: a commit takes less, and rounds take longer."""


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
        self._halves = Halves(self.entries)
        self._manifest = self._next = Manifest(self.entries, self.settings, (), b"")
        self._manifest_bytes = b""
        self.draft: Draft | None = None
        """What is final of the next state, from `begin` until it is sealed, or written to by anybody else."""
        self._beside: dict[int, bytes] = {}
        """Digests of what chunks of the tentative half hold, as far as that is known without hashing them.

        It says which need not be fetched, and nothing else: `verified` believes none of it.
        """

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
        return by_content(self._next)

    def __repr__(self) -> str:
        return f"<GlobalState version {self.version} {self.digest.hex()[:16] or 'unsealed'} {self._halves.size} bytes>"

    @property
    def committed(self) -> Mapping[str, Tensor]:
        """The tensors that were agreed. Do not write to them."""
        return self._halves.committed

    @property
    def tentative(self) -> Mapping[str, Tensor]:
        """The tensors of what may be agreed next, all of them to be written to."""
        self.draft, self._beside = None, {}
        self._halves.touch(self._halves.everywhere())
        return self._halves.tentative

    @property
    def former(self) -> Mapping[str, Tensor]:
        """After a state was received or committed: the tensors of the one before it. Do not write to them."""
        return self._halves.former

    def begin(self, names: Collection[str] | None = None) -> Mapping[str, Tensor]:
        """Start the next state as a copy of the committed one.

        Args:
            names: the only tensors that will be written to; None for all.
        """
        self.sealed, self.draft, self._beside = b"", None, {}
        halves = self._halves
        halves.touch(halves.everywhere() if names is None else halves.under(names))
        halves.copy(halves.touched)
        self.draft = Draft(halves, [each.name for each in self.entries] if names is None else names)
        return halves.tentative

    def seal(self, counters: Mapping[str, int]) -> bytes:
        """Fix the tentative state and give its digest; write to it no more."""
        draft, self.draft = self.draft or Draft(self._halves, ()), None
        self._beside = found = draft.seal()
        chunks = b"".join(found.get(i) or self._manifest.chunk_digest(i) for i in range(self._halves.count))
        self._next = Manifest(self.entries, self.settings, tuple(sorted(counters.items())), chunks)
        self.sealed = self._name(self._next)
        return self.sealed

    def commit(self, version: int) -> None:
        """Make the sealed state the committed one; while that is done, neither is served."""
        encoded, digest = self._next.encode(), self._name(self._next)
        self._moves |= 1  # though one that failed has left it odd
        self._held = (version, digest)  # whoever asks for it now is refused, and asks again
        self._halves.exchange()
        self._beside = {i: self._manifest.chunk_digest(i) for i in self._halves.touched}
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
        self.sealed, self.draft = b"", None  # first: nobody is served what comes next
        self._next = self._manifest

    def release(self) -> None:
        """Give back the memory of the state before this one: nobody will ask for what was there.

        Not if the next one is sealed there: the mesh may have committed it, and nobody else may hold it.
        """
        if not self.sealed:
            self.draft, self._beside = None, {}
            self._halves.touch(set())

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

    def beside(self) -> GlobalState:
        """An empty state for another version of this one, of the content that all share."""
        return GlobalState(self.entries, self.settings)

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

    @property
    def may_be_agreed(self) -> bytes:
        """Digest of what is sealed here, or of the predecessor's, and was not taken over; from any thread."""
        before = self.predecessor
        return self.sealed or (b"" if before is None else before.sealed)

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
        raise StateError(
            f"the state could not be read whole: in each of {_READS} tries another version was committed meanwhile, "
            f"the last one {self.version}"
        )

    def memory(self, *, committed: bool) -> memoryview:
        """All bytes of one of the two states."""
        return self._halves.memory(committed=committed)

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
            return bytes(self.memory(committed=not (sealed and index in self._halves.touched))[start:stop])

    # From other peers.

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state; say which of its chunks are not here already.

        The tentative memory may hold part of it from an attempt that was broken off, and the committed one other parts.
        Which is known, and nothing is hashed for it: of a large state that would take longer than it is worth waiting.

        Args:
            encoded: its manifest, from anyone.
            digest: what was agreed.

        Raises:
            StateError: this is not the manifest that was agreed.
            MeshMismatch: the mesh trains something else; the message names the first difference.
        """
        manifest = self.same_training(encoded, digest)
        self.sealed, self.draft = b"", None  # first, as in `rollback`
        self._next = manifest
        halves = self._halves
        wanted = {i: manifest.chunk_digest(i) for i in range(manifest.count)}
        begun = {i for i, digest in wanted.items() if self._beside.get(i) == digest}
        unchanged = {i for i, digest in wanted.items() if self._manifest.chunk_digest(i) == digest} - begun
        halves.touch(halves.everywhere())
        halves.copy(unchanged)
        self._beside = {i: wanted[i] for i in begun | unchanged}
        return [i for i in wanted if i not in self._beside]

    def same_training(self, encoded: bytes, digest: bytes) -> Manifest:
        """Read a manifest, and check that it is that of the state that was agreed on, and of this training.

        Raises:
            StateError: this is not the manifest that was agreed.
            MeshMismatch: the mesh trains something else; the message names the first difference.
        """
        manifest = read(encoded)
        named = self._name(manifest)
        known = digest == named or is_of_a_training(manifest, digest)
        if known and (wrong := self._difference(manifest)) is not None:
            raise MeshMismatch(f"the mesh trains something else than this peer: {wrong}")
        if named != digest:
            raise StateError(f"manifest has digest {named.hex()[:16]}, agreed is {digest.hex()[:16]}")
        return manifest

    def destination(self, index: int) -> memoryview:
        """Where a chunk of the expected state goes. What lies there counts only after verification."""
        start, stop = self._next.chunk_range(index)
        return self.memory(committed=False)[start:stop]

    def take(self, index: int, data: memoryview) -> None:
        """Take a chunk of the expected state. It counts only after verification."""
        self.destination(index)[:] = data
        self._beside[index] = self._next.chunk_digest(index)

    def verified(self, version: int) -> None:
        """Commit the expected state.

        Raises:
            StateError: a chunk is missing or wrong.
        """
        found = self._halves.digests(range(self._next.count))
        wrong = next((i for i, digest in found.items() if digest != self._next.chunk_digest(i)), None)
        if wrong is not None:
            self._beside = found  # or the next fetch would think that it is here
            raise StateError(f"chunk {wrong} of state version {version} does not match its digest")
        self.commit(version)

    def _number(self, version: int) -> None:
        """What is agreed on as a version stands in for no other."""
        self.version = version
        if version:
            self.brought = None
        before = self.predecessor
        if before is not None and version >= before.version + bool(before.sealed):  # what is sealed may be agreed on
            self.predecessor = None

    def _elsewhere(self, digest: bytes) -> GlobalState | None:
        """The predecessor, if what is asked for is not here."""
        return None if digest in (self.digest, self.sealed) else self.predecessor

    def _name(self, manifest: Manifest) -> bytes:
        """What a state is agreed on by."""
        return by_content(manifest)

    def _difference(self, manifest: Manifest) -> str | None:
        """The first difference between this training and another."""
        return difference(describe(self.entries, self.settings), describe(manifest.entries, manifest.settings))

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
