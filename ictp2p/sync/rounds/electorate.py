"""Who votes on what follows: those who should (`voters`), as far as they have said themselves that they are there.

A vote that is left, or given, to somebody who is dead is lost for good, and enough of those are a quorum. Beliefs do
not tell: somebody may have died just now, and what a peer knows that was stopped for a while, or cut off, and is back,
is old. So they are asked (`Inquire`) as soon as it is known that the voters should change, and until they have: a round
that is under way may put that off, and by its end who has answered may be dead. An answer counts for a moment.

- Nobody votes for the first time who has not answered since.
- Nobody stops voting, as a leaver, after a goodbye, or because it is thought dead, before a quorum of those who would
  vote without it has answered. A decision needs a quorum of those who voted before it, who are dropped among them:
  without that question it need not be one of those who stay.
"""

from __future__ import annotations

import math

from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.restore import Survey
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.rounds.voters import desired_voters
from ictp2p.sync.values import Value, quorum
from ictp2p.types import PeerId

_FRESH = 2
"""An answer counts for this many times the pause between two questions."""


class Electorate:
    """The leavers, and since when which votes are to be given and taken."""

    def __init__(self, me: PeerId, profile: RoundProfile, sight: Sight, survey: Survey) -> None:
        self._me = me
        self._profile = profile
        self._sight = sight
        self._survey = survey
        self.leaving: dict[PeerId, float] = {}
        """When each leaver last said that it leaves."""
        self._chosen: tuple[PeerId, ...] = ()
        """Who should vote, as of the last look."""
        self._since: dict[PeerId, float] = {}
        """Since when this peer has known of each who votes and should not, or should and does not."""
        self._asked = -math.inf
        self._fresh = -math.inf
        """Since when an answer counts, as of the last look."""

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
        """See who leaves by now and who should vote; whoever is new among those has the others asked at once."""
        self.leaving = {peer: at for peer, at in self.leaving.items() if now < at + self._profile.voter_grace}
        self._chosen = desired_voters(tip.voters, self._sight, self.leaving, self._profile.max_voters, now)
        changes = frozenset(tip.voters) ^ frozenset(self._chosen)
        if not changes <= self._since.keys():
            self._asked = -math.inf
        self._since = {peer: self._since.get(peer, now) for peer in changes}
        self._fresh = now - _FRESH * self._profile.retry

    def voters(self, tip: Value) -> tuple[PeerId, ...]:
        """The voters of the value that follows `tip`."""
        if self.leaves and self._me in self._chosen:
            return (self._me,)  # only if nobody stays: then whoever coordinates lets the others go, and goes last
        if self.silent_heirs(tip):
            return tip.voters
        strangers = self._strangers(tip)
        return tuple(voter for voter in self._chosen if voter not in strangers)

    def silent_heirs(self, tip: Value) -> tuple[PeerId, ...]:
        """Of those who are to vote without others who did, who has not answered since; nobody, if a quorum has."""
        dropped = [self._since[voter] for voter in tip.voters if voter in self._since]
        if not dropped or (self.leaves and self._me in self._chosen):
            return ()
        heard = self._heard_since(max(dropped)) | {self._me}
        return () if quorum(self._chosen, heard) else tuple(heir for heir in self._chosen if heir not in heard)

    def inquiry(self, tip: Value, now: float) -> tuple[tuple[PeerId, ...], float | None]:
        """Whom to ask now whether it is there, and when to look again; None if nobody's answer matters."""
        dropping = any(voter in self._since for voter in tip.voters)
        asked = [peer for peer in self._chosen if peer != self._me and (dropping or peer in self._since)]
        if not asked:
            return (), None
        due = now >= self._asked + self._profile.retry
        if due:
            self._asked = now
        return tuple(asked) if due else (), self._asked + self._profile.retry

    def _strangers(self, tip: Value) -> tuple[PeerId, ...]:
        """Who is to vote for the first time, and has not answered."""
        newcomers = (peer for peer in self._chosen if peer not in tip.voters and peer != self._me)
        return tuple(peer for peer in newcomers if peer not in self._heard_since(self._since[peer]))

    def _heard_since(self, moment: float) -> set[PeerId]:
        """Who has answered since then, and lately."""
        return self._survey.heard_since(max(moment, self._fresh))
