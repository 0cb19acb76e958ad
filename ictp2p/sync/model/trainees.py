"""Which parameters a program trains, held against those that a policy keeps in step.

A policy sees a model and one optimizer. A parameter that the optimizer steps and the policy does not know is trained by
each worker for itself: nothing fails, losses fall, and the workers drift apart. It happens when an optimizer was made
for another copy of the model, when a criterion with weights of its own is in it, and when layers are unfrozen later.
A parameter that requires gradients and is in no group of the optimizer is either not meant to be trained, or a second
optimizer's, which steps it before its gradient was averaged or after the round. So all of that is refused, when the
policy is made and at every step after that.

What counts is identity: a view of what the optimizer steps has no gradient, so nothing could be averaged. Of a model
whose parameters are sharded the policy takes the model itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ictp2p.errors import ConfigError, shown
from ictp2p.sync.model.tensors import to_train
from ictp2p.sync.state.local import is_distributed

LEAST_WEIGHT, MOST_WEIGHT = 1e-18, 1e18
"""Of a step, or of a call: in this range sums over months keep their digits, and no contribution passes for none."""


class Trainees:
    """The parameters of a model that a policy averages.

    Args:
        model: of the policy.
        inner: its optimizer.

    Raises:
        ConfigError: the model has nothing to train; or the optimizer steps parameters that are not the model's, or not
            all that require gradients.
    """

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer) -> None:
        to_train(model)  # else what is said is that the optimizer, which cannot be empty, holds another's
        self.model, self.inner = model, inner
        """Whose they are, and what steps them."""
        self._frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
        self._parameters = list(model.parameters())
        self._places = [(name, p, *_owner(model, name)) for name, p in model.named_parameters() if p.requires_grad]
        self._known = 0
        self.check()

    def check(self) -> None:
        """See that nothing else is trained by now.

        Raises:
            ConfigError: a frozen parameter was given a gradient, or a trained one was frozen; the optimizer was given
                parameters that are not the model's, or the model a parameter that the optimizer does not know; or the
                optimizer lacks one that it had.
        """
        moved = next((place for place in self._places if place[2]._parameters.get(place[3]) is not place[1]), None)
        if moved is not None and not {*map(id, self.model.parameters())}.issuperset(map(id, self._parameters)):
            raise ConfigError(_elsewhere(*moved))
        for name, parameter in self._frozen:
            if parameter.requires_grad and parameter.grad is not None:
                raise ConfigError(
                    f"parameter {name!r} has a gradient, and was frozen when the policy was made: workers would train "
                    "it apart. Let it require gradients from the beginning, with a learning rate of 0 until its time"
                )
        stopped = next((name for name, parameter, *_ in self._places if not parameter.requires_grad), None)
        if stopped is not None:
            raise ConfigError(
                f"parameter {stopped!r} requires no gradient now, and did when the policy was made: rounds would go on "
                "moving it, by the outer momentum and by what others train. To freeze it, make another policy then"
            )
        held = [parameter for group in self.inner.param_groups for parameter in group["params"]]
        if len(held) != self._known:
            self._check_places(held)
            self._known = len(held)

    def _check_places(self, held: list[Tensor]) -> None:
        own = {*map(id, self._parameters)}
        strange = [p for p in held if p.requires_grad and _has_elements(p) and id(p) not in own]
        if strange:
            model = type(self.model).__name__
            raise ConfigError(
                f"the inner optimizer holds {len(strange)} parameters, the first of shape {tuple(strange[0].shape)}, "
                f"that were not {model}'s when the policy was made: each worker would train them apart"
            )
        known = {*map(id, held)}
        lacking = next((n for n, p, *_ in self._places if _has_elements(p) and id(p) not in known), None)
        if lacking is not None:
            raise ConfigError(
                f"parameter {lacking!r} requires a gradient and is in no group of the inner optimizer: another one "
                "would train it apart on each worker. Give the policy a JointOptimizer of both, or have it require none"
            )


def _owner(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def _has_elements(parameter: Tensor) -> bool:
    """Whether there is anything to train; a lazy one is refused by name where tensors are looked at (`tensors`)."""
    return not is_lazy(parameter) and parameter.numel() > 0


def _elsewhere(name: str, parameter: Tensor, owner: torch.nn.Module, leaf: str) -> str:
    """Say in words why a parameter is another object than it was."""
    now = owner._parameters.get(leaf)
    if now is not None and is_distributed(parameter) and not is_distributed(now):
        return (
            f"parameter {name!r} is gathered from its shards, as in a forward pass, or after one that ended with an "
            "error: model.state_dict() puts the shards back"
        )
    return (
        f"parameter {name!r} is another object than when the policy was made, as load_state_dict(assign=True) makes "
        "it: what the optimizer steps is no part of the model any more. Make the policy after that"
    )


def checked_weight(weight: Any) -> float:
    """What a worker's steps may count.

    Raises:
        ConfigError: it is not a number, negative, or of no reasonable size.
    """
    try:
        value = -1.0 if isinstance(weight, str) else float(weight)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # no number, or many, or one too large
        value = -1.0
    if value and not LEAST_WEIGHT <= value <= MOST_WEIGHT:
        raise ConfigError(f"weight {shown(weight)} is neither 0 nor from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")
    return value
