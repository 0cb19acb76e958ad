"""What an object holds, as a value that can be compared and hashed: two machines that hold the same do the same."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterator
from types import MappingProxyType
from typing import Any

import msgspec

Moment = Callable[[str, float], Hashable]
"""What is seen of a float, by the name of the attribute that it is or is in."""


def frozen(
    thing: Any, seen: dict[int, int] | None = None, moment: Moment = lambda name, value: value, name: str = ""
) -> Hashable:
    """Freeze all that can be reached from `thing`, but chance and the order of keys.

    Args:
        thing: made of containers, and of objects with attributes.
        seen: objects that were met on the way, by identity: what two hold together is told from two that are equal.
        moment: what is seen of floats; see `since`.
        name: the attribute that `thing` is.

    Raises:
        TypeError: something that is met holds what cannot be seen.
    """
    seen = {} if seen is None else seen
    match thing:
        case random.Random():
            return None
        case float():
            return moment(name, thing)
        case tuple() | list() | deque():
            return (type(thing), *(frozen(each, seen, moment, name) for each in thing))
        case set() | frozenset():
            return frozenset(thing)
        case dict() | MappingProxyType():
            return frozenset((key, frozen(value, seen, moment, name)) for key, value in thing.items())
        case None | bool() | int() | str() | bytes() | msgspec.Struct():
            return thing
    if id(thing) in seen:
        return (type(thing), seen[id(thing)])
    if not (callable(thing) or hasattr(thing, "__dict__") or hasattr(thing, "__slots__")):
        raise TypeError(f"what a {type(thing).__name__} holds cannot be seen: {thing!r}")
    seen[id(thing)] = len(seen)
    return (type(thing), *((key, frozen(value, seen, moment, key)) for key, value in _attributes(thing)))


def since(now: float, lasting: Container[str], past: float) -> Moment:
    """See times as distances from `now`, so that machines are the same that differ in nothing but when it is.

    Args:
        now: seconds.
        lasting: attributes that are no times.
        past: seconds after which it makes no difference any more when something was.
    """
    return lambda name, value: value if name in lasting else max(-past, round(value - now, 6))


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """What an object was given. Functions have nothing: what they close over has to be held elsewhere as well."""
    yield from sorted(getattr(thing, "__dict__", {}).items())
    for base in type(thing).__mro__:
        for name in getattr(base, "__slots__", ()):
            if hasattr(thing, name):
                yield name, getattr(thing, name)
