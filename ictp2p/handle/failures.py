"""Errors on their way between two processes: an error of ours arrives as what it was, with its words.

Any other is a bug. It arrives under its own type where that is one of Python's own that takes a text, else as a
`RuntimeError`, and keeps the stack of the process that it comes from as a note.
"""

from __future__ import annotations

import builtins
import traceback

from ictp2p import errors
from ictp2p.errors import IctError, RoundTimeout
from ictp2p.handle.messages import Failure

_PLAIN = ("AssertionError", "MemoryError", "OSError", "RuntimeError", "TimeoutError", "TypeError", "ValueError")


def packed(error: BaseException) -> Failure:
    """An error as it travels."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, IctError):
        ours = next(base.__name__ for base in type(error).__mro__ if hasattr(errors, base.__name__))
        return Failure(ours, text)
    return Failure(kind, text, "".join(traceback.format_exception(error)))


def unpacked(failure: Failure) -> Exception:
    """The error that arrived."""
    ours = getattr(errors, failure.kind, None)
    if isinstance(ours, type) and issubclass(ours, IctError):
        return ours(failure.text)
    plain = failure.kind in _PLAIN
    text = failure.text if plain else f"{failure.kind}: {failure.text}"
    error: Exception = getattr(builtins, failure.kind if plain else "RuntimeError")(text)
    if failure.trace:
        error.add_note(f"in the peer's process:\n{failure.trace}")
    return error


def silent(seconds: float) -> RoundTimeout:
    """What whoever counts seconds gets from a peer that stands still."""
    return RoundTimeout(f"the peer itself stands still (its process, its disk): it gave no answer within {seconds:g} s")
