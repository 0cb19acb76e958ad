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

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

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
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    move = self._move(param, param.grad, group["momentum"], group["every"])
                    param.sub_(move.mul(group["lr"]))

    def _move(self, param: Tensor, delta: Tensor, momentum: float, every: int) -> Tensor:
        state = self._state_of(param)
        buffer: Tensor = state["momentum_buffer"]
        held, count = state["held"], state["count"]
        if self.contributions >= every and not count.item():
            buffer.mul_(momentum).add_(delta)  # all at once: `every` contributions over `every`, without rounding
            return buffer * momentum + delta
        contributions = min(self.contributions, every)
        share = delta * contributions
        held.add_(share)
        count.add_(contributions)
        if count.item() < every:
            return share / every
        buffer.mul_(momentum).add_(held.div(every))
        held.zero_()
        count.zero_()
        return buffer * momentum + share / every

    def _state_of(self, param: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        if not state:
            state["count"] = torch.zeros((), dtype=torch.float32, device="cpu")
            state["held"] = torch.zeros_like(param)
            state["momentum_buffer"] = torch.zeros_like(param)
        return state
