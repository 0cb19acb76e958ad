"""What the coordinator would have decided next, and why it waits if it waits.

Every peer keeps this book, whoever coordinates: READYs and votes go to whom their senders take for the coordinator,
and a peer that becomes it has what reached it, and is soon told the rest. `next_value` is what it is asked after every
input: given the newest decision and the time, which value should follow? It notes while it answers (since when some
are READY, whose READY it turned away, that there was no plan), as inputs and decisions have it note others: all of that
is about when, and with whom, an attempt is made, and grows again at whoever coordinates next. Whether an attempt counts
is in the chain alone. So there is no state to hand over and none to roll back.

Between rounds: adopt the first state, open the next attempt once nothing is worth waiting for any more (`waiting`), or
mend the voters. While nobody stands READY from the agreed state, it is found out whether anybody still holds that
(`restore`). While an attempt is open: close it once its outcome is known (`ballot_box`), or where another plan would be
done sooner (`replanning`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from ictp2p.machine import earliest
from ictp2p.sync.credits import advanced
from ictp2p.sync.messages import Failed, Ready, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.ballot_box import BallotBox, Ruling
from ictp2p.sync.rounds.electorate import Electorate
from ictp2p.sync.rounds.failures import Failures
from ictp2p.sync.rounds.foresight import Foresight
from ictp2p.sync.rounds.notices import StateMissing
from ictp2p.sync.rounds.opening import Opener, Standing, elect_spec, rejections
from ictp2p.sync.rounds.readies import Readies, RollCall
from ictp2p.sync.rounds.replanning import Replanning
from ictp2p.sync.rounds.restore import Survey, restoring
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.rounds.waiting import Waiting
from ictp2p.sync.values import ATTENDS, Close, Open, Spec, StateRef, Value, Voters, upcoming
from ictp2p.types import ClusterId, PeerId


@dataclass(frozen=True, slots=True)
class Step:
    """The value to propose now, if any; why not, if none; when to look again; whom to turn away, and what for."""

    value: Value | None
    reason: str
    wake: float | None = None
    rejected: tuple[tuple[PeerId, Spec, str], ...] = ()
    ask: tuple[PeerId, ...] = ()
    """Whom to ask what state it holds."""
    alarm: StateMissing | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An attempt that could not be opened: what it was to be made of, why not, and when to try that again."""

    question: object
    reason: str
    until: float


class Coordinator:
    """The book of READYs, verdicts, offers and leavers, and the question what comes next."""

    def __init__(
        self,
        me: PeerId,
        profile: RoundProfile,
        sight: Sight,
        opener: Opener,
        survey: Survey,
    ) -> None:
        self._me = me
        self._profile = profile
        self._sight = sight
        self._opener = opener
        self.survey = survey
        self._readies = Readies(sight)
        self._waiting = Waiting(profile, sight)
        self._failures = Failures(profile, sight)
        self._offers: dict[PeerId, bytes] = {}
        self._box = BallotBox()
        self._replanning = Replanning(profile)
        self._foresight = Foresight(opener, sight)
        self._round = 0
        """That this book is about."""
        self._opened: Open | None = None
        self._opened_at = 0.0
        self._office_at = 0.0
        self._refusal: _Refusal | None = None
        self._misfits: dict[PeerId, str] = {}
        """Who was turned away from the attempt to come with a call of its own, and what it was told."""
        self.electorate = Electorate(me, profile, sight, survey)

    def ready(self, sender: PeerId, message: Ready) -> None:
        """Take a READY; the newest of a cluster by (term, round) counts."""
        self._readies.put(sender, message)
        self._misfits.pop(sender, None)
        if message.base is not None and message.base.digest:
            self._offers.setdefault(sender, message.base.digest)

    def withdraw(self, sender: PeerId, cluster: ClusterId) -> None:
        """Drop a READY."""
        self._readies.withdraw(sender, cluster)

    def verdict(self, sender: PeerId, message: Vote | Failed) -> None:
        """Take a vote or a failure."""
        self._box.put(sender, message)

    def progressed(self, done: float) -> None:
        """This peer holds so much of each result of the open attempt that is to come to it, from 0 to 1."""
        self._replanning.progressed(done)

    def offer(self, sender: PeerId, digest: bytes) -> None:
        """Take a state to begin with."""
        self._offers[sender] = digest

    def viewed(self) -> None:
        """The view changed: forget what the dead said, leavers that have left, and that there was no plan before."""
        self._refusal = None
        self._readies.viewed()
        self.survey.viewed()
        self.electorate.viewed()

    def inaugurated(self, now: float) -> None:
        """This peer is the coordinator from now on: what it did not see happen gets its time again."""
        self._office_at = now
        self.survey.reset()

    def decided(self, slot: int, value: Value, now: float) -> None:
        """Take a decision. After one that was missed it may be of a later round, and what was noted of ours is over."""
        if value.round > self._round:
            self._turn_to(value.round)
        if isinstance(value, Open):
            self._opened, self._opened_at = value, now
            self._misfits.clear()
            self._replanning.opened(value.round, now)
            return
        opened, self._opened = self._opened, None
        if not isinstance(value, Close):
            return
        self._waiting.closed(now)
        if value.committed:
            self._waiting.committed(opened, now)
            self._foresight.committed(opened, now - self._opened_at, now)
            self._offers.clear()
            self._turn_to(value.round + 1)
        elif opened is not None and (opened.round, opened.attempt) == (value.round, value.attempt):
            late = not self._replanning.gave_up
            for part in self._failures.aborted(opened, self._box.on(opened), value.camps, late=late):
                self._readies.withdraw(part.leader, part.cluster, before=slot)  # others may know of it before us

    def next_value(self, tip: Value, now: float) -> Step:
        """The value that should follow `tip`."""
        self.electorate.look(tip, now)
        step = self._closing(tip, now) if isinstance(tip, Open) else self._between(tip, now)
        ask, wake = self.electorate.inquiry(tip, now)
        return step if wake is None else replace(step, wake=earliest([step.wake, wake]), ask=(*step.ask, *ask))

    def _turn_to(self, round_: int) -> None:
        self._round = round_
        self._misfits.clear()
        self._waiting.turn()
        self._failures.turn()

    def _closing(self, tip: Open, now: float) -> Step:
        self._waiting.came(self._readies.of_round(tip.round), now)
        ruling = self._box.count(tip, self._sight, self._profile, self._opened_at, self._office_at, now)
        number = f"round {tip.round} attempt {tip.attempt}"
        if ruling.committed is None:
            open_ = f"{number} is open: {ruling.reason}"
            if not self._may_turn(tip):
                return Step(None, open_, ruling.wake)
            detour = self._detour(tip, now)
            if detour is None:
                return Step(None, open_, earliest([ruling.wake, self._replanning.wake()]))
            ruling = Ruling(False, detour)
        committed = bool(ruling.committed)
        state = advanced(tip, ruling.digest, ruling.holders) if committed else tip.state
        head = (tip.lineage, self.electorate.voters(tip), state, self._me, tip.round, tip.attempt)
        close = Close(*head, committed, ruling.digest, ruling.reason, ruling.holders, ruling.camps)
        return Step(close, f"closing {number}: {ruling.reason}")

    def _may_turn(self, tip: Open) -> bool:
        """Whether another plan may be tried: nobody is done, and this peer, which takes part, sees how far it came."""
        here = any(part.leader == self._me for part in tip.participants)
        return here and tip.spec.grouping == "all" and not self._box.on(tip)

    def _detour(self, tip: Open, now: float) -> str | None:
        """Why another plan should be tried; None where that is not worth it."""
        edges = self._failures.edges

        def ask(forecast: bool) -> tuple[float, float]:
            return self._opener.rival(tip, edges, forecast=forecast)

        return self._replanning.look(self._opened_at, ask, now)

    def _between(self, tip: Value, now: float) -> Step:
        adopted = self._adoption(tip)
        if adopted is not None:
            return Step(self._reseat(tip, adopted), "adopting the first state")
        opening = self._opening(tip, now)
        if opening.value is not None:
            return opening
        if self.electorate.leaves and self.electorate.silent_heirs(tip):
            return Step(None, "asking whether those who are to vote are there", opening.wake, opening.rejected)
        if set(self.electorate.voters(tip)) != set(tip.voters):
            return Step(self._reseat(tip, tip.state), "changing the voters", opening.wake, opening.rejected)
        return self._surveyed(tip, opening, now)

    def _surveyed(self, tip: Value, opening: Step, now: float) -> Step:
        """Nothing can be opened: is there anybody who holds what the next round starts from?"""
        if any(ready.spec.kind == "sync" for _, ready in self._standing(tip).values()):
            self.survey.reset()
            return opening
        found = self.survey.look(tip, now)
        wake = earliest([opening.wake, found.wake])
        value = restoring(tip, self.electorate.voters(tip), self._me, found)
        return Step(value, found.reason or opening.reason, wake, opening.rejected, found.ask, found.alarm)

    def _reseat(self, tip: Value, state: StateRef) -> Voters:
        return Voters(tip.lineage, self.electorate.voters(tip), state, self._me, *upcoming(tip))

    def _adoption(self, tip: Value) -> StateRef | None:
        living = [peer for peer in self._offers if self._sight.lives(peer)]
        if tip.state.version or not living:
            return None
        provider = self._me if self._me in living else living[0]
        return StateRef(1, self._offers[provider], (provider,))

    def _standing(self, tip: Value) -> Standing:
        return self._readies.standing(tip, self._failures.barred)

    def _opening(self, tip: Value, now: float) -> Step:
        roll = self._readies.call(tip, self._failures, self.electorate.leaving, now)
        if not roll.standing:
            self._waiting.turn()
            self._failures.pardon()
            expected = ", ".join(roll.absent) or "nobody"
            wake = self._foresight.look(tip, roll, now)
            return Step(None, f"nobody is READY for round {roll.round}; expecting {expected}", wake)
        if all(ready.weight <= ATTENDS for _, ready in roll.standing.values()):
            return Step(None, f"whoever is READY for round {roll.round} would only attend it")
        wait = self._waiting.look(roll, now, self._replanning.given_up)
        if wait is None:
            return self._open(tip, roll, now)
        return Step(None, wait.reason, earliest([wait.until, self._foresight.look(tip, roll, now)]))

    def _open(self, tip: Value, roll: RollCall, now: float) -> Step:
        spec = elect_spec(roll.standing, self._sight.mine)
        rejected = rejections(roll.standing, spec)
        self._misfits |= {leader: reason for leader, own, reason in rejected if own.kind != "sync"}
        opened = self._made(tip, self._readies.elect(roll.standing, spec), now)
        if isinstance(opened, _Refusal):
            return Step(None, opened.reason, opened.until, rejected)
        if opened.attempt == 1:
            told = "; ".join(filter(None, [opened.reason, self._waiting.latecomer()]))
            opened = structs.replace(opened, reason=told[:1024])
            self._waiting.opened(roll)
        return Step(opened, f"opening round {opened.round} attempt {opened.attempt}: {opened.reason}", None, rejected)

    def _made(self, tip: Value, chosen: Standing, now: float) -> Open | _Refusal:
        """The OPEN for `chosen`. Where there is none, planning is dear, and every message would ask for it again."""
        question = (tip, self.electorate.voters(tip), chosen, self._failures.edges)
        refusal = self._refusal
        if refusal is not None and now < refusal.until and refusal.question == question:
            return refusal
        opened = self._opener.open(*question, "; ".join(self._misfits.values()), self._failures.longer)
        if isinstance(opened, Open):
            return opened
        self._refusal = refusal = _Refusal(question, opened, now + self._profile.retry)
        return refusal
