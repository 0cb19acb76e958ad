"""Who else steps the parameters of a policy: people are told, and of nobody by mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.model.strangers import Strangers
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD

Step = Callable[[torch.nn.Module, torch.optim.Optimizer, int], None]


class Wrapper(torch.optim.Optimizer):
    """Steps another one in its own step, with the gradients of so many."""

    def __init__(self, base: torch.optim.Optimizer, every: int) -> None:
        super().__init__(base.param_groups, base.defaults)
        self.base, self.param_groups, self.every, self.count = base, base.param_groups, every, 0

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.count += 1
        if self.count % self.every == 0:
            self.base.step()


def warned(make_world: Any, step: Callable[..., Callable[[int], object]], outer: Any = None, every: int = 3) -> Any:
    def body(mesh: Any) -> int:
        model = torch.nn.Linear(4, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        own = None if outer is None else outer(model.parameters())
        with DiLoCo(mesh, model, inner, own, sync_every=every) as policy:
            take = step(model, inner)
            for number in range(24):
                model(torch.ones(2, 4)).sum().backward()
                take(number)
            return policy.progress.step

    world = make_world(a=1)
    steps = world.run(a_0=body)["a_0"]
    texts = [str(fields["text"]) for _, kind, fields in world.events if kind == "warning"]
    return steps, [text for text in texts if not text.startswith("ends with ")]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("fast", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_an_optimizer_made_anew_is_told_of_once(make_world: Any, kind: Any, fast: dict[str, bool]) -> None:
    """Regression: its steps came to no round, and nobody was told."""

    def second_stage(model: torch.nn.Module, inner: torch.optim.Optimizer) -> Callable[[int], object]:
        later = kind(model.parameters(), lr=0.001, **fast)
        return lambda number: (inner if number < 4 else later).step()

    steps, texts = warned(make_world, second_stage)
    assert steps == 4
    (text,) = texts
    assert f"does not know ({kind.__name__})" in text


def wraps(every: int) -> Callable[..., Callable[[int], object]]:
    def made(model: torch.nn.Module, inner: torch.optim.Optimizer) -> Callable[[int], object]:
        wrapper = Wrapper(inner, every)
        return lambda number: wrapper.step()

    return made


def accumulates(model: torch.nn.Module, inner: torch.optim.Optimizer) -> Callable[[int], object]:
    return lambda number: inner.step() if number % 24 == 23 else None


def of_something_else(model: torch.nn.Module, inner: torch.optim.Optimizer) -> Callable[[int], object]:
    critic = torch.nn.Linear(2, 2)
    other = torch.optim.Adam(critic.parameters())

    def step(number: int) -> None:
        for _ in range(5):
            critic(torch.ones(1, 2)).sum().backward()
            other.step()
        inner.step()

    return step


def joint(mesh: Any, *, alone: bool) -> None:
    model = torch.nn.Linear(4, 1)
    parts = [torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()]
    inner = JointOptimizer(*parts)
    with DiLoCo(mesh, model, inner, sync_every=2):
        for _ in range(6):
            model(torch.ones(2, 4)).sum().backward()
            (parts[0] if alone else inner).step()


@pytest.mark.parametrize("alone", [False, True])
def test_the_parts_of_a_joint_optimizer_are_strangers_only_where_they_step_by_themselves(
    make_world: Any, alone: bool
) -> None:
    world = make_world(a=1)
    world.run(a_0=lambda mesh: joint(mesh, alone=alone))
    assert [kind for _, kind, _ in world.events if kind == "warning"] == ["warning"] * alone


@pytest.mark.parametrize("by", ["a stranger", "a part"])
def test_after_a_step_of_ours_that_raised_strangers_are_told_of(make_world: Any, by: str) -> None:
    """Regression: the step passed for one that was under way, and whatever stepped later for a part of it."""

    def raises() -> Any:
        raise FloatingPointError("the loss is not finite")

    def body(mesh: Any) -> None:
        model = torch.nn.Linear(4, 1)
        parts = [torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()]
        inner = JointOptimizer(*parts)
        with DiLoCo(mesh, model, inner, sync_every=2):
            with pytest.raises(FloatingPointError):
                inner.step(raises)
            later = parts[0] if by == "a part" else torch.optim.SGD(model.parameters(), lr=0.01)
            model(torch.ones(2, 4)).sum().backward()
            later.step()

    world = make_world(a=1)
    world.run(a_0=body)
    assert [kind for _, kind, _ in world.events if kind == "warning"] == ["warning"]


@pytest.mark.parametrize("joined", [False, True])
def test_what_steps_within_a_step_of_ours_is_no_stranger(make_world: Any, joined: bool) -> None:
    def body(mesh: Any) -> None:
        model = torch.nn.Linear(4, 1)
        wrapper: torch.optim.Optimizer = Wrapper(torch.optim.SGD(model.parameters(), lr=0.01), 2)
        inner = JointOptimizer(wrapper) if joined else wrapper
        with DiLoCo(mesh, model, inner, sync_every=2):
            for _ in range(6):
                model(torch.ones(2, 4)).sum().backward()
                inner.step()

    world = make_world(a=1)
    world.run(a_0=body)
    assert not [kind for _, kind, _ in world.events if kind == "warning"]


@pytest.mark.parametrize("step", [wraps(1), wraps(4), accumulates, of_something_else])
def test_who_is_no_stranger(make_world: Any, step: Any) -> None:
    """A wrapper, who adds up gradients, and who trains something else; and the outer optimizer, whosever it is."""
    for outer in (None, lambda parameters: torch.optim.SGD(parameters, lr=0.7, momentum=0.9)):
        steps, texts = warned(make_world, step, outer, every=1)
        assert steps
        assert texts == []


def test_policies_may_begin_and_end_while_others_step() -> None:
    """Regression: torch walks through hooks for all optimizers, and threads that step failed if one came or went."""
    parameter = torch.nn.Parameter(torch.ones(1))
    inner, other = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))

    def steps() -> int:
        Strangers(inner, lambda: 0, print).remove()
        return 0

    watching = [Strangers(inner, steps, print), Strangers(inner, lambda: 0, print)]
    try:
        parameter.grad = torch.zeros(1)
        other.step()
    finally:
        for watch in (*watching, *watching):
            watch.remove()


def test_nobody_is_watched_once_the_policy_was_left(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = torch.nn.Linear(4, 1)
        with LocalSGD(mesh, model, torch.optim.SGD(model.parameters(), lr=0.1)):
            pass
        later = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 4)).sum().backward()
        later.step()

    world = make_world(a=1)
    world.run(a_0=body)
    assert not [kind for _, kind, _ in world.events if kind == "warning"]


@pytest.mark.parametrize(
    "outer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.7, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        Nesterov,
    ],
)
@pytest.mark.parametrize("rounds", [0, 2])
def test_who_steps_the_outer_optimizer_is_refused(make_world: Any, outer: Any, rounds: int) -> None:
    """Regression: a warning named another cause; after a round one of torch's others moved the agreed state."""

    def body(mesh: Any) -> None:
        model = torch.nn.Linear(4, 1)
        inner, own = torch.optim.SGD(model.parameters(), lr=0.01), outer(model.parameters())
        with DiLoCo(mesh, model, inner, own, sync_every=1) as policy:
            for _ in range(rounds):
                model(torch.ones(2, 4)).sum().backward()
                inner.step()
            before, agreed = [p.detach().clone() for p in model.parameters()], policy.global_parameters()
            with pytest.raises(ConfigError, match=rf"outer optimizer \({type(own).__name__}\) was stepped .*\(SGD\)"):
                own.step()
            assert all(map(torch.equal, before, model.parameters()))
            assert all(torch.equal(agreed[name], now) for name, now in policy.global_parameters().items())
            model(torch.ones(2, 4)).sum().backward()
            inner.step()
        agreed = policy.global_parameters()
        own.step()  # it is the program's again
        assert all(torch.equal(agreed[name], now) for name, now in policy.global_parameters().items())

    world = make_world(a=1)
    world.run(a_0=body)
    assert not [kind for _, kind, _ in world.events if kind == "warning"]
