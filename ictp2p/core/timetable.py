"""When each machine next wants to be called, asked again only of those that something has happened to.

A stack takes thousands of inputs per second in a large mesh, most of which concern one machine out of seven; to ask
all of them for their next timeout after each would cost more than the input did. Whoever gives an input to a machine
says so (`touch`). A machine that was touched without need is merely asked once more; one that was not, though its
timers moved, would be called late: so everything goes through one place, `Consequences.run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from ictp2p.core.packets import Channel


class Timetable:
    """The timeouts of one stack's machines.

    Args:
        machines: by channel, in the order in which those that are due at one time are called.
    """

    def __init__(self, machines: Mapping[Channel, Any]) -> None:
        self._machines = machines
        self._due: dict[Channel, float] = dict.fromkeys(machines, inf)
        self._stale: dict[Channel, None] = dict.fromkeys(machines)
        self._soonest = inf

    def touch(self, channel: Channel) -> None:
        """A machine got an input: its timeout may have moved."""
        self._stale[channel] = None

    def due(self, now: float) -> list[Channel]:
        """The channels whose machines are due, in order."""
        if self._stale:
            self._refresh()
        return [channel for channel, due in self._due.items() if due <= now]

    def next_timeout(self) -> float:
        """When the next machine is due; infinite if none ever is."""
        if self._stale:
            self._refresh()
        return self._soonest

    def _refresh(self) -> None:
        for channel in self._stale:
            machine = self._machines.get(channel)
            if machine is not None:
                due = machine.next_timeout()
                self._due[channel] = inf if due is None else due
        self._stale.clear()
        self._soonest = min(self._due.values())
