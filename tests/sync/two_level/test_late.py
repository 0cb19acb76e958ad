"""Training that missed its round: brought again, brought with less weight, or forgotten. Traces in plain NumPy."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.samples.sampler import ElasticSampler

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE = 2, F(0.5)
DEADLINE = 20.0
START = np.array([1.0, -2.0, 4.0], F)


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-4, 5, (steps, 3)).astype(F)


def worker(data: Array, met: threading.Barrier, late: str) -> Callable[[Any], Any]:
    """Trains along given gradients; gives the parameters after each step, and the policy.

    Nobody begins the second phase before everybody has the first round behind it.
    """

    def body(mesh: Any) -> Any:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        trace = []
        with LocalSGD(mesh, model, inner, sync_every=EVERY, late=late) as policy:
            for step, row in enumerate(data):
                if step == EVERY:
                    met.wait(DEADLINE)
                model.w.grad = torch.from_numpy(row.copy())
                inner.step()
                trace.append(model.w.detach().numpy().copy())
        return trace, policy

    return body


def moves(data: Array) -> list[Array]:
    """What each phase of inner steps takes away."""
    return [RATE * part.sum(0) for part in data.reshape(-1, EVERY, 3)]


def averaged(deltas: list[Array], weights: list[float]) -> Array:
    total = sum(F(w) * d for w, d in zip(weights, deltas, strict=True))
    return np.asarray(total / F(sum(weights)), F)


@pytest.mark.parametrize(("late", "factor"), [("keep", 1.0), ("discount", 1 / np.sqrt(2.0))])
def test_what_missed_its_round_is_in_the_next_one_with_its_weight(make_world: Any, late: str, factor: float) -> None:
    """Round 1 goes on without y, whose first phase is brought to the very next round, round 2, instead."""
    world, data = make_world(x=1, y=1), [rows(0, 8), rows(1, 6)]
    world.absent = {1: {"y"}}
    met = threading.Barrier(2)
    x, y = (worker(d, met, late) for d in data)
    found = world.run(x_0=x, y_0=y)
    of_x, of_y = moves(data[0]), moves(data[1])
    agreed = START - averaged([of_x[0], of_y[0]], [2.0, 2.0])
    agreed = agreed - of_x[1]
    agreed = agreed - averaged([of_x[2], of_y[1]], [2.0, 2.0 * factor])
    np.testing.assert_array_equal(found["y_0"][0][3], agreed)
    agreed = agreed - averaged([of_x[3], of_y[2]], [2.0, 2.0])
    for name in ("x_0", "y_0"):
        trace, policy = found[name]
        np.testing.assert_array_equal(trace[-1], agreed)
        assert policy.progress.behind == [0]


def test_what_missed_its_round_is_forgotten_if_it_is_to_be(make_world: Any) -> None:
    """Then y looks on at the very next round, so that its next phase begins with that of the others."""
    world, data = make_world(x=1, y=1), [rows(0, 8), rows(1, 6)]
    world.absent = {1: {"y"}}
    met = threading.Barrier(2)
    x, y = (worker(d, met, "drop") for d in data)
    found = world.run(x_0=x, y_0=y)
    of_x, of_y = moves(data[0]), moves(data[1])
    agreed = START - averaged([of_x[0], of_y[0]], [2.0, 2.0])
    agreed = agreed - of_x[1]
    agreed = agreed - of_x[2]
    np.testing.assert_array_equal(found["y_0"][0][3], agreed)
    agreed = agreed - averaged([of_x[3], of_y[2]], [2.0, 2.0])
    for name in ("x_0", "y_0"):
        trace, policy = found[name]
        np.testing.assert_array_equal(trace[-1], agreed)
        assert policy.progress.weights == [0.0]


def test_what_an_eager_cluster_forgets_comes_with_no_later_round(make_world: Any) -> None:
    """The second phase of y misses its round, and the third was trained on top of it: both are gone, for good.

    The round that is due at once it has nothing for, and looks on.
    """

    def body(data: Array) -> Callable[[Any], Any]:
        def train(mesh: Any) -> Any:
            model = torch.nn.Module()
            model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
            inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
            plain = partial(Nesterov, lr=1.0, momentum=0.0)
            mesh.outer_round = meeting(mesh.outer_round)
            with EagerDiLoCo(mesh, model, inner, plain, sync_every=EVERY, late="drop") as policy:
                for row in data:
                    model.w.grad = torch.from_numpy(row.copy())
                    inner.step()
            return policy

        return train

    def meeting(outer_round: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Nobody begins the second round before everybody has the result of the first."""
        first = itertools.count()

        def bring(request: Any) -> Any:
            result = outer_round(request)
            if next(first) == 0:
                met.wait(DEADLINE)
            return result

        return bring

    met = threading.Barrier(2)
    world, data = make_world(x=1, y=1), [rows(0, 5 * EVERY), rows(1, 5 * EVERY)]
    world.absent = {1: {"y"}}
    found = world.run(x_0=body(data[0]), y_0=body(data[1]))
    of_x, of_y = moves(data[0]), moves(data[1])
    agreed = START - averaged([of_x[0], of_y[0]], [2.0, 2.0]) - of_x[1] - of_x[2]
    agreed = agreed - averaged([of_x[3], of_y[3]], [2.0, 2.0])
    for policy in found.values():
        np.testing.assert_array_equal(policy.global_parameters()["w"].numpy(), agreed)


def test_a_fragment_is_discounted_for_its_own_rounds_alone(make_world: Any) -> None:
    """Round 1 is of the second fragment; the first one's next contribution missed nothing, and has its whole weight."""
    seen: dict[str, list[float]] = {"x": [], "y": []}
    met = threading.Barrier(2)

    def noting(data: Array, name: str) -> Callable[[Any], Any]:
        def body(mesh: Any) -> Any:
            passed = mesh.outer_round
            mesh.outer_round = lambda request: (seen[name].append(request.weight), passed(request))[1]
            model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.zeros(1)) for n in ("first", "second")})
            inner = torch.optim.SGD(model.parameters(), lr=1.0)
            options = {"sync_every": 4, "fragments": [["first"], ["second"]], "overlap": 0, "late": "discount"}
            with StreamingDiLoCo(mesh, model, inner, **options) as policy:
                for step, row in enumerate(data):
                    if step == 2:
                        met.wait(DEADLINE)
                    for parameter, value in zip(model.parameters(), row, strict=False):
                        parameter.grad = torch.tensor([float(value)])
                    inner.step()
                return policy

        return body

    world = make_world(x=1, y=1)
    world.absent = {1: {"y"}}
    found = world.run(x_0=noting(rows(0, 10), "x"), y_0=noting(rows(1, 8), "y"))
    # By round: y brings 2 steps of the first, misses with 4 of the second, brings the 2 of the first that it has taken
    # since, then 6 of the second after one missed round, then 4 of the first.
    assert seen["y"] == [2.0, 4.0, 2.0, 6.0 / np.sqrt(2.0), 4.0]
    assert found["y_0"].digest() == found["x_0"].digest()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quorum": 0.0}, "quorum 0.0"),
        ({"quorum": 1.5}, "quorum 1.5"),
        ({"quorum": float("nan")}, "quorum nan"),
        ({"spread": -1.0}, "spread -1.0"),
        ({"spread": float("inf")}, "spread inf"),
        ({"late": "never"}, "late 'never'"),
        ({"late": "drop", "sampler": ElasticSampler(8, 2)}, "lose samples"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=message):
        DiLoCo(None, model, torch.optim.SGD(model.parameters()), **options)  # type: ignore[arg-type]
