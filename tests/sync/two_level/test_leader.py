"""What a leader does while the mesh cannot decide, or has lost the state that it decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import NoQuorum, RoundMissed, StateError
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.values import StateRef
from tests.sync.diloco_trace import Model

EVERY = 4


class Between:
    """Stands between a policy and its mesh."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh
        self.requests: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)

    def outer_round(self, request: Any) -> Any:
        self.requests.append(request)
        return self.mesh.outer_round(request)


class Impatient(Between):
    """Has no quorum for whoever does not wait."""

    def outer_round(self, request: Any) -> Any:
        self.requests.append(request)
        if not request.patient:
            raise NoQuorum("1 of 3 voters")
        return self.mesh.outer_round(request)


def train(mesh: Any, steps: int, **options: Any) -> DiLoCo:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=0.125)
    with DiLoCo(mesh, model, inner, None, EVERY, **options) as policy:
        for row in np.random.default_rng(1).integers(-3, 4, (steps, 3)).astype(np.float32):
            model.w.grad = torch.from_numpy(row) + model.w.detach()
            inner.step()
            inner.zero_grad()
    return policy


@pytest.mark.parametrize(
    ("options", "patient"),
    [
        ({"without_quorum": "wait"}, [True] * 5),
        ({"without_quorum": "continue", "most_skipped": 2}, [False, False, True, False, False]),
        ({"without_quorum": "continue", "most_skipped": 0}, [True] * 5),
    ],
)
def test_a_cluster_walks_alone_for_so_many_rounds_and_then_waits(
    make_world: Any, options: dict[str, Any], patient: list[bool]
) -> None:
    world, meshes = make_world(a=1), []

    def body(mesh: Any) -> DiLoCo:
        meshes.append(Impatient(mesh))
        return train(meshes[0], 5 * EVERY, **options)

    policy = world.run(a_0=body)["a_0"]
    assert [request.patient for request in meshes[0].requests] == patient
    assert policy.version == 1 + sum(patient)


def test_who_is_told_to_stop_does_not_wait(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        with pytest.raises(NoQuorum):
            train(Impatient(mesh), EVERY, without_quorum="stop")

    make_world(a=1).run(a_0=body)


class Forgetful(Between):
    """Its second round passed without us, and the version that came of it died; the mesh goes back to ours."""

    waits = 0
    ours: StateRef = StateRef(0, b"", ())

    def outer_round(self, request: Any) -> Any:
        self.requests.append(request)
        if len(self.requests) == 2:
            self.ours = request.base
            raise RoundMissed("round 2 was decided without cluster a")
        if len(self.requests) > 2:
            self.mesh.world.version += 2 * (len(self.requests) == 3)
        return self.mesh.outer_round(request)

    def decided_state(self) -> StateRef:
        if len(self.requests) == 2:
            return StateRef(self.ours.version + 1, b"nobody has this", ())
        return self.mesh.decided_state()

    def fetch_state(self, ref: StateRef, state: Any, idle: Any) -> None:
        raise StateError("no peer provides it")

    def missing_state(self, ref: StateRef, reason: str, idle: Any) -> StateRef:
        assert reason == "no peer provides it"
        self.waits += 1
        return ref if self.waits < 3 else StateRef(self.ours.version + 2, self.ours.digest, ())


def test_a_state_that_nobody_provides_is_waited_for_until_the_mesh_goes_back(make_world: Any) -> None:
    world, meshes = make_world(a=1), []

    def body(mesh: Any) -> DiLoCo:
        meshes.append(Forgetful(mesh))
        return train(meshes[0], 3 * EVERY)

    policy = world.run(a_0=body)["a_0"]
    mesh = meshes[0]
    assert mesh.waits == 3
    lost, brought = mesh.requests[1], mesh.requests[2]
    assert (brought.base.version, brought.base.digest) == (lost.base.version + 2, lost.base.digest)
    assert brought.weight == lost.weight + EVERY, "what was brought in vain is brought again"
    assert policy.version == brought.base.version + 1


def test_who_may_not_wait_says_that_the_state_is_gone(make_world: Any) -> None:
    class Lost(Forgetful):
        def missing_state(self, ref: StateRef, reason: str, idle: Any) -> StateRef:
            return ref

    def body(mesh: Any) -> None:
        with pytest.raises(StateError, match="no peer provides it"):
            train(Lost(mesh), 3 * EVERY, without_quorum="stop")

    make_world(a=1).run(a_0=body)
