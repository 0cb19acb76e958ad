"""Optimizers that step a policy's parameters behind its back.

A policy hooks one optimizer. A program that makes another one for the same parameters, for its second stage say, trains
on as before; but nothing averages its gradients, no round is ever due, and what it learns reaches nobody. Nor does
anything fail, so people must be told. It cannot be told by counting batches, of which any number may be added up before
a step. torch tells of every optimizer's step: one that holds parameters of ours, and has changed them in a step without
a step of ours within, is a stranger. A wrapper steps ours within its own step, or adds gradients up and changes none.
Ours may be the wrapper: what steps within its step, as the parts of a `JointOptimizer` do, is none either. Whether that
is under way is seen on the stack: torch tells when a step begins and when it has ended, but not when it has raised.
What is looked at are a few elements (a fused step does not count in a tensor's version), and devices are waited for
only where no step of ours was within.

The outer optimizer is none of them, and has the model's parameters all the same, but for the time of its own step. A
program that steps it too takes it for another inner one: that is an error before anything has moved.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ictp2p.errors import ConfigError
from ictp2p.uncompiled import never_compiled

_MOST, _WIDTH = 8, 8
"""Parameters that are looked at, and elements of each of their dimensions."""
_STEPS = ("step", "wrapper")
"""What an optimizer's step is called, and what torch has around it, in which the hooks are called."""


class Strangers:
    """Watches all optimizers of this process for those that step what is another's.

    Args:
        inner: whose parameters they are.
        steps: how many steps of it were seen so far.
        tell: told of the first one, in words.
        outer: what the policy alone steps, if the program has it.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        steps: Callable[[], int],
        tell: Callable[[str], None],
        outer: torch.optim.Optimizer | None = None,
    ) -> None:
        self._inner, self._steps, self._tell, self._outer = inner, steps, tell, outer
        self._begun: dict[int, tuple[list[tuple[Tensor, Tensor]], int]] = {}
        """By optimizer whose step is under way: some elements of our parameters, as they were before, and our steps."""
        self._told = False
        with _lock:
            _look_on()
            _watching.append(self)

    def remove(self) -> None:
        """Watch no longer."""
        with _lock:
            if self in _watching:
                _watching.remove(self)

    def before(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer begins a step.

        Raises:
            ConfigError: it is the outer one, and steps the model.
        """
        if optimizer is self._outer and any(True for _ in self._shared(optimizer)):
            raise ConfigError(
                f"the outer optimizer ({type(optimizer).__name__}) was stepped by the program: the policy does that "
                f"after each round, with the average. Step the inner one alone ({type(self._inner).__name__})"
            )
        if optimizer is not self._inner and not (self._told or _steps_now(self._inner)):
            self._begun[id(optimizer)] = self._samples(optimizer), self._steps()

    def after(self, optimizer: torch.optim.Optimizer) -> None:
        """It has ended one."""
        before, steps = self._begun.pop(id(optimizer), ([], 0))
        if self._steps() != steps or all(torch.equal(held, then) for held, then in before):
            return
        self._told = True
        self._tell(
            f"an optimizer that the policy does not know ({type(optimizer).__name__}) steps its parameters: they are "
            "averaged with nobody then, and no round follows. Change the groups of the optimizer that the policy has"
        )

    def _samples(self, optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, Tensor]]:
        """A few elements of those of our parameters that an optimizer is going to step, and copies of them."""
        held = (parameter for parameter in self._shared(optimizer) if parameter.grad is not None)
        corners = [_corner(parameter) for parameter in itertools.islice(held, _MOST)]
        return [(corner, corner.clone()) for corner in corners]

    def _shared(self, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
        """Those of our parameters that it holds."""
        ours = {id(p) for group in self._inner.param_groups for p in group["params"]}
        return (p for group in optimizer.param_groups for p in group["params"] if id(p) in ours)


_lock = threading.Lock()
_watching: list[Strangers] = []


@functools.cache
def _look_on() -> None:
    """Have torch tell of each step, from the first time on for good: hooks may not change while any thread steps."""
    register_optimizer_step_pre_hook(_before)
    register_optimizer_step_post_hook(_after)


@never_compiled
def _before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for each in tuple(_watching):
        each.before(optimizer)


@never_compiled
def _after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for each in tuple(_watching):
        each.after(optimizer)


def _steps_now(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of this optimizer is under way in this thread: its own function's, or torch's around that."""
    frame = sys._getframe().f_back
    while frame is not None:
        # Only of these are the variables looked at: to look may keep what they hold until the function returns.
        if frame.f_code.co_name in _STEPS and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def _corner(parameter: Tensor) -> Tensor:
    """The first elements of a parameter, of each dimension; of a distributed one, of what of it is here."""
    local: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return local.detach()[(slice(_WIDTH),) * local.dim()]
