"""What is hooked to an optimizer runs beside its steps, also where these are compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ictp2p.sync.model.strangers import Strangers
from ictp2p.sync.two_level.hooks import Hooks


def looked_into() -> bool:
    """Whether the compiler follows this call."""
    return torch.compiler.is_compiling()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by the compiler, as it is loaded
def test_a_compiled_step_does_not_look_into_what_is_hooked_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: whole rounds were traced and compiled, anew each time, while the other clusters waited."""
    parameter = torch.nn.Parameter(torch.ones(4))
    inner, seen = torch.optim.SGD([parameter], lr=0.1), list[bool]()
    hooks, torch_told = Hooks(inner), Strangers(inner, lambda: 0, lambda text: None)
    monkeypatch.setattr(torch_told, "before", lambda optimizer: seen.append(looked_into()))
    monkeypatch.setattr(torch_told, "after", lambda optimizer: seen.append(looked_into()))
    hooks.set(lambda: seen.append(looked_into()), lambda: seen.append(looked_into()))

    step: Any = torch.compile(lambda: inner.step(), backend="eager")
    for _ in range(3):
        parameter.grad = torch.ones(4)
        step()
    hooks.remove()
    torch_told.remove()
    assert seen == [False] * 12
    assert torch.allclose(parameter, torch.full((4,), 0.7))
