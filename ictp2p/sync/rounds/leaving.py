"""How a voter leaves without taking a quorum along: who has to know that it votes no longer, and when all do.

A peer that leaves asks every voter to let it go (`Leave`), and each answers once it does not count on it, even after a
crash of its own (`Excused`). What matters is who may need its vote later. Somebody that has not learnt of the decision
by which it stopped to vote asks the voters of before, and finds that decision only if a quorum of them answers, or
somebody else still knows it. So it waits for a quorum of those who vote now to have saved it, and for whoever may
coordinate next, on old news, to have heard of it. The dead are no exception: who is thought dead may have been cut off.

Nor is a vote left to somebody who has just died, and whom nobody has missed yet: who coordinates asks the heirs first
whether they are there, and drops nobody until a quorum of them is (`electorate`). So it is with a voter that is thought
dead, and has only been away: it may come back in time to agree.

The last one is an exception the other way. Somebody has to go last, and whoever votes alone does: once all others have
been let go, or have said goodbye, nobody is left who could need it.
"""

from __future__ import annotations

from ictp2p.machine import Effects, Send
from ictp2p.sync.agreement.chain import Agreement
from ictp2p.sync.messages import Excused
from ictp2p.sync.rounds.notices import Released
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import quorum
from ictp2p.types import PeerId


class Leaving:
    """One peer's leaving, and its part in that of others.

    Args:
        agreement: the chain of decisions, which says who votes.
        sight: who is there, as far as is known.
    """

    def __init__(self, agreement: Agreement, sight: Sight) -> None:
        self._me = agreement.me
        self._agreement = agreement
        self._sight = sight
        self._wanted = self._released = False
        self._voted_until = max(-1, agreement.slot - 1)
        """The newest slot after whose decision this peer is a voter, as far as it knows; of a former life it does not
        know, so until what that one learnt last. -1: it never was."""
        self._excused: dict[PeerId, int] = {}
        """Who said that this peer does not vote, after the decision of which slot."""
        self._let_go: set[PeerId] = set()
        """Leavers that this peer has excused."""
        self._companions: set[PeerId] = set()
        """Who else has voted since this peer began to leave."""

    @property
    def asks(self) -> bool:
        """Whether this peer wants to go, and has not been let go."""
        return self._wanted and not self._released

    def begin(self) -> None:
        """This peer wants to go."""
        self._wanted = True

    def viewed(self) -> None:
        """Membership has news: of leavers that have gone for good nothing is kept, unless this peer leaves too."""
        if not self._wanted:
            self._let_go.intersection_update(self._sight.workers())

    def excuse(self, leaver: PeerId) -> Effects:
        """Let a leaver know that this voter does not count on it, even after a crash."""
        tip = self._agreement.tip
        if tip is None or leaver in tip[1].voters or self._me not in tip[1].voters or leaver == self._me:
            return []
        self._let_go.add(leaver)
        return [*self._agreement.saved(), Send(leaver, Excused(tip[0]))]

    def excused(self, voter: PeerId, slot: int) -> None:
        """`voter` does not count on this peer, since the decision of `slot`."""
        self._excused[voter] = slot

    def follow(self, slot: int, voters: tuple[PeerId, ...], now: float) -> Effects:
        """See whether this peer may go: nobody counts on its vote, or nobody stays to take over.

        That those who vote are dead, as far as is known, lets go only who never voted: they may come back, and need it.
        """
        if self._me in voters:
            self._voted_until = slot
        if not self.asks:
            return []
        self._companions.update(voters)
        if self._me in voters:
            self._released = voters == (self._me,) and self._is_last()
        else:
            deserted = self._voted_until < 0 and all(self._sight.gone(v, now) for v in voters)
            self._released = deserted or self._is_excused(voters, now)
        return [Released(self._me in voters)] if self._released else []

    def _is_last(self) -> bool:
        """Whether all others have been let go, or left: who lives, who voted as this peer began to leave, and the dead.

        Whoever is thought dead may only have been cut off. It would come back, and find nobody. So would a newcomer
        that has been let in, and leads its cluster only in a moment.
        """
        companions = {peer for peer in self._companions if not self._sight.left(peer)}
        return self._let_go >= (companions | self._sight.everybody()) - {self._me}

    def _is_excused(self, voters: tuple[PeerId, ...], now: float) -> bool:
        """Whether those know that this peer does not vote who have to.

        The coordinator, or all voters: else it may make this peer a voter, on old news of it; and so may whichever
        voter coordinates next, if it lives, as all do who are not doubted. Of voters who all know it each may have
        gone. And if this peer voted before, a quorum of those who vote now: whoever has not learnt of that decision
        may need this peer's vote to find it, and could not if the few who have learnt of it died, or had not saved it.
        """
        known = {v for v, slot in self._excused.items() if slot > self._voted_until}
        told = self._agreement.coordinator in known or known.issuperset(voters)
        unaware = [v for v in voters if v not in known and not self._sight.doubted(v, now)]
        return told and not unaware and (self._voted_until < 0 or quorum(voters, known))
