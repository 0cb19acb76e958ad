"""Error feedback: what a codec leaves out of a contribution is kept, and added to the next one.

Before a round the kept residual is added to the vector, and the sum is put through the codec *here*, by whole blocks:
what comes out is the contribution, what it lacks the next residual. The collective then carries the contribution
without loss, whichever way its plan sends it, so the residual does not depend on plans, retries or who is a root.

A residual belongs to the state before a round as the contribution does: it moves on only when the round committed.
Over any rounds the sum of what was contributed and the last residual is the sum of what went in: exactly where
float32 adds exactly, since a value less its rounding is always a float32. (Karimireddy et al. 2019 show that with
this any codec that loses less than the whole converges as if it lost nothing.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ictp2p.collectives.codecs.codec import Codec

_PIECE = 256 * 1024
"""Elements put through the codec at once: a multiple of every codec's block."""


class Feedback:
    """Keeps what `codec` leaves out of a vector of so many elements."""

    def __init__(self, codec: Codec, elements: int) -> None:
        self._codec = codec
        self._residual = torch.zeros(elements)
        self._next = torch.zeros(elements)
        self._wire = torch.empty(codec.size(min(_PIECE, elements)), dtype=torch.uint8)

    @property
    def residual(self) -> Tensor:
        """What committed contributions have left out so far."""
        return self._residual

    def apply(self, vector: Tensor) -> None:
        """Turn `vector` into the contribution, in place. Nothing is kept of it unless `commit` follows."""
        vector.add_(self._residual)
        for start in range(0, len(vector), _PIECE):
            piece, left = vector[start : start + _PIECE], self._next[start : start + _PIECE]
            wire = self._wire[: self._codec.size(len(piece))]
            left.copy_(piece)
            self._codec.encode(piece, wire)
            self._codec.decode(wire, piece)
            left.sub_(piece).nan_to_num_(0.0, 0.0, 0.0)  # what diverged was sent; kept, it would poison for ever

    def commit(self) -> None:
        """The round of the last `apply` was committed with the contribution in it."""
        self._residual, self._next = self._next, self._residual

    def clear(self) -> None:
        """Forget the residual: the state is another one now."""
        self._residual.zero_()
