"""The hooks of an inner optimizer: what happens before and after each of its steps.

The user's loop stays as it is. It may call `step()` with gradients in hand, or with a closure that computes them, as
Lightning does; either way they are averaged before the optimizer sees them. A closure that is called several times in a
step (a line search) asks for the gradient at points where the others are not, so there is nothing to average. The step
may be compiled; what happens before and after it is not.

Steps follow one another, on this worker as on the others. So while one thread is at what happens before or after its
step, another one that comes to it is refused, before anything was done for it: both would be in one round.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

from ictp2p.errors import ConfigError, LocalProtocolError
from ictp2p.uncompiled import never_compiled

_T = TypeVar("_T")


class Hook(Protocol):
    """What was hooked, until it is removed."""

    def remove(self) -> None:
        """Take it away."""


class Alone:
    """What one thread at a time may be in, though several times, as a signal handler is. Any other is refused.

    Raises:
        LocalProtocolError: another thread is in it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._name = ""
        """Of the thread that is in it."""

    def __enter__(self) -> None:
        mine = threading.current_thread().name
        if not self._lock.acquire(blocking=False):
            raise LocalProtocolError(
                f"thread {mine!r} steps the optimizer of a policy while thread {self._name!r} does: steps follow one "
                "another, so take them in one thread"
            )
        self._name = mine

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Hooks:
    """The hooks of one inner optimizer, of which there are none before `set` and after `remove`.

    Nor does this know then whose they were: a policy is several times as large as its model, and has to go when nobody
    holds it any more, not when the garbage collector comes.

    Args:
        inner: the optimizer.
    """

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self._inner = inner
        self._before: Callable[[], None] = lambda: None
        self._set: list[Hook] = []
        self._alone = Alone()

    def __bool__(self) -> bool:
        return bool(self._set)

    def set(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Hook the optimizer.

        Args:
            before: called with the gradients in hand.
            after: called when the step has been taken.
        """
        alone = self._alone

        @never_compiled
        def before_alone() -> None:  # after a closure it is called in the middle of the step
            with alone:
                before()

        @never_compiled
        def before_step(*given: Any) -> Any:
            with alone:  # of a step with a closure as well, before that computes anything
                return self._before_step(*given)

        @never_compiled
        def after_step(*_: Any) -> None:
            with alone:
                after()

        self._before = before_alone

        self._set.append(self._inner.register_step_pre_hook(before_step))
        self._set.append(self._inner.register_step_post_hook(after_step))

    def add(self, hook: Hook) -> None:
        """Have another one removed with these."""
        self._set.append(hook)

    def remove(self) -> None:
        """Let the optimizer be."""
        for hook in self._set:
            hook.remove()
        self._set, self._before = [], lambda: None

    def _before_step(self, optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(("closure",), args[1:], strict=False)) | kwargs
        if given.get("closure") is None:
            return self._before()
        given["closure"] = self._averaging(given["closure"])
        return args[:1], given

    def _averaging(self, closure: Callable[[], _T]) -> Callable[[], _T]:
        calls = itertools.count()

        def averaged() -> _T:
            if next(calls):
                raise ConfigError("an optimizer that calls its closure more than once in a step cannot be averaged")
            result = closure()
            self._before()
            return result

        return averaged
