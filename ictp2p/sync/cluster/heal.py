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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from ictp2p.errors import ConfigError, LocalGroupError, MeshMismatch
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.turn import SAID, Turn
from ictp2p.sync.mesh import Group
from ictp2p.sync.optimizers.joint import kind
from ictp2p.sync.optimizers.reload import reload
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.local import local
from ictp2p.sync.state.manifest import DIGEST, config_digest, difference
from ictp2p.sync.state.pack import allocate, octets, pack, unpack

_LENGTH = struct.Struct("<Q")
_BROUGHT = struct.Struct("<q")
_NONE = -1
"""In a hello: nothing was brought along. See `GlobalState.brought`."""
_PROGRESS = 2 * DIGEST + _BROUGHT.size
"""Where in a hello the progress begins."""
_PIECE = 4 * 1024 * 1024
"""Bytes per broadcast: large enough to be fast, small enough that each has its own deadline."""
_MOST_SKELETON = 64 * 1024 * 1024


class Stateful(Protocol):
    """Anything with torch's two methods: a learning-rate schedule, a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """What it has to remember."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Go on from there."""
        ...


class Replica:
    """All that a worker holds, beside the global state, and that a newcomer of its cluster needs."""

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, carry: Sequence[Stateful]) -> None:
        """Name the parts.

        Args:
            model: parameters and buffers.
            inner: the inner optimizer; its state stays inside the cluster.
            carry: whatever else is to be carried over.
        """
        self._model, self._inner, self._carry = model, inner, tuple(carry)

    def describe(self) -> list[tuple[str, str]]:
        """What all workers of a cluster must have alike, in words, or none could become a copy of another."""
        groups = [str(len(group["params"])) for group in self._inner.param_groups]
        return [
            ("inner optimizer", f"{kind(self._inner)} of {' and '.join(groups)} parameters"),
            ("carried", ", ".join(type(each).__name__ for each in self._carry)),
            *((f"tensor {name}", str(list(tensor.shape))) for name, tensor in self._tensors().items()),
        ]

    def take(self) -> tuple[bytes, list[Tensor]]:
        """Its parts as a skeleton and tensors."""
        tree = {
            "what": self.describe(),
            "model": self._tensors(),
            "inner": self._inner.state_dict(),
            "carry": [c.state_dict() for c in self._carry],
        }
        return pack(tree, "this worker's state")

    @torch.no_grad()
    def load(self, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
        """Become a copy of another worker.

        Raises:
            ConfigError: it has other parts; the first difference is named. This one is as it was. Or the inner
                optimizer does not keep the dtypes of its state.
        """
        tree = unpack(skeleton, tensors)
        wrong = difference(self.describe(), tree.get("what", ()))
        if wrong is not None:
            raise ConfigError(f"what a worker holds beside the agreed state does not fit this one: {wrong}")
        for name, tensor in self._tensors().items():
            tensor.copy_(tree["model"][name])
        reload(self._inner, tree["inner"])
        for part, state in zip(self._carry, tree["carry"], strict=True):
            part.load_state_dict(state)

    def _tensors(self) -> dict[str, Tensor]:
        named = (*self._model.named_parameters(), *self._model.named_buffers())
        return {name: local(tensor) for name, tensor in named}


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
    body = _digest(skeleton, tensors)
    said = group.all_gather(turn.pack() + config_digest(items))
    turns = [Turn.unpack(each[:SAID]) for each in said]
    _compare(group, [each[SAID:] for each in said], items)
    brought = _BROUGHT.pack(_NONE if state.brought is None else state.brought)
    hellos = group.all_gather(body + state.contents + brought + progress.pack())
    found = [Progress.unpack(hello[_PROGRESS:]) for hello in hellos]
    ages = [_BROUGHT.unpack_from(hello, 2 * DIGEST)[0] for hello in hellos]
    source = max(range(group.size), key=lambda rank: (found[rank].order, not turns[rank].off, ages[rank], -rank))
    if len(set(hellos)) == 1:
        turn.healed(turns, source, group.rank)
        told("same")
        return False
    sends = group.rank == source
    told("peer_needs_state" if sends else "self_needs_state")
    if not sends:
        withdraw()
    received = share(group, skeleton, tensors, source)
    if len({hello[DIGEST : 2 * DIGEST] for hello in hellos}) > 1:
        share_state(group, state, source, found[source].version)
        if not sends:  # the source's next state may be under way
            state.release()
    state.confirm(found[source].version)
    state.brought = None if ages[source] == _NONE else ages[source]
    progress.become(found[source])
    changed = hellos[group.rank] != hellos[source]
    if changed:
        replica.load(*received)
    turn.healed(turns, source, group.rank)
    told("sent" if sends else "fetched")
    return changed


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


def broadcast_bytes(group: Group, data: bytes, source: int) -> bytes:
    """Copy a byte string of any length from one rank to all."""
    length = bytearray(_LENGTH.pack(len(data)))
    stream(group, [memoryview(length)], source)
    (count,) = _LENGTH.unpack(length)
    if count > _MOST_SKELETON:
        raise LocalGroupError(f"worker {group.members[source]} announced {count} bytes")
    held = bytearray(data) if group.rank == source else bytearray(count)
    stream(group, [memoryview(held)], source)
    return bytes(held)


def stream(group: Group, memory: Sequence[memoryview], source: int) -> None:
    """Copy memory, taken as one sequence of bytes, from one rank to all, piece by piece through staging."""
    total = sum(len(view) for view in memory)
    parts = _parts(memory)
    for start in range(0, total, _PIECE):
        staging = group.staging(min(_PIECE, total - start), torch.uint8)
        piece, held = staging.numpy().data, next(parts)
        if group.rank == source:
            _copy(held, piece, outward=False)
        group.broadcast(staging, source)
        if group.rank != source:
            _copy(held, piece, outward=True)


def _parts(memory: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """Cut the sequence into pieces, each a list of views."""
    piece: list[memoryview] = []
    room = _PIECE
    for view in memory:
        while view:
            piece.append(view[:room])
            view, room = view[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], _PIECE
    if piece:
        yield piece


def _copy(views: Sequence[memoryview], piece: memoryview, *, outward: bool) -> None:
    at = 0
    for view in views:
        there = piece[at : at + len(view)]
        if outward:
            view[:] = there
        else:
            there[:] = view
        at += len(view)


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
