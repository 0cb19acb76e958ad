"""A chain of decisions: Paxos, one decree per slot, each decision naming the voters of the next.

Roles, all played by one object: acceptor (`agreement.acceptor`), proposer (`agreement.proposer`), and the learner
here. A quorum is always one of *decided* voters, never of who is believed alive: beliefs differ between peers, and a
majority of one's own view is how meshes split in half.

An acceptor answers for the slot after its newest decision and for no other. Asked about an older slot, it
teaches the decision; asked about a newer one, it says what it knows (`Greet`) and is taught. So every exchange,
also a refused one, brings whoever is behind forward, and the asker repeats its question right behind the lesson.

Values that could not follow the newest decision are refused as protocol errors: a bug, or another version, at the
other end. Two different decisions for one slot must be impossible; seeing that raises, loudly.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Effects, Message, Notice, Send, earliest
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.history import History
from ictp2p.sync.agreement.learner import Learner, concerned
from ictp2p.sync.agreement.proposer import Proposer, may_bid, misanswer, owned
from ictp2p.sync.agreement.quorum_watch import QuorumLost, QuorumRegained, QuorumWatch
from ictp2p.sync.messages import HIGHEST, Accept, Accepted, Chosen, Decision, Greet, Prepare, Promise, Refused
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.validity import fault, follows, unreadable
from ictp2p.sync.values import Value, quorum
from ictp2p.types import PeerId


@dataclass(frozen=True, slots=True)
class Decided(Notice):
    """`value` is decided in `slot`.

    Told once per slot in a process's life, in order; a peer that was far behind is told only the newest.
    """

    slot: int
    value: Value


@dataclass(frozen=True, slots=True)
class ForeignChain(Notice):
    """`peer` belongs to a mesh that was founded separately; the two cannot become one. Told once of each peer."""

    peer: PeerId
    theirs: bytes
    ours: bytes
    longer: bool
    """Whether it has decided more than this one."""
    first: bool
    """Whether this is the first peer of that mesh."""


_STRANGERS = 256
"""Peers of other meshes that are remembered, so as not to be told of again."""


class Agreement:
    """Acceptor, proposer and learner of the chain.

    Args:
        me: this peer; its disk and its id go together.
        stored: what it last persisted under `acceptor.KEY`, or None.
        rng: for the pauses between bids, and for whom to compare notes with.
        profile: timing.

    Raises:
        StateError: `stored` cannot be read.
    """

    def __init__(self, me: PeerId, stored: bytes | None, rng: random.Random, profile: RoundProfile) -> None:
        self.me = me
        self._rng = rng
        self._profile = profile
        self._acceptor = Acceptor(me, stored)
        self._learner = Learner()
        self._proposer = Proposer(self._acceptor, self._learner, rng, profile)
        self._history = History(profile)
        self._resumed = self._acceptor.tip is not None
        if self._acceptor.tip is not None:
            self._history.add(self._acceptor.slot, self._acceptor.tip)
        self._suspects: frozenset[PeerId] = frozenset()
        self._known: dict[PeerId, int] = {}
        """The slot that each peer said last that it knows, in this life of ours."""
        self._audience: tuple[PeerId, ...] = ()
        self._wards: tuple[PeerId, ...] = ()
        self._foreign: dict[tuple[PeerId, bytes], None] = {}
        """Peers of other meshes, and of which."""
        self._early: dict[int, Value] = {}
        """Decisions that overtook those before them: packets between two peers may go different ways."""
        self._compare_at: float | None = None
        self._save_at: float | None = None
        self._quorum = QuorumWatch(profile.quorum_deadline)

    @property
    def tip(self) -> tuple[int, Value] | None:
        """Newest known decision: (slot, value), or None."""
        return None if self._acceptor.tip is None else (self._acceptor.slot, self._acceptor.tip)

    @property
    def slot(self) -> int:
        """Slot of the newest known decision, or -1."""
        return self._acceptor.slot

    @property
    def coordinator(self) -> PeerId | None:
        """First voter that is not suspected: who should propose. A belief, only good for liveness."""
        return next((v for v in self._acceptor.voters if v == self.me or v not in self._suspects), None)

    @property
    def is_coordinator(self) -> bool:
        """Whether this peer should propose."""
        return self.coordinator == self.me

    @property
    def busy(self) -> bool:
        """Whether a proposal of this peer is under way."""
        return self._proposer.busy

    @property
    def missing(self) -> tuple[PeerId, ...]:
        """Voters that are suspected."""
        return tuple(v for v in self._acceptor.voters if v != self.me and v in self._suspects)

    @property
    def quorum_in_sight(self) -> bool:
        """Whether enough voters are not suspected."""
        voters = self._acceptor.voters
        return quorum(voters, [v for v in voters if v == self.me or v not in self._suspects])

    def explain(self) -> str:
        """What agreement is doing, in words."""
        what = f"deciding slot {self.slot + 1}" if self.busy else f"slot {self.slot} is decided"
        return f"{what}, coordinator {self.coordinator or 'unknown'}"

    def start(self, now: float) -> Effects:
        """Begin: from now on notes are compared with others regularly."""
        self._arm(now)
        return []

    def bootstrap(self, value: Value, now: float) -> Effects:
        """Found a mesh: decide slot 0 alone.

        Raises:
            LocalProtocolError: this peer already knows a chain, or the value cannot be a first one.
        """
        if self._acceptor.tip is not None:
            raise LocalProtocolError(f"cannot found a mesh: slot {self.slot} of one is known already")
        wrong = fault(value)
        if wrong or value.voters != (self.me,) or value.author != self.me:
            raise LocalProtocolError(f"cannot found a mesh with {value}: {wrong or f'{self.me} must vote alone'}")
        effects = self._learn(0, value, now, tell=self._audience)
        return [*self.saved(), *effects]

    def propose(self, value: Value, now: float) -> Effects:
        """Try to have `value` decided in the next slot. Replaces an earlier wish that was not sent yet.

        Raises:
            LocalProtocolError: this peer is no voter, or the value cannot come next.
        """
        tip = self._acceptor.tip
        wrong = "no chain is known" if tip is None else follows(tip, value) or unreadable(value)
        if wrong or self.me not in self._acceptor.voters or value.author != self.me:
            raise LocalProtocolError(f"{self.me} cannot propose {value}: {wrong or 'not a voter, or not its author'}")
        return self._harvest(self._proposer.propose(value, now), now)

    def withdraw(self) -> None:
        """Wish for nothing now: what was proposed is not true any more."""
        self._proposer.withdraw()

    def wavers(self, now: float) -> bool:
        """Whether a proposal waits for promises, and should be made anew as things are by now."""
        return self._proposer.wavers(now)

    def abandon(self) -> None:
        """Stop pushing one's own proposal (it may still be decided)."""
        self._proposer.reset()

    def suspects(self, ids: Collection[PeerId], now: float) -> Effects:
        """Say who is suspected of being dead, as the membership room believes."""
        self._suspects = frozenset(ids)
        return self._watch(now)

    def audience(self, ids: Collection[PeerId], wards: Collection[PeerId] = ()) -> None:
        """Say whom to tell one's own decisions (`ids`), and whom everything that one learns (`wards`)."""
        self._audience = tuple(sorted(set(ids) - {self.me}))
        self._wards = tuple(sorted(set(wards) - {self.me}))
        kept = {*self._audience, *self._wards, *self._acceptor.voters}
        self._known = {peer: slot for peer, slot in self._known.items() if peer in kept}

    def greet(self, peer: PeerId, now: float) -> Effects:
        """A connection to `peer` is up: whoever of the two is behind gets the decisions."""
        self._history.lost(peer)  # what was under way on another connection
        return [] if peer == self.me else [Send(peer, self._greeting())]

    @property
    def informed(self) -> bool:
        """Whether this peer knows what every voter has said that it knows; those who are suspected say nothing.

        Who starts again has on its disk what was decided in its former life. Votes alone would not do: of two voters
        one may be a quorum by itself. A newcomer has nothing from before: it learns the newest first.
        """
        told = (v for v in self._acceptor.voters if v != self.me and v not in self._suspects)
        return not self._resumed or all(v in self._known and self._known[v] <= self.slot for v in told)

    def behind(self, sender: PeerId, slot: int, now: float) -> Effects:
        """`sender` knows `slot`: teach it, or ask it."""
        self._known[sender] = slot
        if slot < self.slot:
            return [Send(sender, each) for each in self._history.lesson(sender, slot, now)]
        return [Send(sender, self._greeting())] if slot > self.slot else []

    def receive(self, sender: PeerId, message: Message, now: float) -> Effects:
        """Take a message of the Paxos group.

        Raises:
            RemoteProtocolError: its value cannot be; nothing was changed.
        """
        if self._compare_at is None:
            self._arm(now)
        match message:
            case Greet():
                return self._on_greet(sender, message, now)
            case Decision():
                return self._on_decision(sender, message, now)
            case Chosen():
                return self._on_chosen(sender, message, now)
            case Prepare():
                return self._on_prepare(sender, message, now)
            case Accept():
                return self._on_accept(sender, message, now)
            case _:
                return self._harvest(self._on_answer(sender, message, now), now)

    def catch_up(self, now: float) -> Effects:
        """Learn the next decision, if it has come before those ahead of it. One at a time: each has consequences."""
        self._early = {slot: value for slot, value in self._early.items() if slot > self.slot}
        tip, value = self._acceptor.tip, self._early.get(self.slot + 1)
        if tip is None or value is None or follows(tip, value) is not None:
            return []
        return self._learn(self.slot + 1, value, now, tell=self._whom(value))

    def handle_timeout(self, now: float) -> Effects:
        """Repeat what was not answered, save what was learnt, compare notes."""
        effects = self._harvest(self._proposer.handle_timeout(now), now)
        if self._save_at is not None and now >= self._save_at:
            effects += self.saved()
        if self._compare_at is None or now >= self._compare_at:
            self._arm(now)
            others = sorted({*self._acceptor.voters, *self._audience} - {self.me})
            effects += self.greet(self._rng.choice(others), now) if others else []
        return effects + self._watch(now)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is next wanted."""
        return earliest([self._proposer.wake, self._save_at, self._compare_at, self._quorum.due])

    def saved(self) -> Effects:
        """Save what was learnt, if that is still to be done: before somebody else is told to rely on it."""
        if self._save_at is None:
            return []
        self._save_at = None
        return [self._acceptor.persist()]

    def _arm(self, now: float) -> None:
        self._compare_at = now + self._profile.anti_entropy * (0.75 + 0.5 * self._rng.random())

    def _greeting(self) -> Greet:
        return Greet(self.slot, b"" if self._acceptor.tip is None else self._acceptor.tip.lineage)

    def _on_greet(self, sender: PeerId, message: Greet, now: float) -> Effects:
        if self._acceptor.tip is None:
            return [Send(sender, self._greeting())] if message.slot >= 0 else []
        if message.slot >= 0 and message.lineage != self._acceptor.tip.lineage:
            return self._meet_foreign(sender, message.lineage, message.slot)
        effects = self.behind(sender, message.slot, now)
        return effects + self._proposer.repeat(sender) if message.slot < self.slot else effects

    def _on_decision(self, sender: PeerId, message: Decision, now: float) -> Effects:
        slot, value, tip = message.slot, message.value, self._acceptor.tip
        self._known[sender] = slot
        wrong = fault(value)
        if wrong:
            raise RemoteProtocolError(f"{sender} says that slot {slot} holds an impossible value: {wrong}")
        if tip is not None and value.lineage != tip.lineage:
            return self._meet_foreign(sender, value.lineage, slot)
        if slot <= self.slot:
            self._compare(sender, slot, value)
            return []
        if tip is not None and slot > self.slot + 1 and message.oldest <= self.slot + 1:
            if slot - self.slot <= self._profile.history:
                self._early[slot] = value
            return [Send(sender, self._greeting())]
        wrong = follows(tip, value) if tip is not None and slot == self.slot + 1 else None
        if wrong:
            raise RemoteProtocolError(f"{sender} says that slot {slot} holds what cannot come there: {wrong}")
        return self._learn(slot, value, now, tell=self._whom(value))

    def _on_chosen(self, sender: PeerId, message: Chosen, now: float) -> Effects:
        """What was shown before is decided; who missed that asks for it."""
        if message.slot <= self.slot:
            return []
        value = self._learner.value(message.ballot) if message.slot == self.slot + 1 else None
        return [Send(sender, self._greeting())] if value is None else self._learn(message.slot, value, now, self._wards)

    def _compare(self, sender: PeerId, slot: int, value: Value) -> None:
        known = self._history.value(slot)
        if known is not None and known != value:
            raise RemoteProtocolError(f"slot {slot} was decided twice: {known} here, {value} at {sender}")

    def _meet_foreign(self, peer: PeerId, lineage: bytes, slot: int) -> Effects:
        """Tell of a peer whose mesh is another one, and has decided `slot`."""
        assert self._acceptor.tip is not None
        if (peer, lineage) in self._foreign:
            return []
        first = all(lineage != met for _, met in self._foreign)
        self._foreign[peer, lineage] = None
        if len(self._foreign) > _STRANGERS:
            del self._foreign[next(iter(self._foreign))]
        return [ForeignChain(peer, lineage, self._acceptor.tip.lineage, slot > self.slot, first)]

    def _misplaced(self, sender: PeerId, slot: int, lineage: bytes, now: float) -> Effects | None:
        """What to answer a proposer that this peer cannot serve as an acceptor, or None if it can."""
        tip = self._acceptor.tip
        if tip is not None and lineage != tip.lineage:
            return self._meet_foreign(sender, lineage, slot - 1)
        if slot != self.slot + 1 or tip is None:
            return self.behind(sender, slot - 1, now)
        return None if sender in tip.voters else []

    def _on_prepare(self, sender: PeerId, message: Prepare, now: float) -> Effects:
        effects = self._misplaced(sender, message.slot, message.lineage, now)
        if effects is not None:
            return effects
        assert self._acceptor.tip is not None
        if self.me not in self._acceptor.voters:
            return []
        if owned(message.ballot, self._acceptor.tip) or not may_bid(sender, message.ballot, self._acceptor.tip):
            raise RemoteProtocolError(f"{sender} may not prepare {message.ballot}")
        acceptor = self._acceptor
        answer = Promise(message.slot, message.ballot, acceptor.accepted, acceptor.value)
        persist = acceptor.promise(message.ballot)
        if persist is None:
            return [Send(sender, Refused(message.slot, message.ballot, acceptor.promised))]
        return [persist, Send(sender, answer)]

    def _on_accept(self, sender: PeerId, message: Accept, now: float) -> Effects:
        effects = self._misplaced(sender, message.slot, message.value.lineage, now)
        if effects is not None:
            return effects
        tip = self._acceptor.tip
        assert tip is not None
        wrong = follows(tip, message.value)
        if not may_bid(sender, message.ballot, tip):
            wrong = f"ballot {message.ballot} is not its own, or above {HIGHEST}"
        elif self._acceptor.differs(message.ballot, message.value):
            wrong = f"{message.ballot} stands for another value, which was accepted"
        if wrong:
            raise RemoteProtocolError(f"{sender} proposes for slot {message.slot} what cannot be: {wrong}")
        self._learner.proposed(message.ballot, message.value)
        return self._harvest(self._accept(sender, message, tip) if self.me in tip.voters else [], now)

    def _accept(self, sender: PeerId, message: Accept, tip: Value) -> Effects:
        """Accept what may come after `tip`, and say so to whoever waits for it."""
        persist = self._acceptor.accept(message.ballot, message.value)
        if persist is None:
            return [Send(sender, Refused(message.slot, message.ballot, self._acceptor.promised))]
        self._learner.accepted(self.me, message.ballot)
        answer = Accepted(message.slot, message.ballot)
        return [persist, *(Send(each, answer) for each in sorted(concerned(tip, message.value) - {self.me}))]

    def _on_answer(self, sender: PeerId, message: Message, now: float) -> Effects:
        if not isinstance(message, Promise | Accepted | Refused) or not self._expects(sender, message.slot):
            return []
        assert self._acceptor.tip is not None
        wrong = misanswer(message, self._acceptor.tip)
        if wrong:
            raise RemoteProtocolError(f"{sender} answers for slot {message.slot} what cannot be: {wrong}")
        match message:
            case Promise():
                return self._proposer.promised(sender, message, now)
            case Accepted():
                self._learner.accepted(sender, message.ballot)
            case Refused():
                return self._proposer.refused(message, now)
        return []

    def _expects(self, sender: PeerId, slot: int) -> bool:
        return slot == self.slot + 1 and sender in self._acceptor.voters

    def _harvest(self, effects: Effects, now: float) -> Effects:
        """If a quorum accepted, the slot is decided."""
        chosen = self._learner.chosen(self._acceptor.voters)
        if chosen is None:
            return effects + self._watch(now)
        return effects + self._learn(self.slot + 1, chosen, now, tell=self._whom(chosen))

    def _whom(self, value: Value) -> Collection[PeerId]:
        """Whom to tell that `value` is decided: everybody if this peer asked for it, else who relies on this peer."""
        _, asked = self._proposer.asked(value)
        return {*asked, *value.voters, *self._audience, *self._wards} - {self.me} if asked else self._wards

    def _learn(self, slot: int, value: Value, now: float, tell: Collection[PeerId]) -> Effects:
        ballot, asked = self._proposer.asked(value)
        self._acceptor.learn(slot, value)
        self._learner.reset()
        self._proposer.learnt()
        self._history.add(slot, value)
        self._save_at = now + self._profile.retry if self._save_at is None else self._save_at
        brief, whole = Chosen(slot, ballot), Decision(slot, value, self._history.oldest)
        sends: Effects = [Send(peer, brief) for peer in sorted(asked.intersection(tell))]
        sends += [Send(peer, whole) for peer in sorted({*tell} - asked)]
        return [*sends, Decided(slot, value), *self._watch(now)]

    def _watch(self, now: float) -> Effects:
        """Report a quorum that is lost for long, and its return."""
        if self._acceptor.tip is None or (not self.busy and self.quorum_in_sight):
            return [QuorumRegained()] if self._quorum.free() else []
        lost = self._quorum.stuck(now)
        return [QuorumLost(self._acceptor.voters, self.missing)] if lost else []
