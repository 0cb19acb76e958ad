"""The life of one peer, as `fsm.LIFE` has it, told to whoever listens.

The training side says what happened; the table says what that means. What the present state does not answer is
no error here: a second member may die while the group is still being rebuilt, or while this peer drains.
"""

from __future__ import annotations

from ictp2p.fsm import LIFE, Fsm
from ictp2p.telemetry import Telemetry


class Life:
    """The top-level state of a peer."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._fsm = Fsm(LIFE)
        self._telemetry = telemetry

    @property
    def state(self) -> str:
        """Where the peer is in its life."""
        return self._fsm.state

    def happened(self, *triggers: str) -> None:
        """Follow the first of `triggers` that the present state answers, if any."""
        for trigger in triggers:
            if self._fsm.can(trigger):
                source = self._fsm.state
                target = self._fsm.fire(trigger)
                self._telemetry.event("life", source=source, target=target, trigger=trigger)
                return

    def __repr__(self) -> str:
        return f"<Life {self.state}>"
