"""Keeps torch.compile out of the methods of a group: they are called beside a graph, and never part of one.

To torch a group is opaque: its own are C++, of which the compiler sees nothing. Ours are Python, and a frame that is
called while a compiled function runs (by a collective that has no functional form, or by DDP when it orders its
buckets anew) would be compiled as well, which fails on the first attribute that it reads.

`torch.compiler.disable` says the same, but costs a wrapper on every call, and 1.2 s of imports in programs that compile
nothing. This is the mark that it leaves on code, without either.
"""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

T = TypeVar("T")

_SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
"""The frame itself, and whatever it calls."""


def uncompiled(kind: type[T]) -> type[T]:
    """Mark all methods of a class."""
    for method in vars(kind).values():
        if isinstance(method, FunctionType):
            set_code_exec_strategy(method.__code__, _SKIP)
    return kind
