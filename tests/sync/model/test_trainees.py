"""Nothing is trained behind a policy's back, and no step counts what cannot be counted."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ictp2p.errors import ConfigError, shown
from ictp2p.sync.model.trainees import Trainees, checked_weight
from ictp2p.sync.policies.diloco import DiLoCo


def sgd(*modules: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)


def test_an_optimizer_of_another_copy_of_the_model_is_refused() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ConfigError, match=r"holds 2 parameters, the first of shape \(2, 3\), that were not Linear's"):
        Trainees(model, sgd(copy.deepcopy(model)))


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(3, 2).requires_grad_(False)], ids=["none", "frozen"])
def test_a_model_without_anything_to_train_is_told_so_and_not_of_its_optimizer(model: nn.Module) -> None:
    """Regression: no optimizer is empty, so this one is of another model, and that was all that was said."""
    with pytest.raises(ConfigError, match=f"model {type(model).__name__} has no parameter that could be trained"):
        Trainees(model, sgd(nn.Linear(3, 2)))


def test_a_lazy_parameter_is_left_to_who_names_it() -> None:
    """Regression: torch's own error was raised, from the middle of the check."""
    model = nn.LazyLinear(2)
    Trainees(model, sgd(model)).check()


def test_a_criterion_with_weights_of_its_own_is_refused() -> None:
    model, criterion = nn.Linear(3, 2), nn.PReLU()
    with pytest.raises(ConfigError, match="holds 1 parameters"):
        Trainees(model, sgd(model, criterion))


def test_a_parameter_that_the_optimizer_gets_later_is_refused() -> None:
    model, head = nn.Linear(3, 2), nn.Linear(2, 1)
    trainees = Trainees(model, inner := sgd(model))
    trainees.check()
    inner.add_param_group({"params": head.parameters()})
    with pytest.raises(ConfigError, match="holds 2 parameters"):
        trainees.check()


def test_a_model_may_move_between_two_changes_of_its_optimizer() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model[1].requires_grad_(False)
    trainees = Trainees(model, inner := sgd(model[0]))
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    inner.add_param_group({"params": model[1].parameters()})
    trainees.check()


def test_what_another_optimizer_would_step_is_named() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    with pytest.raises(ConfigError, match=r"'1\.weight' requires a gradient and is in no group of the inner"):
        Trainees(model, sgd(model[0]))


def test_what_the_optimizer_gives_up_later_is_named() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    trainees = Trainees(model, inner := sgd(model))
    inner.param_groups[0]["params"].pop()
    with pytest.raises(ConfigError, match=r"'1\.bias' requires a gradient"):
        trainees.check()


class Wrapped(Tensor):
    """A tensor that has no memory, as those of quantized weights."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...]) -> Wrapped:
        made: Wrapped = Tensor._make_wrapper_subclass(cls, shape, requires_grad=True)  # type: ignore[attr-defined]
        return made

    @classmethod
    def __torch_dispatch__(cls, *called: Any) -> Any:
        raise AssertionError(f"{called[0]} is not for looking at it")


def test_a_parameter_that_is_made_of_other_tensors_is_known_by_itself() -> None:
    model, other = nn.Module(), nn.Module()
    for module in (model, other):
        held = Wrapped((2, 3))
        held._is_param = True  # what makes a parameter of a tensor that is one already
        module.register_parameter("weight", held)  # type: ignore[arg-type]
    Trainees(model, sgd(model)).check()
    with pytest.raises(ConfigError, match="holds 1 parameters"):
        Trainees(model, sgd(model, other))


def test_views_of_what_the_optimizer_steps_are_none_of_the_models() -> None:
    """Regression: they have no gradients, so of shards that were given so none was averaged, and nothing said so."""
    model = nn.Linear(3, 2)
    with pytest.raises(ConfigError, match=r"holds 2 parameters, the first of shape \(2, 3\)"):
        Trainees(nn.ParameterList(p.detach() for p in model.parameters()), sgd(model))


@pytest.mark.parametrize("part", ["frozen", "empty", "subset"])
def test_what_is_no_mistake_passes(part: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.ParameterList([torch.empty(0)]))
    if part != "empty":
        model[0].requires_grad_(False)
    Trainees(model, sgd(model[1]) if part == "subset" else sgd(model)).check()


def test_a_layer_that_is_unfrozen_under_a_policy_is_named(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        model[0].requires_grad_(False)
        inner = sgd(model)
        with DiLoCo(mesh, model, inner, sync_every=2):
            for step in range(3):
                model[0].requires_grad_(step == 2)
                model(torch.ones(2, 3)).sum().backward()
                inner.step()

    with pytest.raises(ConfigError, match=r"parameter '0\.weight' has a gradient, and was frozen"):
        make_world(a=1).run(a_0=body)


def test_a_layer_that_is_frozen_under_a_policy_is_named(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        inner = sgd(model)
        with DiLoCo(mesh, model, inner, sync_every=2):
            for step in range(3):
                model[0].requires_grad_(step < 2)
                model(torch.ones(2, 3)).sum().backward()
                model[1].requires_grad_(False)  # until the step, as in the training of a rival
                model[1].requires_grad_(True)
                inner.step()

    with pytest.raises(ConfigError, match=r"parameter '0\.weight' requires no gradient now"):
        make_world(a=1).run(a_0=body)


def test_a_gradient_that_was_left_over_from_before_is_none(make_world: Any) -> None:
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    model.weight.requires_grad_(False)
    Trainees(model, sgd(model)).check()


@given(st.floats() | st.integers() | st.text("019.") | st.none() | st.just(10**400))
def test_a_weight_is_nought_or_a_number_of_reasonable_size(weight: Any) -> None:
    number = float(weight) if isinstance(weight, int | float) and not abs(weight) > 1e300 else -1.0
    if number == 0.0 or 1e-18 <= number <= 1e18:
        assert checked_weight(weight) == number
    else:
        with pytest.raises(ConfigError, match=re.escape(f"weight {shown(weight)} is neither 0 nor")):
            checked_weight(weight)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0, "many"])
def test_a_policy_takes_no_other(make_world: Any, weight: Any) -> None:
    def body(mesh: Any) -> None:
        model = nn.Linear(3, 1)
        policy = DiLoCo(mesh, model, sgd(model))
        policy.weight = torch.tensor(3)  # type: ignore[assignment]
        with pytest.raises(ConfigError, match="is neither 0 nor from 1e-18 to 1e"):
            policy.weight = weight
        assert policy.weight == 3.0

    make_world(a=1).run(a_0=body)
