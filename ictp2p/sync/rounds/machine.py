"""Rounds: who takes part, did it succeed, which state is the agreed one.

A round is two decisions with data in between. READY from every leader makes the coordinator decide OPEN, which
binds participants to leaders and terms; they reduce; their votes make it decide CLOSE. Parameters change only after
a CLOSE that commits, so there is no moment at which part of the mesh has applied what another part will not. This is
two-phase commit whose coordinator may die at any point: its decisions are in the chain of `agreement.chain`, and
whoever coordinates next continues from the newest (Gray and Lamport, "Consensus on Transaction Commit", 2006).

`Rounds` holds the agreement and is the one machine that a peer runs for both: give it every message of
`messages.SyncMessage`. Every peer runs it, leader or not; a follower votes and learns, and coordinates if it must.
Progress never waits for a timer: each input is followed by asking what can be said or decided now. Timers only
repeat what may have been lost, and bound waits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Effects, Message, Send, earliest
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.messages import (
    Excused,
    Failed,
    Holding,
    Inquire,
    Leave,
    Offer,
    Ready,
    Rejected,
    RoundMessage,
    Vote,
    Withdraw,
)
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.absence import Absence
from ictp2p.sync.rounds.coordinator import Coordinator
from ictp2p.sync.rounds.leaving import Leaving
from ictp2p.sync.rounds.opening import Opener, PlanAnswer, Planner, PlanQuestion, Validate
from ictp2p.sync.rounds.participant import Contribution, Part
from ictp2p.sync.rounds.restore import Held, Stock, Survey
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.values import Open, StateRef, Value, quorum, upcoming
from ictp2p.types import ClusterId, PeerId

__all__ = ["ClusterView", "Contribution", "PlanAnswer", "PlanQuestion", "RoundProfile", "Rounds"]


class Rounds:
    """One peer's part in the rounds of the mesh, and in deciding them.

    Args:
        me: this peer.
        agreement: its chain; not to be used directly any more.
        profile: timing.
        rng: spreads repeats in time.
        planner: makes the plan when this peer coordinates.
        validate: checks a plan, when it coordinates and when it takes part.
        stock: says which global state others can have of this peer; None as long as its worker may yet bring one.
    """

    def __init__(
        self,
        me: PeerId,
        agreement: Agreement,
        profile: RoundProfile,
        rng: random.Random,
        planner: Planner,
        validate: Validate,
        stock: Callable[[], Stock | None] = Stock,
    ) -> None:
        self.me = me
        self.agreement = agreement
        self.profile = profile
        self._rng = rng
        self._sight = Sight(me, profile.voter_grace, profile.straggler_floor)
        self._absence = Absence(self._sight, 3 * profile.straggler_floor)
        self._part = Part(me, validate)
        self._stock = stock
        opener = Opener(me, profile, planner, validate)
        survey = Survey(me, profile, self._sight, self._held, self._begun, lambda: self._seen)
        self._coordinator = Coordinator(me, profile, self._sight, opener, survey)
        self._spoken: tuple[object, ...] = ()
        self._repeat_at: float | None = None
        self._ask_at: float | None = None
        self._reason = "nothing was asked yet"
        self._in_office = False
        self._leaving = Leaving(agreement, self._sight)
        self._seen = 0
        """From which version of the state on this life was there when they were agreed on."""
        self._caught_up = False
        """Whether this life knows what the voters did before it."""

    @property
    def tip(self) -> tuple[int, Value] | None:
        """Newest known decision: (slot, value), or None."""
        return self.agreement.tip

    def start(self, now: float) -> Effects:
        """Begin. Goes on from the chain on the disk, if there is one."""
        effects: Effects = list(self.agreement.start(now))
        if self.agreement.tip is not None:
            slot, value = self.agreement.tip
            self._look_back(value)
            self._coordinator.decided(slot, value, now)
            effects += self._part.resume(value)
        return self._settle(effects, now)

    def bootstrap(self, value: Value, now: float) -> Effects:
        """Found a mesh (see `values.genesis`).

        Raises:
            LocalProtocolError: this peer already knows a chain.
        """
        return self._settle(self.agreement.bootstrap(value, now), now)

    def greet(self, peer: PeerId, now: float) -> Effects:
        """A connection to `peer` is up: whoever of the two is behind learns."""
        return self.agreement.greet(peer, now)

    def view(self, clusters: Mapping[ClusterId, ClusterView], now: float) -> Effects:
        """Take the membership room's newest view, whole; dead clusters stay in it as not alive."""
        self._sight.update(clusters, now)
        self._coordinator.viewed()
        self._leaving.viewed()
        self._part.viewed(self._sight.clusters)
        self.agreement.audience(self._sight.leaders(), self._sight.followers())
        return self._settle([], now)

    def suspects(self, peers: Collection[PeerId], now: float) -> Effects:
        """Take the set of single peers suspected beyond what the view says (followers, say)."""
        self._sight.suspect(peers, now)
        return self._settle([], now)

    def met(self, peers: Collection[PeerId], now: float) -> Effects:
        """Take who has greeted us, and not said goodbye: whoever leaves does not leave a newcomer alone."""
        self._sight.met = frozenset(peers)
        return self._settle([], now)

    def offer(self, digest: bytes, now: float) -> Effects:
        """Offer a state to begin with. The first state that is adopted becomes version 1; later offers do nothing."""
        self._part.offer = digest
        return self._settle([], now)

    def ready(self, contribution: Contribution, now: float) -> Effects:
        """Stand READY with `contribution` until it is committed, refused, passed or withdrawn.

        Raises:
            LocalProtocolError: it is another leader's, or its weight is not finite and positive.
        """
        if contribution.leader != self.me:
            raise LocalProtocolError(f"{self.me} cannot be READY for leader {contribution.leader}")
        if not _is_weight(contribution.weight):
            raise LocalProtocolError(f"weight {contribution.weight} is not finite and positive")
        tip = self.agreement.tip
        return self._settle([*self._part.stand(contribution, None if tip is None else tip[1])], now)

    def withdraw(self, now: float) -> Effects:
        """Stand READY no longer. An attempt that is open fails for this peer."""
        dropped = self._part.withdraw()
        if dropped is None:
            return self._settle([], now)
        withdrawal = Withdraw(self.agreement.slot, dropped.cluster, dropped.term)
        return self._settle(self._tell(withdrawal, now), now)

    def completed(self, round_: int, attempt: int, digest: bytes, now: float) -> Effects:
        """Vote: this peer holds the whole result, tentatively applied, with this digest.

        Raises:
            LocalProtocolError: the digest is empty or too long.
        """
        if not 0 < len(digest) <= 64:
            raise LocalProtocolError(f"a digest of {len(digest)} bytes cannot be voted")
        self._part.conclude(round_, attempt, (digest, "", ()))
        return self._settle([], now)

    def progressed(self, round_: int, attempt: int, done: float, now: float) -> Effects:
        """Say that this peer holds so much of each result of the attempt that is to come to it, from 0 to 1."""
        bound = self._part.bound
        if bound is not None and (bound.round, bound.attempt) == (round_, attempt):
            self._coordinator.progressed(done)
        return self._settle([], now)

    def failed(self, round_: int, attempt: int, reason: str, suspects: tuple[PeerId, ...], now: float) -> Effects:
        """Report that this peer cannot finish the attempt, why, and on whom it failed."""
        self._part.conclude(round_, attempt, (b"", reason[:1024], suspects))
        return self._settle([], now)

    def drop_out(self, now: float) -> Effects:
        """Leave for good: withdraw, and ask to vote no longer. `Released` says when it is done."""
        self._leaving.begin()
        return self.withdraw(now)

    def receive(self, sender: PeerId, message: Message, now: float) -> Effects:
        """Take any message of `messages.SyncMessage`.

        Raises:
            RemoteProtocolError: it cannot be; nothing was changed.
        """
        if not isinstance(message, RoundMessage):
            return self._settle(self.agreement.receive(sender, message, now), now)
        if isinstance(message, Ready) and not _is_weight(message.weight):
            raise RemoteProtocolError(f"{sender} is READY with weight {message.weight}, not finite and positive")
        if isinstance(message, Offer) and not message.digest:
            raise RemoteProtocolError(f"{sender} offers a state without a digest")
        effects: Effects = self.agreement.behind(sender, message.slot, now)
        return self._settle([*effects, *self._hear(sender, message, now)], now)

    def handle_timeout(self, now: float) -> Effects:
        """Repeat, and notice what time alone has changed."""
        effects = self.agreement.handle_timeout(now)
        if self._repeat_at is not None and now >= self._repeat_at:
            self._spoken = ()
        return self._settle(effects, now)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` is next wanted."""
        return earliest([self.agreement.next_timeout(), self._repeat_at, self._ask_at])

    @property
    def informed(self) -> bool:
        """Whether this peer knows what the voters do (`Agreement.informed`), and its cluster has no part in a round.

        That may hold a contribution of a former life, and is about to be decided.
        """
        opened = None if self.agreement.tip is None else self.agreement.tip[1]
        under_way = isinstance(opened, Open) and self._sight.mine in [p.cluster for p in opened.participants]
        return self.agreement.informed and not under_way

    @property
    def attended(self) -> bool:
        """Whether a quorum of the voters, and another one than this peer, is there for all that is known."""
        voters = () if self.agreement.tip is None else self.agreement.tip[1].voters
        return self.agreement.quorum_in_sight and bool({*voters} - {self.me, *self.agreement.missing})

    def in_touch(self) -> bool:
        """Whether a quorum of the voters has been met, and is there: those known by name only do not count."""
        if self.agreement.tip is None:
            return True
        voters = self.agreement.tip[1].voters
        missing = self.agreement.missing
        return quorum(voters, [v for v in voters if self._sight.lives(v) and v not in missing])

    def explain(self) -> str:
        """What this peer is waiting for, in words, for the status page."""
        tip, part = self.agreement.tip, self._part
        if tip is None:
            return "no chain is known: waiting for a peer of the mesh, or to found one"
        if not self.agreement.quorum_in_sight:
            missing, voters = self.agreement.missing, tip[1].voters
            return f"no quorum: {len(missing)} of {len(voters)} voters are suspected: {', '.join(missing)}"
        where = f"{self._reason}; {self.agreement.explain()}" if self._in_office else self.agreement.explain()
        if part.bound is not None:
            return f"round {part.bound.round} attempt {part.bound.attempt}: {part.progress}; {where}"
        return f"{'READY' if part.standing is not None else 'not READY' + self._lacking(tip[1].state)}; {where}"

    def _held(self) -> Held:
        """What this peer holds, by a number that the chain has given out.

        A checkpoint may be of a decision that is on no disk here: where data folders were rolled back together, say. To
        claim its number would have the others wait for news of that decision, for ever.
        """
        (version, digest), sealed = self._stock() or Stock()
        agreed = None if self.agreement.tip is None else self.agreement.tip[1].state
        if agreed is not None and sealed == agreed.digest != b"":
            return agreed.version, sealed
        return (version if agreed is not None and version <= agreed.version else 0, digest)

    def _begun(self) -> bool:
        """Whether our worker brings nothing more."""
        return self._stock() is not None

    def _lacking(self, agreed: StateRef) -> str:
        """That this peer lacks the agreed state, in words, and who may have it; nothing if it holds that."""
        version, digest = self._held()
        if agreed.version == 0 or digest == agreed.digest:
            return ""
        own = f"version {version}" if version else "what a checkpoint had" if digest else "none"
        holders = ", ".join(p for p in agreed.providers if p != self.me and self._sight.lives(p))
        source = f"of those who held it are in sight {holders}" if holders else "nobody in sight held it"
        return f": lacks version {agreed.version} of the state, holds {own}, and must be given it: {source}"

    def _hear(self, sender: PeerId, message: RoundMessage, now: float) -> Effects:
        match message:
            case Ready():
                self._coordinator.ready(sender, message)
            case Withdraw():
                self._coordinator.withdraw(sender, message.cluster)
            case Vote() | Failed():
                self._coordinator.verdict(sender, message)
            case Offer():
                self._coordinator.offer(sender, message.digest)
            case Leave():
                self._coordinator.electorate.leave(sender, now)
                return self._leaving.excuse(sender)
            case Excused():
                self._leaving.excused(sender, message.slot)
            case Inquire():
                return [Send(sender, Holding(self.agreement.slot, *self._held(), self._begun(), self._seen))]
            case Holding():
                self._coordinator.survey.heard(sender, message, now)
            case Rejected():
                tip = self.agreement.tip
                return [] if tip is None else [*self._part.rejected(message, tip[1])]
        return []

    def _settle(self, effects: Effects, now: float) -> Effects:
        """Follow decisions up, speak and propose, until nothing more can be said or decided at `now`."""
        settled: Effects = []
        while True:
            settled += effects
            for effect in effects:
                if isinstance(effect, Decided):
                    self._look_back(effect.value)
                    self._coordinator.decided(effect.slot, effect.value, now)
                    settled += self._part.decided(effect.value)
                    settled += self._absence.decided(effect.value, now)
            effects = self._act(now)
            if not effects:
                self._caught_up = self._caught_up or (self.agreement.tip is not None and self.agreement.informed)
                return settled

    def _look_back(self, value: Value) -> None:
        """Note what was decided before this life knew what the others do, and of an open round what may come of it.

        Disks may hold what was accepted, and not that it was decided: then this life completes a round of the former.
        """
        if not self._caught_up:
            self._seen = value.state.version + isinstance(value, Open) + 1

    def _act(self, now: float) -> Effects:
        """What follows from the state as it is: whom to doubt, what to say, what to propose."""
        early = self.agreement.catch_up(now)
        tip = self.agreement.tip
        if early or tip is None:
            return early
        voters = tip[1].voters
        self._sight.mind(voters, now)
        effects = self.agreement.suspects([v for v in voters if self._sight.doubted(v, now)], now)
        effects += self._part.look(self._sight)
        effects += self._speak(tip[0], tip[1], now)
        effects += self._conduct(tip[1], now)
        return effects + self._leaving.follow(tip[0], voters, now)

    def _speak(self, slot: int, tip: Value, now: float) -> Effects:
        """Tell the coordinator what it should know of this peer, if it is news, or long ago."""
        message = self._part.message(slot, tip)
        words: list[RoundMessage] = [] if message is None else [message]
        leave = Leave(slot)
        if self._leaving.asks:
            words.append(leave)
        speech = (self.agreement.coordinator, *words)
        if speech == self._spoken:
            return []
        self._spoken = speech
        self._repeat_at = now + self.profile.retry * (0.75 + 0.5 * self._rng.random()) if words else None
        others = [v for v in tip.voters if v not in (self.me, self.agreement.coordinator)] if leave in words else []
        effects = [effect for word in words for effect in self._tell(word, now)]
        return effects + [Send(voter, leave) for voter in others]

    def _tell(self, message: RoundMessage, now: float) -> Effects:
        coordinator = self.agreement.coordinator
        if coordinator == self.me:
            return self._hear(self.me, message, now)
        return [] if coordinator is None else [Send(coordinator, message)]

    def _conduct(self, tip: Value, now: float) -> Effects:
        """If this peer coordinates, and is not deciding something already: propose what comes next."""
        office, self._in_office = self._in_office, self.agreement.is_coordinator
        self._ask_at = self._sight.next_change(now)
        if not self._in_office:
            self.agreement.abandon()
            return []
        if not office:
            self._coordinator.inaugurated(now)
        if self.agreement.busy and not self.agreement.wavers(now):
            return []
        step = self._coordinator.next_value(tip, now)
        self._reason = step.reason
        self._ask_at = earliest([self._ask_at, step.wake])
        effects: Effects = [Send(peer, Inquire(self.agreement.slot)) for peer in step.ask]
        effects += [step.alarm] if step.alarm is not None else []
        for leader, spec, reason in step.rejected:
            effects += self._turn_away(leader, Rejected(self.agreement.slot, upcoming(tip)[0], reason, spec), now)
        if step.value is None:
            self.agreement.withdraw()
            return effects
        return effects + self.agreement.propose(step.value, now)

    def _turn_away(self, leader: PeerId, message: Rejected, now: float) -> Effects:
        return self._hear(self.me, message, now) if leader == self.me else [Send(leader, message)]


def _is_weight(weight: float) -> bool:
    return math.isfinite(weight) and weight > 0
