"""The rendezvous store that the next roster needs, from when it is wanted until it is there.

A store is opened by whoever does I/O, is opened for one roster, and may never come: it is asked for by the roster's
number, and again after a while. After failures in a row it is not asked for at once, so that a group which breaks
whenever it is built is built ever more seldom.
"""

from __future__ import annotations

from ictp2p.machine import Effects
from ictp2p.sync.rosters.roster import StoreWanted


class NextStore:
    """At most one at a time.

    Args:
        patience: seconds after which one that was asked for and did not come is asked for again.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._asked = False
        self.wanted: int | None = None
        """The number of the roster that waits for it."""
        self.ask_at = 0.0
        """When it is asked for, for the first time or again."""

    def want(self, number: int, now: float, wait: float = 0.0) -> Effects:
        """Want one for the roster of that number, after `wait` seconds."""
        self.wanted, self._asked, self.ask_at = number, False, now + wait
        return self.ask(now)

    def ask(self, now: float, *, hurry: bool = False) -> Effects:
        """Ask for it if it is time. Who is in a hurry does not sit out the wait before the first time."""
        if self.wanted is None or (now < self.ask_at and (self._asked or not hurry)):
            return []
        self._asked, self.ask_at = True, now + self._patience
        return [StoreWanted(self.wanted)]

    def no_more(self) -> None:
        """It is there, or nobody needs it any more."""
        self.wanted = None
