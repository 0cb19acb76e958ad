"""What a worker's gradient counts, and when; of the average itself: `cluster.test_averaging`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ictp2p.fsm import TRAINING
from ictp2p.sync.cluster.averaging import NOTHING, Heads
from ictp2p.sync.cluster.groups import Moved
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.two_level.gradients import Gradients


class Sampler:
    """Notes what it is told of each step."""

    dry = False

    def __init__(self, mark: int = 7) -> None:
        self._mark = mark
        self.told: list[tuple[Any, ...]] = []

    def mark(self) -> int:
        return self._mark

    def left(self) -> int:
        return NOTHING

    def stepped(self, marks: Any, left: Any, *, taken: bool) -> None:
        self.told.append((list(marks), taken))


def alone(make_world: Any, do: Callable[[Gradients, Any], Any], **given: Any) -> tuple[Any, Gradients]:
    """One worker's gradient of 2.0, and a group of its own."""

    def body(mesh: Any) -> Any:
        w = torch.nn.Parameter(torch.zeros(1))
        w.grad = torch.full((1,), 2.0)
        weights: Any = SimpleNamespace(trained={"w": w}, buffers={})
        inner = torch.optim.SGD([w], lr=1.0)
        said = {"progress": Progress(step=3), "sampler": None, "sharded": False, "warn": print, **given}
        gradients = Gradients(mesh, inner, weights, **said)
        mesh.roster_ready(True)
        group = mesh.open_group(mesh.wait_roster(None))
        gradients.equal()
        mesh.phase(TRAINING, "group_ready")
        return do(gradients, group), gradients

    found: tuple[Any, Gradients] = make_world(a=1).run(a_0=body)["a_0"]
    return found


def step(gradients: Gradients, group: Any) -> Heads:
    heads = gradients.average(group, gradients.weight, due=False)
    gradients.averaged(heads)
    gradients._peer.phase(TRAINING, "committed")
    return heads


def test_what_is_trained_counts_what_the_gradient_does(make_world: Any) -> None:
    def weighed(gradients: Gradients, group: Any) -> Heads:
        gradients.weight = 5.0
        return step(gradients, group)

    progress = Progress(step=3)
    heads, _ = alone(make_world, weighed, progress=progress)
    assert heads.weight == 5.0
    assert progress.weights == [5.0]


def test_a_spent_one_counts_nothing_and_the_next_one_does(make_world: Any) -> None:
    def spent(gradients: Gradients, group: Any) -> list[float]:
        gradients.spent = True
        return [step(gradients, group).weight for _ in range(2)]

    found, gradients = alone(make_world, spent)
    assert found == [0.0, 1.0]
    assert not gradients.spent


@pytest.mark.parametrize(("mark", "weight", "marks"), [(7, 1.0, [7]), (NOTHING, 0.0, [])])
def test_one_of_no_sample_counts_nothing(make_world: Any, mark: int, weight: float, marks: list[int]) -> None:
    sampler = Sampler(mark)
    heads, _ = alone(make_world, step, sampler=sampler)
    assert heads.weight == weight
    assert sampler.told == [(marks, True)]


def test_where_samples_are_out_a_round_is_due(make_world: Any) -> None:
    sampler, progress = Sampler(), Progress()
    sampler.dry = True
    alone(make_world, step, sampler=sampler, progress=progress)
    assert progress.due


def test_nothing_is_averaged_before_the_group_has_changed(make_world: Any) -> None:
    def moves(gradients: Gradients, group: Any) -> int:
        gradients._peer.roster_moves = lambda generation: True  # type: ignore[method-assign]
        with pytest.raises(Moved) as moved:
            gradients.average(group, 1.0, due=False)
        return moved.value.step

    progress = Progress(step=3)
    found, _ = alone(make_world, moves, progress=progress)
    assert found == 3
    assert progress.weights == [0.0]
