"""Several inner optimizers as one, for a model whose matrices are Muon's and the rest AdamW's.

A policy hooks one optimizer: gradients are averaged before its step, and rounds come after it. Of two that step one
after the other one would have the gradients before they were averaged, or after the round. So they step as one: all
that a policy asks of an optimizer (hooks, groups, state, a closure) is asked of all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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
            raise ConfigError("a JointOptimizer needs an optimizer at least")
        for part in parts:
            options.optimizer("a part of a JointOptimizer", part)
        held = [id(p) for part in parts for group in part.param_groups for p in group["params"]]
        if len(set(held)) < len(held):
            raise ConfigError("two parts of a JointOptimizer hold the same parameter: each would step it")
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._join()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step each; the closure is called once, before."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        self._join()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Of each part."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._join()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Known to a part already, or an error: which part is to step it?

        Raises:
            ConfigError: no part has this group.
        """
        if not any(group is param_group for part in self.parts for group in part.param_groups):
            raise ConfigError("give the group to one of the parts, before they are put together")
        super().add_param_group(param_group)

    def _join(self) -> None:
        """Have the parts' own groups and state, which they may have replaced."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        self.state.clear()
        for part in self.parts:
            self.state.update(part.state)


def kind(optimizer: Optimizer) -> str:
    """What an optimizer is, in a word; of several, of each."""
    name = type(optimizer).__name__
    return f"{name} ({', '.join(map(kind, optimizer.parts))})" if isinstance(optimizer, JointOptimizer) else name
