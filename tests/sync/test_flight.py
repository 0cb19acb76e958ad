"""A round under way while training goes on: what is left of it once it has landed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from ictp2p.sync.flight import Flight
from ictp2p.sync.mesh import Mesh, RoundRequest, RoundResult
from ictp2p.sync.values import Spec, StateRef
from ictp2p.threads import Thread, Threads
from tests.garbage import LARGE, uncollected

NOTHING = StateRef(0, b"", ())


class Committed:
    """A mesh that commits whatever is brought."""

    def background(self, run: Callable[[], None]) -> Thread:
        return Threads().start(run, "a flight")

    def outer_round(self, request: RoundRequest) -> RoundResult:
        request.idle()
        return RoundResult(NOTHING, mine=True)


def nothing(*_: object) -> Any:
    """Take any callback's arguments."""


def fly() -> None:
    tensors = [torch.ones(LARGE)]
    spec = Spec("sync", "a round", "float32", 1, "avg", "none", b"")
    request = RoundRequest(spec, NOTHING, 1.0, tensors, tensors, nothing, nothing, nothing, nothing)
    assert Flight(cast("Mesh", Committed()), request).wait(nothing).mine


def test_a_round_that_landed_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: with each round of a fragment its tensors stayed until a collection happened to find them."""
    with uncollected() as left:
        fly()
    assert left == []
