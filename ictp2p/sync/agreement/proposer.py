"""Getting one value decided in one slot: ballots, phases, retries.

The classic two phases (Lamport 2001), with one shortcut. Ballot number 1 of slot *s* belongs to the *author*
of the value decided in slot *s-1*, and to nobody else; so its owner may skip phase 1, since nothing can have been
accepted below it. That saves a round trip in every slot of a coordinator that stays (Multi-Paxos's stable leader
without a lease). Ownership must be a function of the decided value: "whoever saw slot s-1 decided" would not do,
because two proposers can both count a quorum for the same value and would then both skip phase 1. The owner
persists its own acceptance before it sends, so after a crash it finds ballot 1 used.

A value is chosen when a quorum has promised, not when the first was asked: that may take for as long as there is no
quorum. Until then a wish can be replaced, or withdrawn; promises count all the same.

Being outbid is answered at once the first time (the other bidder is most often dead), later after a growing,
jittered pause, so that two live bidders do not duel for ever.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ictp2p.machine import Effects, Send
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.learner import Learner, concerned
from ictp2p.sync.messages import HIGHEST, NO_BALLOT, Accept, Accepted, Ballot, Prepare, Promise, Refused
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.validity import follows
from ictp2p.sync.values import Value, quorum
from ictp2p.types import PeerId

_OWNED = 1


def owned(ballot: Ballot, tip: Value) -> bool:
    """Whether `ballot` may skip phase 1 in the slot after `tip`."""
    return ballot == (_OWNED, tip.author)


def may_bid(peer: PeerId, ballot: Ballot, tip: Value) -> bool:
    """Whether `peer` may ask for acceptance under `ballot` in the slot after `tip`."""
    return ballot.proposer == peer and (owned(ballot, tip) or _OWNED < ballot.number <= HIGHEST)


def misanswer(answer: Promise | Accepted | Refused, tip: Value) -> str | None:
    """Say why no acceptor of the slot after `tip` can have answered this, or None if one may have.

    A proposer takes over what others have accepted, and bids above what they have promised: both end on its disk.
    """
    match answer:
        case Promise(accepted=accepted, value=None) if accepted != NO_BALLOT:
            return f"no value, accepted under {accepted}"
        case Promise(ballot=ballot, accepted=accepted, value=value) if value is not None:
            if accepted.number < _OWNED or accepted > ballot:
                return f"a value, accepted under {accepted} before {ballot} was promised"
            return follows(tip, value)
        case Refused(ballot=ballot, promised=promised) if promised <= ballot or promised.number > HIGHEST:
            return f"{ballot} is refused in favour of {promised}"
    return None


@dataclass(slots=True)
class _Campaign:
    """One ballot: collecting promises while `value` is None, acceptances afterwards."""

    ballot: Ballot
    question: Prepare | Accept
    value: Value | None = None
    promises: dict[PeerId, Promise] = field(default_factory=dict)


class Proposer:
    """At most one ballot in flight, for the slot after the acceptor's newest decision."""

    def __init__(self, acceptor: Acceptor, learner: Learner, rng: random.Random, profile: RoundProfile) -> None:
        self._acceptor = acceptor
        self._learner = learner
        self._rng = rng
        self._profile = profile
        self._campaign: _Campaign | None = None
        self._highest = _OWNED
        self._outbid = 0
        self.wish: Value | None = None
        """What this peer wants decided; None if it wants nothing, or no more what it did."""
        self._wished_at = 0.0
        self.busy = False
        """Whether a wish for this slot was made."""
        self.wake: float | None = None
        """When `handle_timeout` is wanted."""

    def reset(self) -> None:
        """Forget everything: the slot is decided, or the wish is given up."""
        self._campaign = self.wish = self.wake = None
        self.busy = False
        self._outbid = 0

    def learnt(self) -> None:
        """The next slot begins: ballot numbers start again."""
        self.reset()
        self._highest = _OWNED

    def propose(self, value: Value, now: float) -> Effects:
        """Wish for `value`. Replaces an earlier wish unless that was sent already."""
        self.wish, self._wished_at = value, now
        if self.busy:
            return self._choose(now)
        self.busy = True
        return self._begin(now)

    def withdraw(self) -> None:
        """Wish for it no more, unless it was sent already; go on collecting promises."""
        self.wish = None

    def wavers(self, now: float) -> bool:
        """Whether what is wished for can still be replaced, and is old: it was true when it was said."""
        unsent = self.busy and (self._campaign is None or self._campaign.value is None)
        return unsent and (self.wish is None or now >= self._wished_at + self._profile.retry)

    def promised(self, sender: PeerId, message: Promise, now: float) -> Effects:
        """Count a promise."""
        campaign = self._campaign
        if campaign is None or campaign.value is not None or message.ballot != campaign.ballot:
            return []
        campaign.promises[sender] = message
        return self._choose(now)

    def _choose(self, now: float) -> Effects:
        """With a quorum of promises, go to phase 2 with the value that binds us, if any does, or the one wished for."""
        campaign = self._campaign
        if campaign is None or campaign.value is not None or not quorum(self._acceptor.voters, campaign.promises):
            return []
        bound = max(campaign.promises.values(), key=lambda p: p.accepted)
        value = bound.value if bound.accepted > NO_BALLOT else self.wish
        return [] if value is None else self._ask(campaign.ballot, value, now)

    def asked(self, value: Value) -> tuple[Ballot, frozenset[PeerId]]:
        """Under which ballot this peer asks for `value` to be accepted, and who was shown it; nobody if it does not."""
        campaign, tip = self._campaign, self._acceptor.tip
        if campaign is None or tip is None or campaign.value != value:
            return NO_BALLOT, frozenset()
        return campaign.ballot, concerned(tip, value)

    def refused(self, message: Refused, now: float) -> Effects:
        """Somebody bid higher: bid again above it, at once the first time."""
        self._highest = max(self._highest, message.promised.number)
        if self._campaign is None or message.ballot != self._campaign.ballot:
            return []
        return self._lose(now)

    def repeat(self, peer: PeerId) -> Effects:
        """Send `peer` once more what it has not answered."""
        campaign, acceptor = self._campaign, self._acceptor
        if campaign is None or peer == acceptor.me or peer not in acceptor.voters:
            return []
        if campaign.value is None:
            done = peer in campaign.promises
        else:
            done = self._learner.has_accepted(peer, campaign.ballot)
        return [] if done else [Send(peer, campaign.question)]

    def handle_timeout(self, now: float) -> Effects:
        """Repeat the ballot in flight, or begin one after a pause."""
        if self.wake is None or now < self.wake:
            return []
        if self._campaign is None:
            return self._begin(now)
        self.wake = now + self._profile.retry
        return self._broadcast()

    def _begin(self, now: float) -> Effects:
        acceptor = self._acceptor
        assert acceptor.tip is not None
        if acceptor.untouched and acceptor.tip.author == acceptor.me and self.wish is not None:
            return self._ask(Ballot(_OWNED, acceptor.me), self.wish, now)
        number = max(self._highest, acceptor.promised.number, _OWNED) + 1
        ballot = Ballot(number, acceptor.me)
        self._campaign = _Campaign(ballot, Prepare(acceptor.slot + 1, acceptor.tip.lineage, ballot))
        self.wake = now + self._profile.retry
        own = Promise(acceptor.slot + 1, ballot, acceptor.accepted, acceptor.value)
        persist = acceptor.promise(ballot)
        assert persist is not None
        return [persist, *self._broadcast(), *self.promised(acceptor.me, own, now)]

    def _ask(self, ballot: Ballot, value: Value, now: float) -> Effects:
        """Ask the voters, and show whomever else it concerns."""
        acceptor = self._acceptor
        assert acceptor.tip is not None
        persist = acceptor.accept(ballot, value)
        if persist is None:
            return self._lose(now)
        question = Accept(acceptor.slot + 1, ballot, value)
        self._campaign = _Campaign(ballot, question, value)
        self.wake = now + self._profile.retry
        self._learner.proposed(ballot, value)
        shown = sorted(concerned(acceptor.tip, value).difference(acceptor.voters))
        return [persist, *self._broadcast(), *(Send(peer, question) for peer in shown)]

    def _broadcast(self) -> Effects:
        return [effect for peer in self._acceptor.voters for effect in self.repeat(peer)]

    def _lose(self, now: float) -> Effects:
        self._campaign = None
        self._outbid += 1
        if self._outbid == 1:
            return self._begin(now)
        pause = min(self._profile.retry * 2.0 ** min(self._outbid - 2, 16), self._profile.backoff_max)
        self.wake = now + pause * (0.5 + self._rng.random())
        return []
