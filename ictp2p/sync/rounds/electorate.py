"""Who votes on what follows: those who should (`voters`), once a quorum of them has said that it is there.

A voter may have died without anybody's having noticed, and a vote that is left to it is lost for good. So nobody stops
voting, as a leaver, after a goodbye, or because it is thought dead, before those who would vote without it were asked
what they hold (`Inquire`), and a quorum of them has answered since it was known that it goes. A decision needs a quorum
of those who voted before it, who are dropped among them: without that question it need not be one of those who stay.
"""

from __future__ import annotations

import math

from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.restore import Survey
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.rounds.voters import desired_voters
from ictp2p.sync.values import Value, quorum
from ictp2p.types import PeerId


class Electorate:
    """The leavers, and since when which voters are to go."""

    def __init__(self, me: PeerId, profile: RoundProfile, sight: Sight, survey: Survey) -> None:
        self._me = me
        self._profile = profile
        self._sight = sight
        self._survey = survey
        self.leaving: dict[PeerId, float] = {}
        """When each leaver last said that it leaves."""
        self._dropping: dict[PeerId, float] = {}
        """Voters who are to vote no longer, and since when this peer has known it."""
        self._asked = -math.inf

    @property
    def leaves(self) -> bool:
        """Whether this peer is a leaver itself."""
        return self._me in self.leaving

    def leave(self, sender: PeerId, now: float) -> None:
        """Take a LEAVE. It is repeated until its sender may go: who falls silent and stays has begun another life."""
        self.leaving[sender] = now

    def viewed(self) -> None:
        """The view changed: forget leavers that have left."""
        views = (view for view in self._sight.clusters.values() if view.alive)
        living = {peer for view in views for peer in (view.leader, *view.candidates)}
        self.leaving = {peer: at for peer, at in self.leaving.items() if peer in living or peer == self._me}

    def look(self, tip: Value, now: float) -> None:
        """See who leaves and who is to be dropped by now; whoever is new among these has the heirs asked again."""
        self.leaving = {peer: at for peer, at in self.leaving.items() if now < at + self._profile.voter_grace}
        known, chosen = self._dropping, self._chosen(tip, now)
        self._dropping = {voter: known.get(voter, now) for voter in tip.voters if voter not in chosen}
        if not self._dropping.keys() <= known.keys():
            self._asked = -math.inf

    def voters(self, tip: Value, now: float) -> tuple[PeerId, ...]:
        """The voters of the value that follows `tip`, as of the last look."""
        chosen = self._chosen(tip, now)
        if self.leaves and self._me in chosen:
            return (self._me,)  # only if nobody stays: then whoever coordinates lets the others go, and goes last
        return tip.voters if self.silent(tip, now) else chosen

    def silent(self, tip: Value, now: float) -> tuple[PeerId, ...]:
        """Of those who are to vote without others who did, who has not answered since; nobody, if a quorum has."""
        if not self._dropping:
            return ()
        heirs = self._chosen(tip, now)
        heard = self._survey.heard_since(max(self._dropping.values()))
        if self._me in heirs:
            if self.leaves:
                return ()
            heard.add(self._me)
        return () if quorum(heirs, heard) else tuple(heir for heir in heirs if heir not in heard)

    def inquiry(self, tip: Value, now: float) -> tuple[tuple[PeerId, ...], float | None]:
        """Whom to ask now whether it is there, and when to look again; None if nobody's answer is missing."""
        silent = self.silent(tip, now)
        if not silent:
            return (), None
        due = now >= self._asked + self._profile.retry
        if due:
            self._asked = now
        return silent if due else (), self._asked + self._profile.retry

    def _chosen(self, tip: Value, now: float) -> tuple[PeerId, ...]:
        return desired_voters(tip.voters, self._sight, self.leaving, self._profile.max_voters, now)
