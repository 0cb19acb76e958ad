"""What is hooked to an optimizer runs beside its steps, also where these are compiled."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from ictp2p.errors import LocalProtocolError
from ictp2p.sync.model.strangers import Strangers
from ictp2p.sync.two_level.hooks import Hooks


def looked_into() -> bool:
    """Whether the compiler follows this call."""
    return torch.compiler.is_compiling()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by the compiler, as it is loaded
@pytest.mark.parametrize("closure", [False, True])
def test_a_compiled_step_does_not_look_into_what_is_hooked_to_it(
    closure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: whole rounds were traced and compiled, anew each time, while the other clusters waited."""
    parameter = torch.nn.Parameter(torch.ones(4))
    inner, seen = torch.optim.SGD([parameter], lr=0.1), list[bool]()
    hooks, torch_told = Hooks(inner), Strangers(inner, lambda: 0, lambda text: None)
    monkeypatch.setattr(torch_told, "before", lambda optimizer: seen.append(looked_into()))
    monkeypatch.setattr(torch_told, "after", lambda optimizer: seen.append(looked_into()))
    hooks.set(lambda: seen.append(looked_into()), lambda: seen.append(looked_into()))

    step: Any = torch.compile(lambda: inner.step((lambda: 0.0) if closure else None), backend="eager")
    for _ in range(3):
        parameter.grad = torch.ones(4)
        step()
    hooks.remove()
    torch_told.remove()
    assert seen == [False] * 12
    assert torch.allclose(parameter, torch.full((4,), 0.7))


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_of_another_thread_meanwhile_is_refused_and_both_threads_are_named(when: str, closure: bool) -> None:
    """Regression: both were in one round, and one was told of a collective that was still under way."""
    parameter = torch.nn.Parameter(torch.ones(4))
    inner, refused, depth = torch.optim.SGD([parameter], lr=0.1), list[str](), list[int]()
    hooks = Hooks(inner)

    def step() -> None:
        parameter.grad = torch.ones(4)
        inner.step((lambda: 0.0) if closure else None)

    def elsewhere() -> None:
        with pytest.raises(LocalProtocolError) as caught:
            step()
        refused.append(str(caught.value))

    def meanwhile() -> None:
        depth.append(0)
        if len(depth) == 1:
            other = threading.Thread(target=elsewhere, name="the other", daemon=True)
            other.start()
            other.join(20)
            step()  # as in a signal handler: this thread is in it itself

    hooks.set(*([meanwhile, lambda: None] if when == "before" else [lambda: None, meanwhile]))
    step()
    one = threading.Thread(target=step)  # and one after the other all may
    one.start()
    one.join()
    assert refused == [
        f"thread 'the other' steps the optimizer of a policy while thread {threading.current_thread().name!r} does: "
        "steps follow one another, so take them in one thread"
    ]
    assert len(depth) == 3
