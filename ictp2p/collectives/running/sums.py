"""The arithmetic on the ranges of vectors (`flat`): contributions to a chunk, each with its weight, become one sum.

Native types are added by NumPy: one thread, no dispatcher, ufuncs that release the lock. The 16-bit floats have no
fast NumPy path (casts run at 0.2 to 1.4 GB/s), so torch converts them, and they are summed in float32: a partial sum
of theirs also travels as float32, or each hop of a chain would round again.

Sums are taken over participants in ascending order, our own in its place. Only the root's sum is ever used, so all
participants hold the same bits; the fixed order makes a star's result independent of who is the root as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import Context, copy_context
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from ictp2p.collectives.running.flat import NATIVE, Array, Flat
from ictp2p.errors import ConfigError

_COMBINE: dict[str, tuple[np.ufunc, float]] = {
    "avg": (np.add, 0.0),
    "sum": (np.add, 0.0),
    "product": (np.multiply, 1.0),
    "min": (np.minimum, math.inf),
    "max": (np.maximum, -math.inf),
    "band": (np.bitwise_and, 0.0),
    "bor": (np.bitwise_or, 0.0),
    "bxor": (np.bitwise_xor, 0.0),
}
"""How two terms become one, and what changes no term (where terms are widened; bits have no floats to be widened)."""
_LINE, _LONG = 64, 128 * 1024
"""Bytes of a line of the cache, and of ranges for which it pays to begin with one: that takes a call more."""
_WHOLE = 2**24
"""The whole numbers up to this are all float32."""
_BITWISE = frozenset({"band", "bor", "bxor"})
TORCH: dict[Any, Any] = {
    np.add: torch.add,
    np.multiply: torch.mul,
    np.minimum: torch.minimum,
    np.maximum: torch.maximum,
}


def check_op(op: str, dtype: torch.dtype) -> None:
    """See that tensors of a type can be reduced so.

    Raises:
        ConfigError: they cannot.
    """
    if op not in _COMBINE:
        raise ConfigError(f"op {op!r} is not one of {', '.join(_COMBINE)}")
    if op in _BITWISE and dtype.is_floating_point:
        raise ConfigError(f"{dtype} has no bits to reduce with op={op!r}")
    if op == "avg" and not dtype.is_floating_point:
        raise ConfigError(f"{dtype} cannot be averaged without rounding: reduce it with op='sum'")


class Weights:
    """What each contribution is multiplied by, and what the root divides by.

    Common factors of whole weights are dropped first, so equal weights cost no multiplication at all. Whatever the
    unit of the weights, no factor is beyond what float32 holds: all but small whole ones are divided by a power of two,
    which rounds nothing (`normed`).

    Raises:
        ConfigError: a weight is not positive and finite, or the operation does not suit the type.
    """

    def __init__(self, weights: Sequence[float], op: str, flat: Flat) -> None:
        check_op(op, flat.dtype)
        if any(not (math.isfinite(w) and w > 0) for w in weights):
            raise ConfigError(f"weights {tuple(weights)!r} must be positive and finite")
        self.factors = _reduced(weights) if op == "avg" else [1.0] * len(weights)
        self.divisor = math.fsum(self.factors) if op == "avg" else 1.0
        self.combine, self.neutral = _COMBINE[op]


class Adder:
    """Adds up the contributions to a chunk, on one participant.

    Args:
        inputs: our own contribution; never written, unless the outputs are the same memory.
        outputs: where results go; they may be the inputs.
        weights: factors and divisor.
        me: our index.
        chunk: the most elements in a chunk.
        in_place: inputs and outputs share memory.
    """

    def __init__(
        self, inputs: Flat, outputs: Flat, weights: Weights, me: int, chunk: int, *, in_place: bool = False
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._weights = weights
        self._me = me
        self._combine = weights.combine
        self._in_place = in_place
        self._scratch: Array = np.empty(0, np.float32)
        self._quiet = _quiet()
        self._wide = torch.empty(
            min(chunk, inputs.elements) if inputs.widened else 0, dtype=torch.float32, device="cpu"
        )

    def partial(self, start: int, stop: int, staged: dict[int, tuple[memoryview, bool]], room: memoryview) -> None:
        """Add our own elements and the staged ones (participant -> bytes, raw or not) up in `room`."""
        if self._inputs.widened:
            self._add_widened(torch.frombuffer(room, dtype=torch.float32), start, stop, staged)
            return
        own, total = self._inputs.arrays(start, stop), np.frombuffer(room, NATIVE[self._inputs.dtype])
        ends = accumulate(map(len, own), initial=0)
        self._add_native([total[a:b] for a, b in pairwise(ends)], own, staged, apart=True)

    def finish(self, start: int, stop: int, staged: dict[int, tuple[memoryview, bool]]) -> None:
        """Add up as `partial` does, divide once, and leave the result in the outputs."""
        divisor = self._weights.divisor
        if not self._inputs.widened:
            own, targets = cut_alike(self._inputs.arrays(start, stop), self._outputs.arrays(start, stop))
            self._add_native(targets, own, staged, apart=not self._in_place)
            if divisor != 1:
                for array in self._outputs.arrays(start, stop):
                    self._quiet.run(np.divide, array, divisor, out=array)
            return
        wide = self._wide[: stop - start]
        self._add_widened(wide, start, stop, staged)
        offset = 0
        for target in self._outputs.ranges(start, stop):
            total = wide[offset : offset + len(target)]
            target.copy_(total.div_(divisor) if divisor != 1 else total)
            offset += len(target)

    def _add_native(
        self,
        targets: Sequence[Array],
        own: Sequence[Array],
        staged: dict[int, tuple[memoryview, bool]],
        *,
        apart: bool,
    ) -> None:
        """Add up in `targets`, which are cut as `own` is; `apart`: they are not the same memory."""
        factors, dtype = self._weights.factors, NATIVE[self._inputs.dtype]
        terms: list[tuple[Array | None, float]] = []
        for node in sorted((*staged, self._me)):
            if node == self._me:
                terms.append((None, factors[node]))
            else:
                body, raw = staged[node]
                terms.append((np.frombuffer(body, dtype), factors[node] if raw else 1.0))
        self._quiet.run(self._add_pieces, targets, own, terms, apart)

    def _add_pieces(
        self, targets: Sequence[Array], own: Sequence[Array], terms: Sequence[tuple[Array | None, float]], apart: bool
    ) -> None:
        """Add up piece by piece; each term reaches over all pieces, None stands for our own."""
        end = 0
        for target, mine in zip(targets, own, strict=True):
            start, end = end, end + len(mine)
            piece = [
                ((mine if apart else self._kept(mine, before)) if term is None else term[start:end], factor)
                for before, (term, factor) in enumerate(terms)
            ]
            if head := _before_line(target):
                self._sum(target[:head], [(term[:head], factor) for term, factor in piece])
                target, piece = target[head:], [(term[head:], factor) for term, factor in piece]
            self._sum(target, piece)

    def _kept(self, mine: Array, before: int) -> Array:
        """Copy our own term aside if it lies where the sum is made and `before` others come first."""
        if before == 0 or (before == 1 and set(self._weights.factors) == {1.0}):
            return mine
        return mine.copy()

    def _sum(self, target: Array, terms: list[tuple[Array, float]]) -> None:
        combine = self._combine
        first, factor = terms[0]
        second, other = terms[1] if len(terms) > 1 else (first, 0.0)
        if factor == other == 1:
            combine(first, second, out=target)
            terms = terms[2:]
        else:
            np.multiply(first, target.dtype.type(factor), out=target)
            terms = terms[1:]
        for term, factor in terms:
            combine(target, self._scaled(term, factor), out=target)

    def _scaled(self, term: Array, factor: float) -> Array:
        if factor == 1:
            return term
        if len(self._scratch) < len(term) or self._scratch.dtype != term.dtype:
            self._scratch = np.empty(len(term), term.dtype)
        scaled: Array = np.multiply(term, term.dtype.type(factor), out=self._scratch[: len(term)])
        return scaled

    def _add_widened(
        self, total: torch.Tensor, start: int, stop: int, staged: dict[int, tuple[memoryview, bool]]
    ) -> None:
        total.fill_(self._weights.neutral)
        for node in sorted([*staged, self._me]):
            factor = self._weights.factors[node]
            if node == self._me:
                offset = 0
                for mine in self._inputs.ranges(start, stop):
                    self._widen(total[offset : offset + len(mine)], mine, factor)
                    offset += len(mine)
                continue
            body, raw = staged[node]
            dtype = self._inputs.dtype if raw else torch.float32
            self._widen(total, torch.frombuffer(body, dtype=dtype), factor if raw else 1.0)

    def _widen(self, total: torch.Tensor, term: torch.Tensor, factor: float) -> None:
        if self._combine is np.add:
            total.add_(term, alpha=factor)
        else:
            TORCH[self._combine](total, term.to(torch.float32), out=total)


def cut_alike(some: list[Array], others: list[Array]) -> tuple[list[Array], list[Array]]:
    """Cut two lists of arrays, of as many elements, each where the other one is cut as well."""
    ends, other_ends = (list(accumulate(map(len, arrays))) for arrays in (some, others))
    if ends == other_ends:
        return some, others
    everywhere = sorted({*ends, *other_ends})
    return _cut(some, everywhere), _cut(others, everywhere)


def _cut(arrays: Sequence[Array], ends: Sequence[int]) -> list[Array]:
    """Cut arrays, seen as one, at these elements, among which their own ends are."""
    pieces, begin, number = list[Array](), 0, 0
    for start, end in pairwise([0, *ends]):
        pieces.append(arrays[number][start - begin : end - begin])
        if end == begin + len(arrays[number]):
            begin, number = end, number + 1
    return pieces


def _quiet() -> Context:
    """Make a context in which an overflow is an infinity, as with torch, and not a warning."""
    context = copy_context()
    context.run(partial(np.seterr, over="ignore", invalid="ignore"))
    return context


def normed(factors: Sequence[float]) -> list[float]:
    """Divide by the power of two after which the largest is in (1/2, 1]: no sum of n terms exceeds n of them."""
    fraction, exponent = math.frexp(max(factors))
    return [math.ldexp(factor, (fraction == 0.5) - exponent) for factor in factors]


def _reduced(weights: Sequence[float]) -> list[float]:
    if len(set(weights)) == 1:
        return [1.0] * len(weights)
    if not all(float(w).is_integer() for w in weights):
        return normed(weights)
    divisor = math.gcd(*(int(w) for w in weights))
    whole = [int(w) // divisor for w in weights]
    return [float(w) for w in whole] if sum(whole) <= _WHOLE else normed(weights)


def _before_line(target: Array) -> int:
    """How many elements of a long range come before the first line of the cache that it has to itself.

    Vectors that are written across two lines each take a fifth longer, and a list of tensors is cut anywhere.
    """
    return 0 if target.nbytes < _LONG else -target.__array_interface__["data"][0] % _LINE // target.itemsize
