"""What is done to each element of large tensors, by all cores that this process may use.

A round of a model of gigabytes subtracts, steps and copies all of it a few times. The tensors are cut into pieces that
fit into a processor's cache with what is computed from them, and each piece is done from first to last by one thread
that computes alone (see `torch_threads`). The bits are those of the same operations on whole tensors, as long as each
is of single elements and rounds as IEEE 754 has it: no powers, for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ictp2p.concurrency.torch_threads import Job, each_alone

_PIECE = 1024 * 1024
"""Most bytes of one tensor at a time."""
_THREAD = 4 * _PIECE
"""Fewest bytes for which a thread is started: what that takes is little beside them."""


@torch.no_grad()
def elementwise(jobs: Iterable[Job]) -> None:
    """Do jobs whose tensors have one shape, and that look at no element's neighbours, in pieces and several at a time.

    Args:
        jobs: they write to no memory that another one reads or writes. Those with a tensor on a device are done whole
            and at once, by this thread, in whose stream they are queued. The first error ends all, and is raised here.
    """
    pieces = list[Job]()
    for act, tensors in jobs:
        if all(tensor.device.type == "cpu" for tensor in tensors):
            pieces += ((act, piece) for piece in _pieces(tensors))
        else:
            act(*tensors)
    threads = sum(tensors[0].nbytes for _, tensors in pieces) // _THREAD
    if threads > 1:
        each_alone(pieces, threads)
    else:
        for act, tensors in pieces:
            act(*tensors)


def _pieces(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of one shape into the same pieces: of their memory where it is in order, else of their first axis."""
    cut = [tensor.detach() for tensor in tensors]
    if all(tensor.is_contiguous() for tensor in tensors):
        cut = [tensor.view(-1) for tensor in cut]
    rows = max(1, len(cut[0]) * _PIECE // max(1, cut[0].nbytes))
    return zip(*(torch.split(tensor, rows) for tensor in cut), strict=True)
