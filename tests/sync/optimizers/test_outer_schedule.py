"""A schedule of the outer learning rate goes by the agreed number of rounds, and nothing else moves a setting."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.mirror import MirrorDescent
from ictp2p.sync.optimizers.outer import Nesterov, Outer
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from tests.sync.diloco_trace import START, F, Model, rows, train

EVERY = 2
DEADLINE = 20.0


def halved(rounds: int) -> float:
    return float(0.5**rounds)


@pytest.mark.parametrize("made", [torch.optim.SGD, Nesterov, torch.optim.Adam, DelayedNesterov, MirrorDescent])
@pytest.mark.parametrize("lr", [1.0, torch.tensor(1.0)])
def test_the_factor_of_a_round_is_that_of_its_step_alone(made: Any, lr: Any) -> None:
    """From one state, a step at a factor moves by that factor of what a step at 1 does."""
    moves = []
    for rounds in (0, 3, 0):
        param = torch.nn.Parameter(torch.ones(2))
        given = made([param], lr=lr)
        outer = Outer(given, {"w": param}, schedule=halved)
        tensors = {"w": torch.ones(2), **{e.name: torch.zeros(e.shape) for e in outer.entries}}
        outer.step(tensors, {"w": torch.full((2,), 0.5)}, rounds=rounds)
        moves.append(1.0 - tensors["w"].double())
        outer.check()
        assert given.param_groups[0]["lr"] == 1.0
    torch.testing.assert_close(moves[0], 8 * moves[1], rtol=1e-6, atol=0)
    assert torch.equal(moves[0], moves[2])


def test_by_hand() -> None:
    """With momentum 1/2 and gradient 1: 1 + 1/2 at rate 1, then b = 3/2 and 1 + 3/4 at rate 1/8."""
    param = torch.nn.Parameter(torch.zeros(1))
    given = torch.optim.SGD([param], lr=2.0, momentum=0.5, nesterov=True)
    outer = Outer(given, {"w": param}, schedule=lambda rounds: (0.5, 0.0625)[min(rounds, 1)])
    tensors = {"w": torch.zeros(1), **{e.name: torch.zeros(1) for e in outer.entries}}
    found = []
    for rounds in (0, 1):
        outer.step(tensors, {"w": torch.ones(1)}, rounds=rounds)
        found.append(float(tensors["w"]))
    assert found == [-1.5, -1.71875]


def worker(data: Any, met: threading.Barrier, asked: list[int]) -> Callable[[Any], Any]:
    """Nobody begins the second phase before everybody has the first round behind it."""

    def schedule(rounds: int) -> float:
        asked.append(rounds)
        return halved(rounds)

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        with DiLoCo(mesh, model, inner, outer, EVERY, outer_schedule=schedule) as policy:
            asked.clear()
            for step, row in enumerate(data):
                if step == EVERY:
                    met.wait(DEADLINE)
                train(model, inner, [row])
            assert policy.rounds == policy.version - 1

    return body


def test_a_cluster_that_was_late_steps_at_the_rate_of_the_round_and_not_of_its_loop(make_world: Any) -> None:
    """Regression: it brings its training to the next round in the same inner step, at the rate of an older version."""
    world = make_world(x=1, y=1)
    world.absent = {1: {"y"}}
    met, asked = threading.Barrier(2), {"x": list[int](), "y": list[int]()}
    world.run(x_0=worker(rows(0, 8), met, asked["x"]), y_0=worker(rows(1, 8), met, asked["y"]))
    assert asked == {"x": [0, 1, 2, 3], "y": [0, 2, 3, 4]}


def test_one_step_to_the_bit_in_numpy(make_world: Any) -> None:
    data = rows(0, 2 * EVERY)

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, outer_schedule=halved):
            return train(model, inner, data)

    found = make_world(a=1).run(a_0=body)["a_0"][-1]
    base, buffer = START.copy(), np.zeros(3, F)
    for rate, part in zip((0.7, 0.35), data.reshape(2, EVERY, 3), strict=True):
        w = base.copy()
        for row in part:
            w = w - F(0.125) * (row + w)
        delta = base - w
        buffer = buffer * F(0.9) + delta
        base = base - (buffer * F(0.9) + delta) * F(rate)
    np.testing.assert_array_equal(found, base)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DiLoCo, {}),
        (StreamingDiLoCo, {"fragments": 1, "overlap": 1}),
        (EagerDiLoCo, {}),
        (SparseDiLoCo, {}),
        (DiPaCo, {"modules": ["w"]}),
    ],
)
def test_every_policy_that_takes_an_outer_optimizer_follows_it(make_world: Any, kind: Any, options: Any) -> None:
    """At factor 0 the agreed parameters stay where they are, whatever is trained."""

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        schedule = lambda rounds: float(rounds < 2)  # noqa: E731
        with kind(mesh, model, inner, sync_every=4, outer_schedule=schedule, **options) as policy:
            first = None
            for row in rows(0, 18):
                train(model, inner, [row])
                if policy.rounds >= 2:
                    first = policy.global_parameters()["w"] if first is None else first
                    assert torch.equal(policy.global_parameters()["w"], first)
            assert first is not None
            assert not torch.equal(first, torch.from_numpy(START))
            return policy.rounds

    assert make_world(a=1).run(a_0=body)["a_0"] > 2


def test_it_goes_on_from_a_checkpoint_where_versions_begin_anew(make_world: Any, tmp_path: pathlib.Path) -> None:
    """Regression: a rate by the version began anew with the mesh."""
    file, asked = tmp_path / "at.safetensors", list[int]()

    def schedule(rounds: int) -> float:
        asked.append(rounds)
        return halved(rounds)

    def body(steps: int, start: bool) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model = Model()
            inner = torch.optim.SGD(model.parameters(), lr=0.125)
            policy = DiLoCo(mesh, model, inner, None, EVERY, outer_schedule=schedule)
            if start:
                policy.load(file)
            before = policy.rounds
            asked.clear()
            with policy:
                train(model, inner, rows(0, steps))
                policy.save(file)
            return before, list(asked), policy.rounds, policy.version

        return run

    assert make_world(a=1).run(a_0=body(6, False))["a_0"] == (0, [0, 1, 2], 3, 4)
    assert make_world(a=1).run(a_0=body(4, True))["a_0"] == (3, [3, 4], 5, 3)


@pytest.mark.parametrize(
    ("made", "key", "value"),
    [
        (torch.optim.SGD, "lr", 0.5),
        (torch.optim.SGD, "momentum", 0.0),
        (torch.optim.SGD, "nesterov", False),
        (torch.optim.SGD, "weight_decay", 0.1),
        (Nesterov, "lr", float("nan")),
        (Nesterov, "momentum", 0.5),
        (Nesterov, "lr", None),
    ],
)
def test_a_setting_that_is_changed_by_hand_is_refused_by_name(make_world: Any, made: Any, key: str, value: Any) -> None:
    """Regression: a rate was followed, whenever the loop came to set it, and momentum not at all."""

    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        outer = made(model.parameters(), lr=1.0, momentum=0.9, nesterov=True)
        with DiLoCo(mesh, model, inner, outer, EVERY) as policy:
            train(model, inner, rows(0, EVERY))
            outer.param_groups[0][key] = value
            train(model, inner, rows(0, EVERY - 1))
            with pytest.raises(ConfigError, match=rf"outer {key} of group 0 is {value!r} now, and was"):
                train(model, inner, rows(0, 1))
            assert policy.rounds == 1

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize("made", [torch.optim.SGD, Nesterov, torch.optim.Adam])
def test_a_rate_that_is_moved_while_a_round_is_under_way_is_not_stepped_with(made: Any) -> None:
    moved = []
    for rate in (1.0, 0.5):
        param = torch.nn.Parameter(torch.ones(2))
        given = made([param], lr=1.0)
        outer = Outer(given, {"w": param}, schedule=halved)
        tensors = {"w": torch.ones(2), **{e.name: torch.zeros(e.shape) for e in outer.entries}}
        given.param_groups[0]["lr"] = rate
        outer.step(tensors, {"w": torch.ones(2)}, rounds=1)
        moved.append(tensors["w"])
        assert given.param_groups[0]["lr"] == rate
    assert torch.equal(*moved)


def test_a_group_that_is_added_is_refused() -> None:
    param = torch.nn.Parameter(torch.zeros(1))
    given = torch.optim.SGD([param], lr=1.0)
    outer = Outer(given, {"w": param})
    outer.check()
    torch.optim.lr_scheduler.StepLR(given, 10)
    outer.check()
    given.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ConfigError, match="outer has 2 groups, not 1"):
        outer.check()


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (0.5, r"outer_schedule 0\.5 is not callable: give a function that takes the number of rounds"),
        (lambda: 1.0, r"outer_schedule\(0\) failed: TypeError"),
        (lambda rounds: None, r"outer_schedule\(0\) = None is not a number from 0 to 1e"),
        (lambda rounds: float("nan"), r"outer_schedule\(0\) = nan is not a number from 0 to 1e"),
        (lambda rounds: -0.5, r"outer_schedule\(0\) = -0.5 is not a number from 0 to 1e"),
    ],
)
def test_what_is_no_schedule_is_refused(schedule: Any, words: str) -> None:
    model = Model()
    with pytest.raises(ConfigError, match=words):
        DiLoCo(None, model, torch.optim.SGD(model.parameters(), lr=1.0), outer_schedule=schedule)  # type: ignore[arg-type]


def test_where_it_has_no_factor_any_more_the_round_is_named(make_world: Any) -> None:
    """One that ends must not be refused at the beginning: training may end before."""

    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, EVERY, outer_schedule=[1.0, 0.5].__getitem__):
            train(model, inner, rows(0, 3 * EVERY - 1))
            with pytest.raises(ConfigError, match=r"outer_schedule\(2\) failed: IndexError"):
                train(model, inner, rows(0, 1))

    make_world(a=1).run(a_0=body)


def test_workers_with_other_schedules_do_not_fit_each_other() -> None:
    parameters = {"w": torch.nn.Parameter(torch.zeros(1))}
    said = [
        Outer(None, parameters, schedule=schedule).describe()
        for schedule in (
            halved,
            lambda r: halved(r) * (1 + 1e-15),
            lambda r: 1.0 if r < 600 else 0.5,
            [1.0].__getitem__,
        )
    ]
    assert said[0] == said[1]
    assert ("outer schedule, round 1000", "0.5") in said[2]
    assert ("outer schedule, round 1", "none") in said[3]
    assert len(set(said)) == 3
