"""One way to break one rule on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break one rule."""

    name: str
    rule: str
    """What the present code guarantees, in words."""
    old: str
    new: str
    killers: tuple[str, ...]
    """Pytest node ids, relative to `tests`, of which at least one must fail."""
    file: str = ""
    """Relative to the root of the source; where it stands in the catalogue says it."""
