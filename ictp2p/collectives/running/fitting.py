"""Whether a plan, tensors and weights fit together: asked once, before anything is sent.

A plan was agreed among machines that saw none of the tensors, so here the two meet for the first time. What does not
fit is the caller's error and is named as such; found later, in the middle of a transfer, it would look like a fault of
another participant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch

from ictp2p.collectives.plan import GROUPS, Plan, check
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.sums import Weights
from ictp2p.errors import ConfigError

MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of the largest chunk: a connection holds two, whatever a plan says."""


def check_fit(plan: Plan, me: int, source: Flat, target: Flat) -> None:
    """See that a plan is one for these inputs, and that the outputs are cut as they are.

    Raises:
        ConfigError: it is not, or they are not.
    """
    check_plan(plan, me, source)
    if source.dtype != target.dtype:
        raise ConfigError(f"outputs of {target.dtype} differ from inputs of {source.dtype}")
    if source.same_cuts(target):
        return
    lengths = zip_longest(map(len, target.tensors), map(len, source.tensors), fillvalue=0)
    for number, (length, expected) in enumerate(lengths):
        if length != expected:
            raise ConfigError(f"outputs differ from inputs: number {number} has {length} elements, not {expected}")


def check_plan(plan: Plan, me: int, source: Flat) -> None:
    """See that a plan is one for these inputs, and that `me` is in it.

    Raises:
        ConfigError: it is not; the message says why.
    """
    alone = plan.kind != GROUPS  # groups have elements of their own, and nothing would be done with these
    problem = check(plan, plan.participants, source.elements) if alone else "each of its groups has a vector of its own"
    if problem:
        raise ConfigError(f"the plan does not fit: {problem}")
    if not 0 <= me < len(plan.participants):
        raise ConfigError(f"index {me} is not among {len(plan.participants)} participants")
    if plan.chunk * source.partial_itemsize > MAX_CHUNK_BYTES:
        raise ConfigError(f"chunks of {plan.chunk * source.partial_itemsize} bytes exceed {MAX_CHUNK_BYTES}")


def scaled(plan: Plan, weights: Sequence[float] | None, op: str, source: Flat) -> Weights:
    """Give what each participant's contribution is multiplied by; the same for all if `weights` is None.

    Raises:
        ConfigError: there are more or fewer weights than participants, or `op` has no such weights.
    """
    scale = Weights(weights if weights is not None else [1.0] * len(plan.participants), op, source)
    if len(scale.factors) != len(plan.participants):
        raise ConfigError(f"{len(scale.factors)} weights for {len(plan.participants)} participants")
    return scale


def placed(plan: Plan, me: int, outputs: Flat) -> list[tuple[int, torch.Tensor]]:
    """Find the place of each output in the vector.

    Raises:
        ConfigError: the outputs are not the shares that participant `me` is the root of.
    """
    pieces: list[tuple[int, torch.Tensor]] = []
    left = list(reversed(outputs.tensors))
    for share in plan.shares:
        position = share.start
        while share.root == me and position < share.stop:
            if not left:
                raise ConfigError(f"outputs do not fit elements [{position}, {share.stop}) of the plan")
            whole = left.pop()
            piece, rest = whole[: share.stop - position], whole[share.stop - position :]
            left += [rest] if len(rest) else []
            pieces.append((position, piece))
            position += len(piece)
    if left:
        raise ConfigError(f"{len(left)} outputs more than the plan has elements for participant {me}")
    return pieces
