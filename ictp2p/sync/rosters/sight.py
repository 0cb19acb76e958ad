"""What one worker sees of its cluster: who is alive, who is doubted, and the newest roster.

All of it may be out of date, and differ from what others see. Whoever leads decides by it whom to wait for and whom to
go on without; a mistake costs a roster more.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.sync.rosters.roster import Roster
from ictp2p.types import PeerId


@dataclass(slots=True)
class Sight:
    """As it is now."""

    me: PeerId
    alive: tuple[PeerId, ...] = ()
    """In order: everyone alive or suspected, this worker included."""
    suspects: frozenset[PeerId] = frozenset()
    roster: Roster | None = None
    """Of which this worker need not be a member."""

    @property
    def members(self) -> tuple[PeerId, ...]:
        """Those of the newest roster, first of them its leader."""
        return tuple(PeerId(peer) for peer in self.roster.members) if self.roster is not None else ()

    @property
    def alone(self) -> bool:
        """Whether there is nobody here, nor in the roster, but this worker."""
        return {*self.alive, *self.members} == {self.me}
