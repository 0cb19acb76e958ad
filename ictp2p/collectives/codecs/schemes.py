"""The registry of what may be asked for, and what each makes of the three kinds of chunks.

A *scheme* says how a participant's own *contribution* is written, how a *partial* sum that travels on up a tree, and
how the *result*. A partial is written finer than a contribution, or every hop would round as coarsely again: 2.8 %
instead of 1.4 % of error for int8 along a ring of 16. The root decodes its own result and keeps that, so all
participants hold the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from ictp2p.collectives.codecs.cast import Cast
from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.e3m0 import E3M0
from ictp2p.collectives.codecs.int8 import Int8
from ictp2p.collectives.codecs.topk import TopK
from ictp2p.collectives.codecs.topk2bit import KEPT, TopK2Bit
from ictp2p.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Scheme:
    """How each kind of chunk of one collective is written."""

    contribution: Codec
    partial: Codec
    result: Codec

    @property
    def block(self) -> int:
        """Elements at whose multiples shares and chunks must begin."""
        return max(self.contribution.block, self.partial.block, self.result.block)


def _same(codec: Callable[[], Codec]) -> Callable[[int], Scheme]:
    return lambda participants: Scheme(codec(), codec(), codec())


def _coarse(codec: Callable[[], Codec]) -> Callable[[int], Scheme]:
    return lambda participants: Scheme(codec(), Cast(torch.bfloat16), codec())


def _sparse(codec: Callable[[], Codec], participants: int) -> Scheme:
    """What n sparse contributions add up to is sent whole, as long as that is shorter than all elements."""
    summed: Codec = TopK(KEPT * participants, torch.float32)
    if summed.size(summed.block) >= Cast(torch.float32).size(summed.block):
        summed = Cast(torch.float32)
    return Scheme(codec(), summed, summed)


SCHEMES: Final[Mapping[str, Callable[[int], Scheme]]] = {
    "bfloat16": _same(lambda: Cast(torch.bfloat16)),
    "float16": _same(lambda: Cast(torch.float16)),
    "int8": _coarse(Int8),
    "e3m0": _coarse(E3M0),
    "topk": partial(_sparse, lambda: TopK(KEPT, torch.bfloat16)),
    "topk2bit": partial(_sparse, TopK2Bit),
}
"""By name: what makes the scheme for so many participants."""


def scheme(name: str, participants: int) -> Scheme | None:
    """Make the scheme `name` for so many participants, with scratch memory of its own; None for `none`.

    Raises:
        ConfigError: there is no such codec.
    """
    if name == "none":
        return None
    if name not in SCHEMES:
        raise ConfigError(f"codec {name!r} is not known: use none, {', '.join(SCHEMES)}")
    return SCHEMES[name](participants)
