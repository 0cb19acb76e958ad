"""What `exhaustive` explores: machines, what may happen to them, and what must not come of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ictp2p.machine import Effects, Notice

Act = Callable[[Any, float], Effects | None]
"""What is done to a machine at its time; None if that cannot be now."""


class Even(random.Random):
    """Chance that is always in the middle, for machines that differ in nothing else."""

    def random(self) -> float:
        return 0.5


@dataclass(frozen=True, slots=True)
class Move:
    """Something that may happen at one peer, at any moment, so often at most."""

    label: str
    who: int
    act: Act
    uses: float = 1
    """Infinite: as often as it can be."""
    waits: bool = False
    """Whether it is the machine's next timer."""
    late: float = 0.0
    """Seconds by which it is late for that."""


class World(Protocol):
    """What is explored."""

    peers: Sequence[str]
    moves: Sequence[Move]
    again: bool
    """Whether what has come can come again."""
    deaths: int
    """How many there may be. Who dies is back at once, with what was on its disk."""
    mortal: Container[int]
    """Who may die."""

    def disk(self, who: int) -> bytes | None:
        """Give what is on a disk at first."""

    def boot(self, who: int, disk: bytes | None) -> Any:
        """Make a machine."""

    def done(self, machine: Any) -> bool:
        """Say whether what else happens to this one is not of interest."""

    def view(self, machine: Any) -> Any:
        """Give what `check` has to know of a machine."""

    def fact(self, notice: Notice) -> Hashable | None:
        """Give what `check` has to know for good of something that has happened."""

    def check(self, views: Sequence[Any], facts: Sequence[Any]) -> None:
        """Raise `AssertionError` for what must not be."""


class Peace(Protocol):
    """How all comes to its end where nobody dies and nothing is lost any more."""

    def calm(self, who: int, machine: Any, now: float) -> Effects:
        """Do what somebody does then, again and again."""

    def settled(self, views: Sequence[Any]) -> bool:
        """Say whether all has come to its end."""


def wait(who: int, uses: int = 1, late: float = 0.0) -> Move:
    """Its next timer, if there is one."""

    def act(machine: Any, now: float) -> Effects | None:
        effects: Effects = machine.handle_timeout(now)
        return effects

    return Move(f"waits, and {late:g} s more" if late else "waits", who, act, uses, waits=True, late=late)
