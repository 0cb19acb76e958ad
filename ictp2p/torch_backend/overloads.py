"""The two forms that torch has for a group's calls: lists with options, or one tensor with what the options would hold.

In C++ they are overloads. Here whatever is given is brought into the first form: a tensor where lists go would be taken
for the list of its rows, and what comes of that may even fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")
_FIELDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}
"""What options call what may be given in their place."""
ONE = (("tensors", "tensor"),)
TWO = (("output_tensors", "output_tensor", "output"), ("input_tensors", "input_tensor", "input"))
SPLIT = (("output",), ("input",), ("output_split_sizes",), ("input_split_sizes",))


def overloaded(
    kind: Callable[[], Any], data: Sequence[Sequence[str]], *fields: str
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let a method that takes data and options be called in both forms.

    Args:
        kind: makes the options.
        data: the names that torch has for each piece of it.
        fields: what may be given in the options' place, in order; the keys of `_FIELDS`.
    """

    def decorated(method: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(method)
        def call(self: Any, *given: Any, opts: Any = None, **named: Any) -> T:
            rest = list(given)
            pieces = [rest.pop(0) if rest else _named(method.__name__, names, named) for names in data]
            if rest and hasattr(rest[0], "timeout"):
                opts = rest.pop(0)
            if opts is None:
                opts = _options(kind(), fields, rest, named)
            if rest or named:
                raise TypeError(f"{method.__name__}() was given {[*rest, *named]}, which it does not take")
            return method(self, *(pieces if data is SPLIT else _listed(pieces)), opts)

        return call

    return decorated


def _named(method: str, names: Sequence[str], named: dict[str, Any]) -> Any:
    for name in names:
        if name in named:
            return named.pop(name)
    raise TypeError(f"{method}() lacks its {' or '.join(names)}")


def _options(opts: Any, fields: Sequence[str], rest: list[Any], named: dict[str, Any]) -> Any:
    for field in fields:
        value = rest.pop(0) if rest else named.pop(field, None)
        if value is not None:
            setattr(opts, _FIELDS[field], value)
    return opts


def _listed(pieces: Sequence[Any]) -> Sequence[Any]:
    """Make lists of what is one rank's, and leave nothing to be nothing."""
    if not any(isinstance(piece, Tensor) for piece in pieces):
        return pieces
    return [[piece] if isinstance(piece, Tensor) or len(piece) else [] for piece in pieces]
