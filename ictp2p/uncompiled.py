"""Keeps torch.compile out of code that is called beside a graph, and never part of one.

To torch a group is opaque: its own are C++, of which the compiler sees nothing. Ours are Python, and a frame that is
called while a compiled function runs (by a collective that has no functional form, or by DDP when it orders its
buckets anew) would be compiled as well, which fails on the first attribute that it reads. So would what a policy does
after a step of an optimizer that is compiled: a whole round, anew each time, while the other clusters wait.

`torch.compiler.disable` says the same, but costs a wrapper on every call, and 1.2 s of imports in programs that compile
nothing. These are the marks that it leaves, without either: one for the frame, and whatever it calls, and one for who
would make it part of its own graph.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
"""The frame itself, and whatever it calls."""


def uncompiled(kind: type[T]) -> type[T]:
    """Mark all methods of a class, for who calls them by way of torch."""
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            never_compiled(method)
    return kind


def never_compiled(function: F) -> F:
    """Mark a function that is called in what may be compiled, an optimizer's step say."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    set_code_exec_strategy(function.__code__, _SKIP)
    return function
