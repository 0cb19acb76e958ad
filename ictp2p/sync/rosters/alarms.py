"""What people are told of a roster: who stands still, and that groups keep breaking.

Groups break, and are made again: that is their life, and nobody's business. People are told of what does not pass by
itself, each thing once: whom the group goes on without, as long as it does, and whose failures have gone on for so long
that neither a death nor a restart explains them, until they are fewer again.
"""

from __future__ import annotations

from ictp2p.machine import Effects
from ictp2p.sync.rosters.roster import GroupAils, Roster, WorkersStandStill
from ictp2p.types import PeerId

_ODD = 3
"""Failures in a row from which people are told: a death or a restart explains one, and what follows from it another."""


class Alarms:
    """Of what one worker has told the people who watch it."""

    def __init__(self) -> None:
        self._told_of: set[str] = set()
        """Whose failures in a row."""

    def of(self, roster: Roster, before: Roster | None) -> Effects:
        """What is new in `roster`, which followed `before`."""
        known = before.absent if before is not None else ()
        still = tuple(PeerId(peer) for peer in roster.absent if peer not in known)
        alarms: Effects = [WorkersStandStill(still)] if still else []
        trouble = roster.trouble
        if trouble is not None and trouble.times < _ODD:
            self._told_of.discard(trouble.culprit)
        elif trouble is not None and trouble.culprit not in self._told_of:
            self._told_of.add(trouble.culprit)
            alarms.append(GroupAils(trouble))
        return alarms
