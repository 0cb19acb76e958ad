"""Error feedback: what a codec leaves out of a contribution is kept, and added to the next one.

Before a round the kept residual is added to the vector, and the sum is put through the codec *here*, by whole blocks:
what comes out is the contribution, what it lacks the next residual. The collective then carries the contribution
without loss, whichever way its plan sends it, so the residual does not depend on plans, retries or who is a root.

A residual belongs to the state before a round as the contribution does: it moves on only when the round committed.
Over any rounds the sum of what was contributed and the last residual is the sum of what went in: exactly where
float32 adds exactly, since a value less its rounding is always a float32. (Karimireddy et al. 2019 show that with
this any codec that loses less than the whole converges as if it lost nothing.) With a decay below 1 what is old counts
less, because it was computed for parameters that are no more: Sarfi et al. 2025 keep 0.95 of it from round to round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ictp2p.collectives.codecs.codec import Codec

_PIECE = 256 * 1024
"""Elements put through the codec at once, down to a whole number of its blocks."""


class Feedback:
    """Keeps what `codec` leaves out of a vector of so many elements.

    Args:
        codec: with a block of at most 262144 elements.
        elements: of the vector.
        decay: how much of the residual comes back, in [0, 1].
    """

    def __init__(self, codec: Codec, elements: int, decay: float = 1.0) -> None:
        self._codec, self._decay = codec, decay
        self._piece = _PIECE // codec.block * codec.block
        self._residual = torch.zeros(elements, dtype=torch.float32, device="cpu")
        self._next = torch.zeros(elements, dtype=torch.float32, device="cpu")
        self._wire = torch.empty(codec.size(min(self._piece, elements)), dtype=torch.uint8, device="cpu")

    @property
    def residual(self) -> Tensor:
        """What committed contributions have left out so far."""
        return self._residual

    @property
    def pending(self) -> Tensor:
        """What takes its place if the contribution of the last `apply` is committed."""
        return self._next

    def apply(self, vector: Tensor) -> None:
        """Turn `vector` into the contribution, in place. Nothing is kept of it unless `commit` follows."""
        vector.add_(torch.mul(self._residual, self._decay, out=self._next))  # `alpha` may round once or twice
        for start in range(0, len(vector), self._piece):
            piece, left = vector[start : start + self._piece], self._next[start : start + self._piece]
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
