"""A round whose tensors the peer's process may not reach where they are: results are copied back as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ictp2p.handle import Attempts, to_training
from ictp2p.handle.memory import copy_range


class StagedRound:
    """A contribution at the peer, whose results may have to be copied from where it can reach them."""

    def __init__(
        self, attempts: Attempts, outputs: Sequence[torch.Tensor], reached: Sequence[torch.Tensor], inputs: object
    ) -> None:
        self._attempts = attempts
        self._pairs = [(at, out) for at, out in zip(reached, outputs, strict=True)]
        self._staged = any(at is not out for at, out in self._pairs)
        self._inputs = inputs
        self._size = sum(out.numel() for out in outputs)
        self._arrived = 0

    def restarted(self, message: to_training.Restarted) -> None:
        """An attempt begins: nothing has arrived."""
        self._arrived = 0
        self._attempts.restarted(message.attempt, message.parts)

    def progress(self, start: int, stop: int) -> None:
        """Some elements are where the peer put them: have them where they belong, then tell."""
        self._copy(start, stop)
        self._arrived += stop - start
        self._attempts.progress(start, stop)

    def complete(self, answer: Callable[[bytes], None]) -> None:
        """All are."""
        if self._arrived < self._size:  # part of it is what we brought, of which nothing is told
            self._copy(0, self._size)
        self._attempts.complete(answer)

    def over(self) -> None:
        """The peer has let go of the memory."""
        self._attempts.over()

    @torch.no_grad()
    def _copy(self, start: int, stop: int) -> None:
        if self._staged:
            copy_range([at for at, _ in self._pairs], [out for _, out in self._pairs], start, stop)
