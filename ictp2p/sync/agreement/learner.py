"""Learning what is decided from the acceptors themselves, a hop before the proposer could tell.

A value is decided once a quorum has accepted it under one ballot, and whoever knows that knows the decision. In the
usual arrangement the acceptors tell the proposer, and it tells the others ("Paxos Made Simple", section 2.3, the
distinguished learner): three hops. Each round waits for two decisions, over the widest areas there are. So whoever has
a part in a decision is shown the proposal itself, and told of every acceptance: two hops for everybody, the proposer
among them, and one for an acceptor that makes a quorum with the proposer. *Price:* each voter tells all of them, in a
few dozen bytes. What was decided is told by the proposer all the same, by the number of its ballot to those who were
shown the value.

That a proposer asks for acceptance says that it has accepted: its own acceptance was on its disk before it asked. Of
each voter the newest acceptance is kept, and the newest proposal: what is forgotten so is told later, never wrongly.
"""

from __future__ import annotations

from ictp2p.sync.messages import NO_BALLOT, Ballot
from ictp2p.sync.values import Open, Value, quorum
from ictp2p.types import PeerId

_MOST = 32
"""Most peers that are told of acceptances: as many clusters as a mesh has whose leaders are all connected."""


def concerned(tip: Value, value: Value) -> frozenset[PeerId]:
    """Who waits for `value` to follow `tip`: those who vote now or next, and those who take part in its round."""
    leaders = {part.leader for each in (tip, value) if isinstance(each, Open) for part in each.participants}
    everybody = leaders.union(tip.voters, value.voters)
    return frozenset(everybody if len(everybody) <= _MOST else tip.voters)


class Learner:
    """What was proposed and accepted in the slot after the newest decision."""

    def __init__(self) -> None:
        self._accepted: dict[PeerId, Ballot] = {}
        self.ballot = NO_BALLOT
        """Of the newest proposal seen."""
        self._value: Value | None = None

    def reset(self) -> None:
        """The next slot begins."""
        self._accepted.clear()
        self.ballot, self._value = NO_BALLOT, None

    def proposed(self, ballot: Ballot, value: Value) -> None:
        """Take a proposal, of which two under one ballot are the same."""
        if ballot > self.ballot:
            self.ballot, self._value = ballot, value
        self.accepted(ballot.proposer, ballot)

    def accepted(self, voter: PeerId, ballot: Ballot) -> None:
        """Take the word of a voter, possibly ahead of the proposal itself."""
        self._accepted[voter] = max(ballot, self._accepted.get(voter, NO_BALLOT))

    def has_accepted(self, voter: PeerId, ballot: Ballot) -> bool:
        """Whether `voter` was heard to accept `ballot`, and nothing since."""
        return self._accepted.get(voter) == ballot

    def chosen(self, voters: tuple[PeerId, ...]) -> Value | None:
        """What a quorum of `voters` has accepted, if that is known."""
        agreed = [voter for voter, ballot in self._accepted.items() if ballot == self.ballot]
        return self._value if quorum(voters, agreed) else None

    def value(self, ballot: Ballot) -> Value | None:
        """What was proposed under `ballot`, if that was the newest proposal."""
        return self._value if ballot == self.ballot else None
