"""Averaging gradients inside a cluster, at every inner step.

Two exchanges. The *heads* first, a few bytes from each worker: its weight, its step, whether it wants the group to
change, with which options it steps (`likeness`), and which parameters have a gradient at all. Then one sum of
everything in a flat staging buffer, where each worker has put its gradients times its share of the weight. Knowing all
weights beforehand makes the average one multiplication (during the copy that is needed anyway) instead of a division
afterwards, keeps the weights exact, and lets everybody leave at the same step boundary when one head says so.

The gradients themselves are written only after the sum has succeeded. Whatever happens before leaves them as they
were, and the step can be retried in another group. Where the group has a vendor's library the staging buffer lies on
the device and nothing leaves it; else it is page-locked host memory, and the copies there and back overlap.
Half-precision gradients are summed in float32. Floating-point buffers that some worker has changed (BatchNorm's running
statistics) are averaged along, so that the workers stay identical. Those that nobody changes (masks, tables of angles)
are left alone: the mean of equal values is off by a rounding now and then, and after a million steps by many.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ictp2p.device_memory import settle
from ictp2p.errors import ConfigError, LocalGroupError
from ictp2p.sync.mesh import Group
from ictp2p.sync.optimizers.outer import wide
from ictp2p.sync.state.local import as_part_of, local

OPTIONS = 8
"""Bytes of the digest of what an optimizer is set to."""
_HEAD = struct.Struct(f"<dQBqq{OPTIONS}s")
_MOVES, _DUE, _ASKS = 1, 2, 4
NOTHING = -1
"""Instead of the number of a batch: this gradient is of none in particular."""


@dataclass(frozen=True, slots=True)
class Heads:
    """What the workers of a group say before a step."""

    share: float
    """This worker's part of the whole weight."""
    weight: float
    """The whole weight; 0 if nobody has anything to contribute."""
    moves: bool
    """Whether everybody leaves the group now."""
    due: bool
    """Whether the leader wants a round after this step."""
    present: tuple[bool, ...]
    """Which tensors take part: the gradients that some worker has, and the buffers that some worker has changed."""
    marks: tuple[int, ...] = ()
    """The batches that are in the average, by number, of those that have one."""
    left: tuple[int, ...] = ()
    """The batches that some worker leaves out, by number."""
    unlike: bool = False
    """Whether some worker steps with other options than another."""
    asks: bool = False
    """Whether some worker wants to know which."""


class Averager:
    """Averages the gradients of some parameters, and some buffers, over a group."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], buffers: Collection[Tensor]) -> None:
        """Take the tensors, in an order that is the same on every worker.

        Args:
            parameters: whose gradients are averaged, by name.
            buffers: floating-point tensors that are averaged themselves; looked at anew in each step.
        """
        self._names, self._parameters, self._buffers = tuple(parameters), tuple(parameters.values()), buffers
        self._common = [buffer.clone() for buffer in buffers]
        """The buffers as all workers had them last."""
        self._dtype = wide([t.dtype for t in (*self._parameters, *buffers)])

    @torch.no_grad()
    def agreed(self) -> None:
        """All workers hold the same."""
        pairs = zip(self._common, self._buffers, strict=True)
        self._common = [c.copy_(b) if (c.device, c.dtype) == (b.device, b.dtype) else b.clone() for c, b in pairs]

    def heads(
        self,
        group: Group,
        weight: float,
        step: int,
        *,
        moves: bool,
        due: bool,
        mark: int = NOTHING,
        left: int = NOTHING,
        options: bytes = bytes(OPTIONS),
        asks: bool = False,
    ) -> Heads:
        """Exchange heads.

        Args:
            group: the cluster.
            weight: of this worker's gradients.
            step: at which it stands.
            moves: whether it wants everybody to leave the group.
            due: whether it would have a round after this step; the leader's word counts.
            mark: which batch they are of: of two workers with the same one the first counts.
            left: which batch it leaves out.
            options: digest of what its optimizer is set to.
            asks: whether it would know what the others' are set to.

        Raises:
            LocalGroupError: the exchange failed, or the workers stand at different steps.
        """
        mine = [p.grad is not None for p in self._parameters]
        mine += _differ(self._buffers, self._common) if group.size > 1 else [False for _ in self._buffers]
        data = _HEAD.pack(weight, step, _MOVES * moves | _DUE * due | _ASKS * asks, mark, left, options) + _pack(mine)
        replies = group.all_gather(data)
        heads = [_HEAD.unpack_from(reply) for reply in replies]
        steps = [head[1] for head in heads]
        if len(set(steps)) > 1:
            raise LocalGroupError(f"workers stand at different steps: {dict(zip(group.members, steps, strict=True))}")
        marks = [head[3] if head[0] else NOTHING for head in heads]
        twice = [mark != NOTHING and mark in marks[:rank] for rank, mark in enumerate(marks)]
        weights = [0.0 if again else head[0] for head, again in zip(heads, twice, strict=True)]
        total, weight = sum(weights), weights[group.rank]
        flags = [_unpack(reply[_HEAD.size :], len(mine)) for reply in replies]
        present = (*map(any, zip(*flags, strict=True)),)
        moves, due = any(head[2] & _MOVES for head in heads), bool(heads[0][2] & _DUE)
        counted = tuple(mark for mark, again in zip(marks, twice, strict=True) if mark != NOTHING and not again)
        left_out = tuple(head[4] for head in heads if head[4] != NOTHING)
        unlike, asks = len({head[5] for head in heads}) > 1, any(head[2] & _ASKS for head in heads)
        share = weight / total if total else 0.0
        return Heads(share, total, moves, due, present, counted, left_out, unlike, asks)

    @torch.no_grad()
    def average(self, group: Group, heads: Heads) -> None:
        """Replace gradients and buffers by their weighted means.

        Raises:
            LocalGroupError: the sum failed. No gradient and no buffer was touched.
            ConfigError: a gradient is not dense, so it cannot be summed. A worker that is alone is told as well, at its
                first step: else whoever joins it later would end a training that has gone well for weeks.
        """
        self._check_layouts()
        if not heads.weight:
            for parameter in self._parameters:
                parameter.grad = None
            return
        if group.size == 1:
            return
        tensors = [t for t, here in zip((*self._parameters, *self._buffers), heads.present, strict=True) if here]
        parts = [local(tensor) for tensor in tensors]
        sizes = [part.numel() for part in parts]
        staging = group.staging(sum(sizes), self._dtype, group.device)
        views = [view.view(part.shape) for view, part in zip(torch.split(staging, sizes), parts, strict=True)]
        for tensor, view in zip(tensors, views, strict=True):
            _load(view, self._source(tensor), heads.share)
        settle(parts if staging.device.type == "cpu" else ())
        staging.mul_(heads.share)
        group.all_reduce(staging)
        for tensor, view in zip(tensors, views, strict=True):
            self._store(tensor, view)
        settle(parts if staging.device.type == "cpu" else ())
        self.agreed()

    def _check_layouts(self) -> None:
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                raise ConfigError(
                    f"the gradient of {name} has layout {parameter.grad.layout}, and cannot be averaged: use dense "
                    "ones. So must a worker that is alone in its cluster, which others may join"
                )

    def _source(self, tensor: Tensor) -> Tensor | None:
        if not isinstance(tensor, torch.nn.Parameter):
            return tensor
        return None if tensor.grad is None else local(tensor.grad)

    def _store(self, tensor: Tensor, mean: Tensor) -> None:
        if not isinstance(tensor, torch.nn.Parameter):
            tensor.copy_(mean, non_blocking=True)
        elif tensor.grad is None:
            # In the parameter's strides, as autograd makes it: a fused step walks both by their places in memory.
            tensor.grad = as_part_of(torch.empty_like(local(tensor)).copy_(mean), tensor)
        else:
            local(tensor.grad).copy_(mean, non_blocking=True)


def _load(view: Tensor, source: Tensor | None, share: float) -> None:
    # A worker without a share may hold anything, even NaN, which times zero would still be NaN.
    if source is None or share == 0.0:
        view.zero_()
    else:
        view.copy_(source, non_blocking=True)


@torch.no_grad()
def _differ(tensors: Collection[Tensor], others: Sequence[Tensor]) -> list[bool]:
    """Whether each differs from its other; devices are waited for once."""
    found = [torch.ne(tensor, other.to(tensor.device)).any() for tensor, other in zip(tensors, others, strict=True)]
    places = {each.device for each in found}
    told = {place: iter(torch.stack([e for e in found if e.device == place]).tolist()) for place in places}
    return [next(told[each.device]) for each in found]


def _pack(flags: Sequence[bool]) -> bytes:
    number = sum(1 << i for i, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def _unpack(data: bytes, count: int) -> list[bool]:
    number = int.from_bytes(data, "little")
    return [bool(number >> i & 1) for i in range(count)]
