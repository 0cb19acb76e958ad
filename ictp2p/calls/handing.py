"""What a call came to, and how a worker that has it hands it to those that missed it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from ictp2p.errors import LocalGroupError
from ictp2p.sync.cluster.broadcasts import broadcast_bytes, stream
from ictp2p.sync.mesh import Group
from ictp2p.wire import MALFORMED


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to, as it is handed to a worker that missed it."""

    fingerprint: bytes
    encoded: bytes
    """The result."""
    memory: Tensor
    """The tensors' bytes, flat."""
    failed: bool = False
    """Whether the call came to an error for all workers, which `encoded` holds as `telling` has it."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    fingerprint: bytes
    encoded: bytes
    nbytes: int
    failed: bool = False


def send(group: Group, source: int, answer: Answer) -> None:
    """Copy an answer to the other ranks, from the one that has it."""
    header = _Header(answer.fingerprint, answer.encoded, answer.memory.numel(), answer.failed)
    broadcast_bytes(group, msgspec.msgpack.encode(header), source)
    stream(group, [answer.memory.numpy().data], source)


def receive(group: Group, source: int) -> Answer:
    """Take the answer that a rank copies to all.

    Raises:
        LocalGroupError: the group broke, or what came does not decode.
    """
    try:
        header = msgspec.msgpack.decode(broadcast_bytes(group, b"", source), type=_Header)
    except MALFORMED as error:
        raise LocalGroupError(f"worker {group.members[source]} handed over what does not decode: {error}") from error
    memory = torch.empty(header.nbytes, dtype=torch.uint8, device="cpu")
    stream(group, [memory.numpy().data], source)
    return Answer(header.fingerprint, header.encoded, memory, header.failed)
