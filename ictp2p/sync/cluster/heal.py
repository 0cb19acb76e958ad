"""Making the workers of a new group identical, whatever each had lived through before.

A broken collective may have succeeded for some of its members and failed for others; a newcomer has nothing but its
initial weights. So each new group compares first: progress (version of the global state, inner step, steps since the
last sync) and digests of all that a worker holds. If all agree, nothing is sent. Else the worker that is furthest is
copied to all, so that no step that anybody completed is lost, and a newcomer that was elected leader cannot overwrite
a training with its initial weights. Of workers who have not learnt of any version yet, that is who brought the newest
one along, from a checkpoint; what a leader brought that is older, or nothing, does not take its place. Among equals it
is who has its schedules where they should be (`turn`), and of these the lowest rank.

The copy is whole or not at all: it is received beside what the worker has, and loaded once it is complete, because
the source may die in the middle and leave this worker as the only one that knows anything.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
from torch import Tensor

from ictp2p.errors import LocalGroupError, MeshMismatch
from ictp2p.sync.cluster.broadcasts import broadcast_bytes, stream
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.cluster.turn import SAID, Turn
from ictp2p.sync.mesh import Group
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import DIGEST, config_digest, difference
from ictp2p.sync.state.pack import allocate, octets

_BROUGHT = struct.Struct("<q")
_NOTHING = -1
"""Nothing was brought along."""


def heal(
    group: Group,
    progress: Progress,
    replica: Replica,
    state: GlobalState,
    items: Sequence[tuple[str, str]],
    turn: Turn,
    told: Callable[[str], None] = lambda trigger: None,
    withdraw: Callable[[], None] = lambda: None,
) -> bool:
    """Make all workers of `group` identical; say whether this one was changed.

    Args:
        group: just built.
        progress: this worker's; overwritten with the source's.
        replica: this worker's.
        state: the global state as this worker has it.
        items: what must be equal in the cluster, in words.
        turn: whose it is here; told what becomes of it.
        told: told what comes about, in the triggers of `fsm.RECONFIG_PG`.
        withdraw: ends what this worker may have under way beside this thread, which writes to the state, before another
            worker's is received there.

    Raises:
        MeshMismatch: this worker trains something else than its leader; the message names the first difference.
        LocalGroupError: the group broke. This worker is as it was, or entirely healed.
    """
    if group.size == 1:
        turn.healed([turn], 0, 0)
        told("same")
        return False
    skeleton, tensors = replica.take()
    turns = _turns(group, turn, items)
    mine = _Held(_digest(skeleton, tensors), state.contents, state.brought, progress)
    held = [_Held.unpack(each) for each in group.all_gather(mine.pack())]
    source = max(range(group.size), key=lambda rank: (*held[rank].order(turns[rank]), -rank))
    theirs, sends = held[source], group.rank == source
    alike = all(each == theirs for each in held)
    if not alike:
        told("peer_needs_state" if sends else "self_needs_state")
        if not sends:
            withdraw()
        received = share(group, skeleton, tensors, source)
        if any(each.contents != theirs.contents for each in held):
            share_state(group, state, source, theirs.progress.version)
            if not sends:  # the source's next state may be under way
                state.release()
        state.confirm(theirs.progress.version)
        state.brought = theirs.brought
        progress.become(theirs.progress)
        if held[group.rank] != theirs:
            replica.load(*received)
    turn.healed(turns, source, group.rank)
    told("same" if alike else "sent" if sends else "fetched")
    return held[group.rank] != theirs


@dataclass(frozen=True, slots=True)
class _Held:
    """What one worker holds, as it says so to the others."""

    body: bytes
    """Digest of what is beside the global state."""
    contents: bytes
    """Digest of that."""
    brought: int | None
    """As `GlobalState.brought`."""
    progress: Progress

    def order(self, turn: Turn) -> tuple[tuple[int, ...], bool, int]:
        """Greater is further; between equals, whose schedule is where it should be, then who brought the newest."""
        return self.progress.order, not turn.off, _NOTHING if self.brought is None else self.brought

    def pack(self) -> bytes:
        """Its bytes."""
        brought = _BROUGHT.pack(_NOTHING if self.brought is None else self.brought)
        return self.body + self.contents + brought + self.progress.pack()

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` wrote."""
        (brought,) = _BROUGHT.unpack_from(data, 2 * DIGEST)
        progress = Progress.unpack(data[2 * DIGEST + _BROUGHT.size :])
        return cls(data[:DIGEST], data[DIGEST : 2 * DIGEST], None if brought == _NOTHING else brought, progress)


def _turns(group: Group, turn: Turn, items: Sequence[tuple[str, str]]) -> list[Turn]:
    """Learn whose turn it is at each worker, and see that all train the same."""
    said = group.all_gather(turn.pack() + config_digest(items))
    _compare(group, [each[SAID:] for each in said], items)
    return [Turn.unpack(each[:SAID]) for each in said]


def share(group: Group, skeleton: bytes, tensors: list[Tensor], source: int) -> tuple[bytes, list[Tensor]]:
    """Copy a skeleton and its tensors from one rank to all; each gets its own memory, and the source its own back."""
    sending = group.rank == source
    skeleton = broadcast_bytes(group, skeleton, source)
    received = tensors if sending else allocate(skeleton, 2**62)
    stream(group, [octets(tensor) for tensor in received], source)
    return skeleton, received


def share_state(group: Group, state: GlobalState, source: int, version: int) -> None:
    """Copy the committed global state from one rank to all, where it is verified and committed."""
    sending = group.rank == source
    digest = broadcast_bytes(group, state.digest, source)
    manifest = broadcast_bytes(group, state.manifest(digest) if sending else b"", source)
    if not sending:
        state.expect(manifest, digest)
    stream(group, [state.memory(committed=sending)], source)
    if not sending:
        state.verified(version)


def _compare(group: Group, digests: Sequence[bytes], items: Sequence[tuple[str, str]]) -> None:
    """Let a worker that trains something else than its leader find out what."""
    if len(set(digests)) == 1:
        return
    theirs = msgspec.msgpack.decode(
        broadcast_bytes(group, msgspec.msgpack.encode(list(items)), 0), type=tuple[tuple[str, str], ...]
    )
    wrong = difference(items, theirs)
    if wrong is not None:
        raise MeshMismatch(f"leader {group.members[0]} of this cluster trains something else: {wrong}")
    others = [m for m, d in zip(group.members, digests, strict=True) if d != digests[0]]
    raise LocalGroupError(f"workers {others} train something else than this cluster")


def _digest(skeleton: bytes, tensors: Sequence[Tensor]) -> bytes:
    hashed = hashlib.sha256(skeleton)
    for tensor in tensors:
        hashed.update(octets(tensor))
    return hashed.digest()
