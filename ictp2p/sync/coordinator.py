"""What the coordinator would have decided next, and why it waits if it waits.

Every peer keeps this book, whoever coordinates: READYs and votes go to whom their senders take for the coordinator,
and a peer that becomes it has what reached it, and is soon told the rest. `next_value` is what it is asked after every
input: given the newest decision and the time, which value should follow? It notes while it answers (since when some
are READY, whose READY it turned away, that there was no plan), as inputs and decisions have it note others: all of that
is about when, and with whom, an attempt is made, and grows again at whoever coordinates next. Whether an attempt counts
is in the chain alone. So there is no state to hand over and none to roll back.

Between rounds: adopt the first state, open the next attempt once everybody worth waiting for is READY, or mend
the voters. Worth waiting for is a cluster that is alive, not suspected, and means to train, until the straggler
timeout after most of them are READY; or, where a quorum is enough, until the deadline that the arrivals themselves give
(`ictp2p.sync.arrivals`). After an abort only the clusters of the failed attempt are worth it, so that a
straggler that was not waited for does not delay the retry. One of them whose leader is only suspected is given the
grace of a suspicion to be dead, or to have another leader. Whoever was accused must show that it lives by standing
READY again, which takes an accused that lives half a round trip and keeps a dead one out. While nobody stands READY
from the agreed state, it is found out whether anybody still holds that (`ictp2p.sync.restore`).

A cluster whose leader died may miss that round of the state, and loses nothing: what it has goes into the next. A
program that calls collectives by itself is told of a round that it missed by an error, though its workers did nothing
wrong. So the rounds of calls wait for the heir of a leader, as long as a cluster may take to find that it needs one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ictp2p.machine import earliest
from ictp2p.sync.arrivals import Arrivals
from ictp2p.sync.ballot_box import BallotBox, Outcome
from ictp2p.sync.messages import Failed, Ready, Vote
from ictp2p.sync.notices import StateMissing
from ictp2p.sync.opening import Opener, Standing, elect_spec, rejections
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.replanning import Replanning
from ictp2p.sync.restore import Survey, restoring
from ictp2p.sync.sight import Sight
from ictp2p.sync.values import (
    LOOKS_ON,
    Close,
    Open,
    Participant,
    Spec,
    StateRef,
    Value,
    Voters,
    advanced,
    same,
    upcoming,
)
from ictp2p.sync.voters import desired_voters
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
        self._readies: dict[ClusterId, tuple[PeerId, Ready]] = {}
        self._offers: dict[PeerId, bytes] = {}
        self._box = BallotBox()
        self._replanning = Replanning(profile)
        self._round = 0
        """That this book is about."""
        self._opened: Open | None = None
        self._opened_at = 0.0
        self._closed_at = 0.0
        self._committed_at: float | None = None
        self._office_at = 0.0
        self._first_at: float | None = None
        self._most_at: float | None = None
        self._usual = 0.0
        self._arrivals = Arrivals()
        self._expected: tuple[ClusterId, ...] = ()
        self._retry_of: frozenset[ClusterId] | None = None
        self._failures: list[tuple[PeerId, PeerId]] = []
        self._barred: frozenset[ClusterId] = frozenset()
        self._refusal: _Refusal | None = None
        self.leaving: dict[PeerId, float] = {}
        """When each leaver last said that it leaves."""

    def ready(self, sender: PeerId, message: Ready) -> None:
        """Take a READY; the newest of a cluster by (term, round) counts."""
        known = self._readies.get(message.cluster)
        if known is None or (known[1].term, known[1].round) <= (message.term, message.round):
            self._readies[message.cluster] = (sender, message)
        if message.base is not None and message.base.digest:
            self._offers.setdefault(sender, message.base.digest)

    def withdraw(self, sender: PeerId, cluster: ClusterId) -> None:
        """Drop a READY."""
        if cluster in self._readies and self._readies[cluster][0] == sender:
            del self._readies[cluster]

    def leave(self, sender: PeerId, now: float) -> None:
        """Take a LEAVE. It is repeated until its sender may go: who falls silent and stays has begun another life."""
        self.leaving[sender] = now

    def verdict(self, sender: PeerId, message: Vote | Failed) -> None:
        """Take a vote or a failure."""
        self._box.put(sender, message)

    def progressed(self, done: float) -> None:
        """This peer holds the result of so much of each share of the attempt that is open, from 0 to 1."""
        self._replanning.progressed(done)

    def offer(self, sender: PeerId, digest: bytes) -> None:
        """Take a state to begin with."""
        self._offers[sender] = digest

    def viewed(self) -> None:
        """The view changed: forget what the dead said, leavers that have left, and that there was no plan before.

        Of a cluster that has left as well: if it is back one day on other disks, its terms begin anew.
        """
        self._refusal = None
        clusters = self._sight.clusters
        self._readies = {
            name: (leader, ready)
            for name, (leader, ready) in self._readies.items()
            if (clusters[name].alive if name in clusters else not self._sight.knew(leader))
        }
        living = {peer for view in clusters.values() if view.alive for peer in (view.leader, *view.candidates)}
        self.leaving = {peer: at for peer, at in self.leaving.items() if peer in living or peer == self._me}

    def inaugurated(self, now: float) -> None:
        """This peer is the coordinator from now on: what it did not see happen gets its time again."""
        self._office_at = now
        self.survey.reset()

    def decided(self, value: Value, now: float) -> None:
        """Take a decision. After one that was missed it may be of a later round, and what was noted of ours is over."""
        if value.round > self._round:
            self._turn_to(value.round)
        if isinstance(value, Open):
            self._opened, self._opened_at = value, now
            self._replanning.opened(value.round, now)
            return
        opened, self._opened = self._opened, None
        if not isinstance(value, Close):
            return
        self._closed_at = now
        if value.committed:
            self._committed(now, idle=opened is not None and _idle(opened.spec, opened.participants))
            self._turn_to(value.round + 1)
        else:
            self._aborted(value, opened)

    def next_value(self, tip: Value, now: float) -> Step:
        """The value that should follow `tip`."""
        self.leaving = {peer: at for peer, at in self.leaving.items() if now < at + self._profile.voter_grace}
        return self._closing(tip, now) if isinstance(tip, Open) else self._between(tip, now)

    def _committed(self, now: float, *, idle: bool) -> None:
        self._arrivals.committed(self._expected, now)
        self._expected = ()
        if not idle:  # the phase of whoever trains goes on
            self._committed_at = now
        self._offers.clear()

    def _turn_to(self, round_: int) -> None:
        self._round = round_
        self._first_at = self._most_at = None
        self._retry_of = None
        self._failures.clear()
        self._barred = frozenset()

    def _aborted(self, close: Close, opened: Open | None) -> None:
        if opened is None or (opened.round, opened.attempt) != (close.round, close.attempt):
            return
        self._retry_of = frozenset(p.cluster for p in opened.participants)
        accusations = self._accusations(opened)
        self._failures = sorted({*self._failures, *accusations})
        for part in opened.participants:
            verdict = self._box.on(opened).get(part.leader)
            silent = verdict is None and any(accused == part.leader for _, accused in accusations)
            if silent or (isinstance(verdict, Failed) and not verdict.standing):
                self.withdraw(part.leader, part.cluster)
        if close.attempt >= self._profile.tolerance:
            self._bar(opened, accusations)

    def _accusations(self, opened: Open) -> list[tuple[PeerId, PeerId]]:
        """(who, whom) in the failed attempt: named in a FAILED, or holding another digest than most."""
        verdicts = self._box.on(opened)
        leaders = [p.leader for p in opened.participants]
        named = [
            (peer, accused)
            for peer, verdict in verdicts.items()
            if isinstance(verdict, Failed)
            for accused in verdict.suspects
            if accused in leaders and accused != peer
        ]
        votes = {peer: v.digest for peer, v in verdicts.items() if not isinstance(v, Failed)}
        return named + [(a, b) for a in votes for b in votes if votes[a] != votes[b]]

    def _bar(self, opened: Open, accusations: list[tuple[PeerId, PeerId]]) -> None:
        """Too many attempts came to nothing: the most accused (never this peer) sits the round out."""
        counts = [(sum(b == p.leader for _, b in accusations), p.cluster) for p in opened.participants]
        mine = self._sight.mine
        worst = max((c for c in counts if c[0] and c[1] != mine), default=None)
        if worst is not None and len(opened.participants) > 1:
            self._barred |= {worst[1]}

    def _closing(self, tip: Open, now: float) -> Step:
        self._arrivals.came([name for name, (_, ready) in self._readies.items() if ready.round == tip.round], now)
        outcome = self._box.count(tip, self._sight, self._profile, self._opened_at, self._office_at, now)
        number = f"round {tip.round} attempt {tip.attempt}"
        if outcome.committed is None:
            open_ = f"{number} is open: {outcome.reason}"
            if not self._may_turn(tip):
                return Step(None, open_, outcome.wake)
            detour = self._detour(tip, now)
            if detour is None:
                return Step(None, open_, earliest([outcome.wake, self._replanning.wake()]))
            outcome = Outcome(False, detour)
        committed = bool(outcome.committed)
        state = advanced(tip, outcome.digest, outcome.holders) if committed else tip.state
        head = (tip.lineage, self._voters(tip, now), state, self._me, tip.round, tip.attempt)
        close = Close(*head, committed, outcome.digest, outcome.reason, outcome.holders)
        return Step(close, f"closing {number}: {outcome.reason}")

    def _may_turn(self, tip: Open) -> bool:
        """Whether another plan may be tried: nobody is done, and this peer, which takes part, sees how far it came."""
        here = any(part.leader == self._me for part in tip.participants)
        return here and tip.spec.grouping == "all" and not self._box.on(tip)

    def _detour(self, tip: Open, now: float) -> str | None:
        """Why another plan should be tried; None where that is not worth it."""
        failures = tuple(self._failures)
        return self._replanning.look(self._opened_at, lambda: self._opener.rival(tip, self._readies, failures), now)

    def _between(self, tip: Value, now: float) -> Step:
        adopted = self._adoption(tip)
        if adopted is not None:
            return Step(self._reseat(tip, now, adopted), "adopting the first state")
        opening = self._opening(tip, now)
        if opening.value is not None:
            return opening
        if set(self._voters(tip, now)) != set(tip.voters):
            return Step(self._reseat(tip, now, tip.state), "changing the voters", opening.wake, opening.rejected)
        return self._surveyed(tip, opening, now)

    def _surveyed(self, tip: Value, opening: Step, now: float) -> Step:
        """Nothing can be opened: is there anybody who holds what the next round starts from?"""
        if any(ready.spec.kind == "sync" for _, ready in self._standing(tip).values()):
            self.survey.reset()
            return opening
        found = self.survey.look(tip, now)
        wake = earliest([opening.wake, found.wake])
        value = restoring(tip, self._voters(tip, now), self._me, found)
        return Step(value, found.reason or opening.reason, wake, opening.rejected, found.ask, found.alarm)

    def _reseat(self, tip: Value, now: float, state: StateRef) -> Voters:
        return Voters(tip.lineage, self._voters(tip, now), state, self._me, *upcoming(tip))

    def _adoption(self, tip: Value) -> StateRef | None:
        if tip.state.version or not self._offers:
            return None
        provider = self._me if self._me in self._offers else next(iter(self._offers))
        return StateRef(1, self._offers[provider], (provider,))

    def _voters(self, tip: Value, now: float) -> tuple[PeerId, ...]:
        chosen = desired_voters(tip.voters, self._sight, self.leaving, self._profile.max_voters, now)
        # A leaver is chosen only if nobody stays: then whoever coordinates lets the others go, and goes last.
        return (self._me,) if self._me in chosen and self._me in self.leaving else chosen

    def _standing(self, tip: Value) -> Standing:
        """READYs that could go into the next attempt."""
        return {
            name: (leader, ready)
            for name, (leader, ready) in sorted(self._readies.items())
            if ready.round == upcoming(tip)[0]
            and name not in self._barred
            and not _stale(ready, tip)
            and self._sight.doubt(name, leader, ready.term) is None
        }

    def _due(self, tip: Value, standing: Standing) -> list[ClusterId]:
        """Clusters that mean to take part and are not READY."""
        due = upcoming(tip)[0]
        stale = {name for name, (_, ready) in self._readies.items() if ready.round == due and _stale(ready, tip)}
        return [
            name
            for name, view in self._sight.clusters.items()
            if view.training
            and name not in standing
            and name not in self._barred | stale
            and view.leader not in self.leaving
            and (self._retry_of is None or name in self._retry_of)
        ]

    def _headless(self, standing: Standing) -> list[ClusterId]:
        """Clusters of the failed attempt that are only suspected: dead in a moment, or spoken for by an heir."""
        views = ((name, self._sight.clusters.get(name)) for name in sorted(self._retry_of or ()))
        return [name for name, view in views if view and view.alive and view.suspect and name not in standing]

    def _orphans(self, due: Sequence[ClusterId], standing: Standing, until: float) -> dict[ClusterId, float]:
        """Clusters that may be spoken for by an heir in a moment, and until when to wait for that."""
        waits = dict.fromkeys(self._headless(standing), self._closed_at + self._profile.suspect_grace)
        if _by_call(standing):
            bereft = {name: self._sight.bereft(name) for name in due}
            lost = {name: since for name, since in bereft.items() if since is not None}
            waits |= {name: min(since, until) + self._profile.heir_grace for name, since in lost.items()}
        return waits

    def _inherited(self, absent: Sequence[ClusterId], standing: Standing) -> bool:
        """Whether a cluster that is not READY for a call has found another leader in this round."""
        since = self._committed_at or 0.0
        return _by_call(standing) and any(self._sight.returned(name) > since for name in absent)

    def _opening(self, tip: Value, now: float) -> Step:
        standing = self._standing(tip)
        due = self._due(tip, standing)
        absent = [name for name in due if self._sight.steady(name)]
        if not standing:
            self._first_at, self._most_at, self._barred = None, None, frozenset()
            return Step(
                None, f"nobody is READY for round {upcoming(tip)[0]}; expecting {', '.join(absent) or 'nobody'}"
            )
        if self._first_at is None:
            self._first_at = now
        if self._most_at is None and len(standing) > len(absent) and not _onlookers(standing):
            self._most_at = now
        self._arrivals.came(standing, now)
        until = self._door(standing, absent)
        orphans = {name: end for name, end in self._orphans(due, standing, until).items() if now < end}
        if self._inherited(absent, standing):
            until += self._profile.heir_grace
        if absent and now < until:
            return Step(None, f"waiting for READY of {', '.join(absent)}", until)
        if orphans:
            return Step(None, f"waiting for an heir in {', '.join(orphans)}", min(orphans.values()))
        pause = self._closed_at + self._pause(upcoming(tip)[1])
        if now < pause:
            return Step(None, f"pausing before attempt {upcoming(tip)[1]}", pause)
        return self._open(tip, standing, absent, now)

    def _door(self, standing: Standing, absent: list[ClusterId]) -> float:
        """Until when the absent are waited for: the straggler timeout, or sooner where a quorum is enough."""
        start = self._start()
        until = max(start, self._closed_at) + self._profile.straggler(self._inner(start))
        if self._retry_of is not None or _onlookers(standing):
            return until
        spec = elect_spec(standing, self._sight.mine)
        door = self._arrivals.door(spec, len(standing) + len(absent), standing, self._profile.retry)
        return until if door is None else min(until, door)

    def _start(self) -> float:
        """When waiting for stragglers begins: once most are READY; if fewer are, once they usually would be.

        Whoever missed a round is READY for the next one at once, and whoever looks on may be long before those who
        train. Neither must make stragglers of all the others.
        """
        assert self._first_at is not None
        if self._most_at is not None:
            return self._most_at
        return self._first_at + max(0.0, self._usual - self._inner(self._first_at))

    def _inner(self, at: float) -> float:
        """Seconds from the last commit that this peer saw; 0 if it has seen none."""
        return 0.0 if self._committed_at is None else max(0.0, at - self._committed_at)

    def _pause(self, attempt: int) -> float:
        """The second attempt comes at once; those after it less and less so."""
        doubled = self._profile.retry * 2.0 ** min(attempt - 3, 16) if attempt > 2 else 0.0
        return min(doubled, self._profile.pause_max)

    def _open(self, tip: Value, standing: Standing, absent: list[ClusterId], now: float) -> Step:
        spec = elect_spec(standing, self._sight.mine)
        rejected = rejections(standing, spec)
        for name in [name for name, (_, ready) in standing.items() if ready.spec != spec]:
            del self._readies[name]
        chosen = {name: entry for name, entry in standing.items() if name in self._readies}
        opened = self._made(tip, chosen, now)
        if isinstance(opened, _Refusal):
            return Step(None, opened.reason, opened.until, rejected)
        if opened.attempt == 1:
            self._expected = (*standing, *absent)
        if opened.attempt == 1 and self._most_at is not None:
            self._usual = self._inner(self._most_at)
        return Step(opened, f"opening round {opened.round} attempt {opened.attempt}: {opened.reason}", None, rejected)

    def _made(self, tip: Value, chosen: Standing, now: float) -> Open | _Refusal:
        """The OPEN for `chosen`. Where there is none, planning is dear, and every message would ask for it again."""
        question = (tip, self._voters(tip, now), chosen, tuple(self._failures))
        refusal = self._refusal
        if refusal is not None and now < refusal.until and refusal.question == question:
            return refusal
        opened = self._opener.open(*question)
        if isinstance(opened, Open):
            return opened
        self._refusal = refusal = _Refusal(question, opened, now + self._profile.retry)
        return refusal


def _by_call(standing: Standing) -> bool:
    """Whether the round is one of calls, which are lost on who misses it, and not of the state."""
    return any(ready.spec.kind != "sync" for _, ready in standing.values())


def _onlookers(standing: Standing) -> bool:
    """Whether nobody who is READY has trained anything: a round of theirs would be for nothing, and be missed."""
    return all(_idle(ready.spec, [ready]) for _, ready in standing.values())


def _idle(spec: Spec, brought: Iterable[Ready | Participant]) -> bool:
    return spec.kind == "sync" and all(each.weight <= LOOKS_ON for each in brought)


def _stale(ready: Ready, tip: Value) -> bool:
    """Whether a sync contribution starts from another state than the agreed one."""
    if ready.spec.kind != "sync":
        return False
    return tip.state.version == 0 or ready.base is None or not same(ready.base, tip.state)
