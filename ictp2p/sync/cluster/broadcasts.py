"""Bytes of any length from one worker of a cluster to all, piece by piece through the group's staging memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import torch

from ictp2p.errors import LocalGroupError
from ictp2p.sync.mesh import Group

_LENGTH = struct.Struct("<Q")
_PIECE = 4 * 1024 * 1024
"""Bytes per broadcast: large enough to be fast, small enough that each has its own deadline."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of a string whose length the source tells: a skeleton of all that a worker holds is the longest."""


def broadcast_bytes(group: Group, data: bytes, source: int) -> bytes:
    """Copy a byte string of any length from one rank to all."""
    length = bytearray(_LENGTH.pack(len(data)))
    stream(group, [memoryview(length)], source)
    (count,) = _LENGTH.unpack(length)
    if count > _MOST_BYTES:
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
