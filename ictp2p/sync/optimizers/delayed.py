"""Delayed Nesterov: momentum for outer steps that come one cluster at a time.

Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2024), algorithm 3. When each step holds the
contribution of one cluster instead of the average of all, ordinary momentum is applied as many times as there are
clusters, and every one of these steps moves along an estimate that is stale by then; the paper found that this, and not
the staleness of the gradients, is what breaks asynchronous training. So the gradient is applied at once, and the
momentum only every `every` steps, from the mean of the gradients since:

    h <- h + delta
    every-th step:   b <- mu b + h / every;   theta <- theta - lr (delta / every + mu b);   h <- 0
    otherwise:       theta <- theta - lr delta / every

which is the paper's form with c = 0, its default. With `every=1` it is `Nesterov`, bit for bit. A step whose gradient
is the mean of m contributions counts as m of them: m delta goes into h, and theta moves by m times as much. So when all
come at once, `every` of them in each step, it is `Nesterov` too, bit for bit: asynchronous training of clusters that
are equally fast is synchronous training. More than `every` at once count as `every`: clusters that nobody expected
average better, and make no step longer than a whole one. Each operation is rounded once, so that every IEEE 754 machine
gets the same bits; the count is part of the global state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import Job
from ictp2p.sync import options


class DelayedNesterov(Optimizer):
    """SGD whose Nesterov momentum is updated and applied every `every` steps."""

    def __init__(self, params: Any, lr: float = 0.7, momentum: float = 0.9, every: int = 4) -> None:
        """Set it up.

        Args:
            params: as for every torch optimizer.
            lr: learning rate, dimensionless.
            momentum: decay of the momentum each time it is applied, in [0, 1).
            every: steps between two uses of the momentum: the number of clusters that contribute one by one.

        Raises:
            ConfigError: a value is out of range.
        """
        lr, momentum = options.rates(lr, momentum)
        every = options.whole("every", every, 1)
        super().__init__(params, {"lr": lr, "momentum": momentum, "every": every})
        self.contributions = 1
        """Of how many contributions the next gradients are the mean."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step along the gradients."""
        elementwise(self.jobs())

    @torch.no_grad()
    def jobs(self) -> list[Job]:
        """What a step does to each parameter, as of `Nesterov`; it is counted here."""
        jobs = list[Job]()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    state = self._state_of(param)
                    step = self._counted(state["count"], group)
                    jobs.append((step, (param, param.grad, state["momentum_buffer"], state["held"])))
        return jobs

    def _counted(self, count: Tensor, group: Mapping[str, Any]) -> _Step:
        """Count the contributions of a step, and say what it does."""
        lr, momentum, every = group["lr"], group["momentum"], group["every"]
        if self.contributions >= every and not count.item():
            return _Step(lr, momentum, every, None, applies=True)
        contributions = min(self.contributions, every)
        count.add_(contributions)
        applies = count.item() >= every
        if applies:
            count.zero_()
        return _Step(lr, momentum, every, contributions, applies=applies)

    def _state_of(self, param: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        if not state:
            state["count"] = torch.zeros((), dtype=torch.float32, device="cpu")
            state["held"] = torch.zeros_like(param)
            state["momentum_buffer"] = torch.zeros_like(param)
        return state


@dataclass(frozen=True, slots=True)
class _Step:
    """What a step does to the elements of a parameter."""

    lr: float
    momentum: float
    every: int
    contributions: int | None
    """As how many its gradient counts; None: all that momentum waits for, at once."""
    applies: bool
    """Whether the momentum is updated and applied."""

    def __call__(self, value: Tensor, delta: Tensor, buffer: Tensor, held: Tensor) -> None:
        value.sub_(self._move(delta, buffer, held).mul_(self.lr))

    def _move(self, delta: Tensor, buffer: Tensor, held: Tensor) -> Tensor:
        if self.contributions is None:
            buffer.mul_(self.momentum).add_(delta)  # `every` contributions over `every`, without rounding
            return buffer.mul(self.momentum).add_(delta)
        share = delta.mul(self.contributions)
        held.add_(share)
        if not self.applies:
            return share.div_(self.every)
        buffer.mul_(self.momentum).add_(held.div(self.every))
        held.zero_()
        return buffer.mul(self.momentum).add_(share.div_(self.every))
