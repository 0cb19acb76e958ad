"""Where one worker stands: does its training thread want into the group, which thread is that, what broke here?

That is all a leader has to know of a worker, and the worker says it again and again, so no question is ever asked. A
report holds everything: one that was lost costs a repetition, and one that comes late is known by its number. Which
thread it is matters because one that restarted unnoticed knows nothing of the group that its predecessor was in.
"""

from __future__ import annotations

from ictp2p.sync.rosters.devices import HOST, Device
from ictp2p.sync.rosters.presence import Presence
from ictp2p.sync.rosters.roster import Breach, Generation, Roster, RosterFailed, RosterReady


class Worker:
    """This one.

    Args:
        life: greater in each process of one peer, as its incarnation is.
        presence: what is known of its training thread.
    """

    def __init__(self, life: int, presence: Presence) -> None:
        self.presence = presence
        self.ready = False
        """Whether its training thread wants into the group."""
        self.device = HOST
        """What that computes on."""
        self.calls = False
        """Whether it makes collective calls there, and does not train with a policy."""
        self._life, self._spell, self._sequence = life, 0, 0
        self._failed: Generation = (0, 0)
        """The newest generation that broke here."""
        self._breach = Breach()
        """How."""

    @property
    def up(self) -> bool:
        """Whether a group may count on its training thread."""
        return self.ready and self.presence.counted_on

    @property
    def has_trained(self) -> bool:
        """Whether a training thread ever came up in this life."""
        return self._spell > 0

    def wants(self, ready: bool, device: Device, calls: bool = False) -> bool:
        """Take whether a training thread is up that wants into the group; say whether that is news."""
        if ready == self.ready:
            return False
        self.ready, self.device, self.calls = ready, device, calls
        self._spell += ready
        if ready:
            self.presence.begin()
        return True

    def broke(self, generation: Generation, breach: Breach, now: float) -> bool:
        """Take that the group of that generation broke here; say whether that is news."""
        if generation <= self._failed:
            return False
        self._failed, self._breach = generation, breach
        if breach.kind == "unbuilt":
            self.presence.step_aside(now)
        return True

    def report(self, held: Roster | None) -> tuple[RosterReady | RosterFailed, ...]:
        """What to tell the leader now.

        Args:
            held: the newest roster known here.
        """
        self._sequence += 1
        holds = (held.term, held.number, held.leader) if held is not None else (0, 0, "")
        attended = self.presence.attended
        about = (self.device, attended, self.calls)
        ready = RosterReady(self.up, self._life, self._spell, self._sequence, *holds, *about)
        broken = held is not None and held.generation == self._failed
        return (ready, self.failure()) if broken else (ready,)

    def failure(self) -> RosterFailed:
        """How the newest group that broke here did."""
        return RosterFailed(*self._failed, self._breach, self.presence.times)
