"""Several optimizers as one: it steps as they would, and a policy keeps all of them in step."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.optimizers.outer import Outer
from ictp2p.sync.policies.diloco import DiLoCo

torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))


def parts(model: nn.Module) -> tuple[torch.optim.SGD, torch.optim.AdamW]:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.SGD(matrices, lr=0.01, momentum=0.9), torch.optim.AdamW(others, lr=0.01)


def losses(model: nn.Module, step: int, worker: int = 0) -> Tensor:
    noise = torch.Generator().manual_seed(100 * worker + step)
    loss: Tensor = (model(torch.randn(8, 3, generator=noise)) - worker).square().mean()
    return loss


def test_it_steps_as_its_parts_would() -> None:
    apart, together = copy.deepcopy(MODEL), copy.deepcopy(MODEL)
    each, joint = parts(apart), JointOptimizer(*parts(together))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(part, 0.9) for part in (*each, joint)]
    for step in range(5):
        for part in each:
            part.zero_grad()
        losses(apart, step).backward()
        for part in each:
            part.step()

        def closure(step: int = step) -> Tensor:
            joint.zero_grad()
            loss = losses(together, step)
            loss.backward()
            return loss

        assert joint.step(closure).requires_grad
        for schedule in schedules:
            schedule.step()
    assert all(map(torch.equal, apart.parameters(), together.parameters()))
    assert {p for part in each for p in part.state} == set(apart.parameters())
    assert set(joint.state) == set(together.parameters())


def test_it_goes_on_from_where_another_stood() -> None:
    first = copy.deepcopy(MODEL)
    one = JointOptimizer(*parts(first))
    for step in range(3):
        one.zero_grad()
        losses(first, step).backward()
        one.step()
    second = copy.deepcopy(first)
    other = JointOptimizer(*parts(second))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for model, optimizer in ((first, one), (second, other)):
        optimizer.param_groups[1]["lr"] = 0.01
        optimizer.zero_grad()
        losses(model, 3).backward()
        optimizer.step()
    assert all(map(torch.equal, first.parameters(), second.parameters()))


def stepped(model: nn.Module, joint: JointOptimizer, step: int = 0) -> None:
    joint.zero_grad()
    losses(model, step).backward()
    joint.step()


def test_a_part_that_is_restored_by_itself_is_the_joint_ones() -> None:
    """Regression: groups and state were the old ones until the first step, and a schedule set the rates of these."""
    first, second = copy.deepcopy(MODEL), copy.deepcopy(MODEL)
    one, other = JointOptimizer(*parts(first)), JointOptimizer(*parts(second))
    schedule = torch.optim.lr_scheduler.ExponentialLR(other, 0.5)
    assert len(other.param_groups) == 2
    stepped(first, one)
    for part, saved in zip(other.parts, one.parts, strict=True):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert set(other.state) == set(second.parameters())
    stepped(second, other)
    schedule.step()
    assert [part.param_groups[0]["lr"] for part in other.parts] == [0.005, 0.005]
    assert all(a is b.param_groups[0] for a, b in zip(other.param_groups, other.parts, strict=True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda joint: pickle.loads(pickle.dumps(joint))])
def test_a_copy_has_parts_of_its_own(copied: Callable[[Any], Any]) -> None:
    """Regression: it had none, and failed in its first step."""
    model, same = copy.deepcopy(MODEL), copy.deepcopy(MODEL)
    one, other = JointOptimizer(*parts(model)), JointOptimizer(*parts(same))
    stepped(model, one)
    stepped(same, other)
    again, joint = copied((model, one))
    stepped(same, other, 1)
    stepped(again, joint, 1)
    assert all(map(torch.equal, same.parameters(), again.parameters()))
    assert not any(map(torch.equal, model.parameters(), again.parameters()))


def test_parts_may_know_the_names_of_their_parameters_or_not() -> None:
    apart, together = copy.deepcopy(MODEL), copy.deepcopy(MODEL)
    each = parts(apart)
    named = torch.optim.SGD([(n, p) for n, p in together.named_parameters() if p.dim() == 2], lr=0.01, momentum=0.9)
    joint = JointOptimizer(named, parts(together)[1])
    assert ["param_names" in group for group in joint.param_groups] == [True, False]
    stepped(apart, JointOptimizer(*each))
    stepped(together, joint)
    assert all(map(torch.equal, apart.parameters(), together.parameters()))


def test_an_outer_one_is_refused() -> None:
    """Regression: its parts kept the parameters of before, and momentum began anew in each round."""
    named = dict(MODEL.named_parameters())
    with pytest.raises(ConfigError, match=r"outer JointOptimizer \(SGD, AdamW\) is several optimizers"):
        Outer(lambda _: JointOptimizer(*parts(MODEL)), named)


def worker(number: int, ends: dict[str, int], *, decides: bool = False) -> Callable[[Any], list[Tensor]]:
    """Trains until the step that one of the workers decides on when it has begun."""

    def body(mesh: Any) -> list[Tensor]:
        model = copy.deepcopy(MODEL)
        inner = JointOptimizer(*parts(model))
        with DiLoCo(mesh, model, inner, sync_every=5) as policy:
            if decides:
                ends["at"] = policy.progress.step + 7
            while policy.progress.step < ends.get("at", 10**6):
                inner.zero_grad()
                losses(model, policy.progress.step, number).backward()
                inner.step()
            return [p.detach().clone() for p in model.parameters()]

    return body


def test_workers_stay_identical(make_world: Any) -> None:
    ends = {"at": 17}
    found = make_world(a=2, b=1).run(a_0=worker(0, ends), a_1=worker(1, ends), b_0=worker(2, ends))
    assert all(map(torch.equal, found["a_0"], found["a_1"]))
    assert not any(map(torch.equal, found["a_0"], found["b_0"]))


def test_a_newcomer_has_the_state_of_each_part(make_world: Any) -> None:
    ends: dict[str, int] = {}
    world = make_world(a=1)
    thread = world.start("a_1", worker(1, ends, decides=True), after=2)
    found = world.run(a_0=worker(0, ends))
    thread.join(60)
    assert not world.errors
    assert all(map(torch.equal, found["a_0"], world.results["a_1"]))


def test_what_is_no_set_of_optimizers_is_refused() -> None:
    one, other = parts(MODEL)
    for given, words in (
        ((), "needs at least one optimizer"),
        ((one, MODEL), "must be a torch.optim.optimizer.Optimizer, not Sequential"),
        ((one, other, torch.optim.SGD([MODEL[0].weight])), "hold the same parameter"),
    ):
        with pytest.raises(ConfigError, match=words):
            JointOptimizer(*given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="add the group to one of them"):
        JointOptimizer(one, other).add_param_group({"params": nn.Linear(1, 1).parameters()})
