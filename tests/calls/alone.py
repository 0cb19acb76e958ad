"""A cluster of one worker, in a mesh whose rounds the test writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.values import StateRef
from ictp2p.types import ClusterId, PeerId

NOBODY: Any = None
CLUSTERS = (ClusterId("a"), ClusterId("b"))
ME, MATE, OTHER = PeerId("1" * 32), PeerId("2" * 32), PeerId("3" * 32)


class Alone:
    """A cluster of one worker, and a mesh whose rounds the test writes."""

    rank, size = 0, 1
    id, members = ME, (ME,)

    def __init__(self) -> None:
        self.kept: tuple[bytes, Tensor] | None = None
        self.attempts: list[tuple[Tensor, Sequence[tuple[int, int]]]] = []

    def empty(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def hold_answer(self, found: bytes, result: Tensor) -> None:
        self.kept = found, result

    def staging(self, elements: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(elements, dtype=dtype)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        pass

    def round(self, request: RoundRequest) -> Outcome:
        for number, (result, arriving) in enumerate(self.attempts, 1):
            request.restarted(number, ())
            for start, stop in arriving:
                request.outputs[0][start:stop] = result[start:stop]
                request.progress(start, stop)
        return Outcome(1, len(self.attempts), CLUSTERS, StateRef(0, b"", ()), request.finish(), 0.0, 0, 0, "", "")
