"""What is known of how the groups of a cluster broke: what the next roster has to heed, and what it tells.

Each failure is told by a worker that noticed it, and is of the present roster. Most of what it teaches is for the next
one alone: whether somebody waited in a meeting to its deadline, so that who did not go is to be left out, and why it
broke, which the others would not see, as they hear of the new roster first. Only that a library did not come up is
remembered longer, since the same workers would lose another group to learn it anew (`devices`).

Whoever could not build its own part is named before all others, who saw no more than what followed from it.
"""

from __future__ import annotations

from collections.abc import Collection

from ictp2p.sync.rosters.roster import Generation, Roster, RosterFailed, Trouble
from ictp2p.types import PeerId

_REFUSALS = 16
"""Refusals of a library that are remembered: each costs the group a failed attempt to learn anew."""


class Failures:
    """Those that one worker has heard of."""

    def __init__(self) -> None:
        self._unmet: Generation = (0, 0)
        """The newest generation of which this worker knows that somebody waited in its meeting to the deadline."""
        self._trouble: tuple[Generation, Trouble] | None = None
        """What is known of how a generation broke."""
        self._refusals: list[tuple[frozenset[str], str]] = []
        """Which workers a library did not come up between."""

    def learn(self, roster: Roster, sender: PeerId, failure: RosterFailed) -> None:
        """Take what `sender` says of how `roster` broke."""
        generation, breach = roster.generation, failure.breach
        if breach.refused:
            news = (frozenset(roster.members), breach.refused)
            self._refusals = [*(r for r in self._refusals if r != news), news][-_REFUSALS:]
        if breach.kind == "unmet":
            self._unmet = generation
        known = self._trouble is not None and self._trouble[0] == generation
        if breach.kind == "unbuilt":
            self._trouble = generation, Trouble(failure.times, sender, breach.words)
        elif not known:
            self._trouble = generation, Trouble(0, "", breach.words)

    def unmet(self, roster: Roster) -> bool:
        """Whether somebody waited in the meeting of `roster` to its deadline."""
        return self._unmet == roster.generation

    def trouble(self, roster: Roster | None, times: int) -> Trouble | None:
        """Why `roster` broke, for the one after it; None if nobody said that it did.

        Args:
            roster: which; None where none was before.
            times: how many broke in a row, for what is nobody's in particular.
        """
        if roster is None or self._trouble is None or self._trouble[0] != roster.generation:
            return None
        trouble = self._trouble[1]
        return trouble if trouble.culprit else Trouble(times, "", trouble.words)

    def refused(self, members: Collection[str]) -> list[str]:
        """The libraries that did not come up between exactly these workers."""
        return [library for who, library in self._refusals if who == frozenset(members)]
