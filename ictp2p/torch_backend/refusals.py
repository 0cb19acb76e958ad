"""A collective that is refused at one rank, for what it was given there, is over for all: they learn of it, and why.

It has a number all the same. Without one it would be up to the program whether ranks stay in step: one that catches
the error and goes on would have its next call paired with this one of the others, of equal sizes without a word, and
one that does not go on would have them wait until their time is over.

What torch refuses before it asks the group (a list that is None, tensors of several types) has no number, and nobody
hears of it.
"""

from __future__ import annotations

from types import TracebackType

from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.torch_backend.engine import Engine, Step


class Refusable:
    """The part of a call in which it may be refused: `with` it, from its number to its beginning.

    Args:
        loop: the engine's.
        engine: of the group.
        step: the call.
    """

    __slots__ = ("_engine", "_loop", "_step")

    def __init__(self, loop: LoopThread, engine: Engine, step: Step) -> None:
        self._loop, self._engine, self._step = loop, engine, step

    def __enter__(self) -> Step:
        return self._step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            engine, step, why = self._engine, self._step, str(error) or type(error).__name__
            self._loop.post(lambda: engine.forgo(step, f" (refused there: {why})"))
