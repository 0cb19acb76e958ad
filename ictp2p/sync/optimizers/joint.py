"""Several inner optimizers as one, for a model whose matrices are Muon's and the rest AdamW's.

A policy hooks one optimizer: gradients are averaged before its step, and rounds come after it. Of two that step one
after the other one would have the gradients before they were averaged, or after the round. So they step as one: all
that a policy asks of an optimizer (hooks, groups, state, a closure) is asked of all of them at once.

Groups and state are the parts' own, looked up whenever somebody asks: a part that is restored by itself, from what a
program saved when its optimizers were apart, has others from then on, and nobody may go on with the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ictp2p.errors import ConfigError
from ictp2p.sync import options


class JointOptimizer(Optimizer):
    """Optimizers of different parameters, stepped one after the other in one step.

    ```python
    inner = ictp2p.JointOptimizer(Muon(matrices), AdamW(others))
    with ictp2p.DiLoCo(peer, model, inner) as policy:
        ...  # inner.step() and inner.zero_grad(); schedules may be given `inner`, or a part each
    ```
    """

    def __init__(self, *parts: Optimizer) -> None:
        """Put them together.

        Args:
            parts: any of torch's, in the order in which they step; do not step them yourself.

        Raises:
            ConfigError: there is none, one is no optimizer, or two have a parameter in common.
        """
        if not parts:
            raise ConfigError("a JointOptimizer needs at least one optimizer")
        for part in parts:
            options.optimizer("a part of a JointOptimizer", part)
        held = [id(p) for part in parts for group in part.param_groups for p in group["params"]]
        if len(set(held)) < len(held):
            raise ConfigError("two parts of a JointOptimizer hold the same parameter: each would step it")
        self.parts = parts
        # As torch makes one that was copied: its __init__ would hold groups against each other that are the parts' own.
        self.__setstate__({"defaults": {}})

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Of all parts, in their order."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, Any]:  # type: ignore[override]
        """Of all parts, by parameter."""
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of."""
        return {"defaults": self.defaults, "parts": self.parts}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step each; the closure is called once, before."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Of each part."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Accept a group that a part has already; a new one has to be added to the part that is to step it.

        Raises:
            ConfigError: no part has this group.
        """
        if not any(group is param_group for group in self.param_groups):
            raise ConfigError(
                "a JointOptimizer cannot tell which of its parts is to step a new group: add the group to one of them"
            )


def kind(optimizer: Optimizer) -> str:
    """What an optimizer is, in a word; of several, of each."""
    name = type(optimizer).__name__
    return f"{name} ({', '.join(map(kind, optimizer.parts))})" if isinstance(optimizer, JointOptimizer) else name
