"""What is asked of the mesh for a contribution."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from ictp2p.sync.policies.streaming import StreamingDiLoCo
from tests.sync.diloco_trace import Model

EVERY = 4


class Timed:
    """An inner step takes ten seconds, and a round three from its beginning to its result."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh
        self.requests: list[Any] = []
        self.trains, self.now, self.elsewhere = threading.get_ident(), 0.0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)

    def outer_round(self, request: Any) -> Any:
        self.requests.append(request)
        return self.mesh.outer_round(request)

    def clock(self) -> float:
        if threading.get_ident() == self.trains:
            return self.now
        self.elsewhere += 3.0
        return self.elsewhere


@pytest.mark.parametrize(("overlap", "slack"), [(0, [0.0] * 4), (2, [0.0, 14.0, 14.0]), (4, [0.0, 34.0, 34.0])])
def test_a_round_may_begin_as_late_as_it_still_ends_under_cover_of_training(
    make_world: Any, overlap: int, slack: list[float]
) -> None:
    """Of the seconds that its steps take twice as many are left as the last round took; a first one is not put off."""
    meshes: list[Timed] = []

    def body(mesh: Any) -> None:
        meshes.append(Timed(mesh))
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with StreamingDiLoCo(meshes[0], model, inner, None, EVERY, fragments=1, overlap=overlap):
            for _ in range(4 * EVERY):
                model.w.grad = model.w.detach().clone()
                meshes[0].now += 10.0
                inner.step()

    make_world(a=1).run(a_0=body)
    assert [request.slack for request in meshes[0].requests][: len(slack)] == slack
