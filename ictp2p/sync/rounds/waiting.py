"""Until when the next attempt waits for those who are missing, and for whom.

Worth waiting for is a cluster that is alive, not suspected, and means to train (or just did, `readies`), until the
straggler timeout after most of them are READY, or should be (`rhythm`); or, where a quorum is enough, until the
deadline that the arrivals themselves give (`arrivals`). A cluster of a failed attempt whose leader is only suspected
is given the grace of a suspicion to be dead, or to have another leader.

A cluster whose leader died may miss that round of the state, and loses nothing: what it has goes into the next. A
program that calls collectives by itself is told of a round that it missed by an error, though its workers did nothing
wrong. So the rounds of calls wait for the heir of a leader, as long as a cluster may take to find that it needs one;
for whoever is suspected, until that is over; and for stragglers as long at least as what they say may take around a
line that was cut.

A cluster that needs longer to fetch the state than a round and that timeout last would be overtaken each time, and come
too late for good. Its card says how long it needs, once that has happened, until it has taken part in a round; and no
more after some fetches in vain (`control_plane`), so that who cannot fetch at all does not hold up everybody for good.

Where training goes on during a round, clusters of nearly equal speed drift apart, for nobody ever waits. Each READY
says for how long nobody will (`Ready.slack`), and the absent are waited for until the first of those who stand has no
more time: so they are in one round all the same, until one is a whole phase behind and leaves out one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ictp2p.sync.messages import Ready
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.arrivals import Arrivals
from ictp2p.sync.rounds.opening import Standing, elect_spec
from ictp2p.sync.rounds.readies import RollCall, by_call
from ictp2p.sync.rounds.rhythm import Rhythm
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import LOOKS_ON, Open, Participant, Spec
from ictp2p.types import ClusterId

_WORTH_TELLING = 1.0
"""Seconds for which a round waited for its last cluster that people are told of."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What is waited for, and until when at most."""

    reason: str
    until: float


class Waiting:
    """When things happened at one peer, as far as waiting depends on it.

    Args:
        profile: timeouts and graces.
        sight: beliefs about the clusters.
    """

    def __init__(self, profile: RoundProfile, sight: Sight) -> None:
        self._profile = profile
        self._sight = sight
        self._arrivals = Arrivals()
        self._expected: tuple[ClusterId, ...] = ()
        self._went_without = False
        """Whether the round that was opened last left somebody out who was worth waiting for."""
        self._futile = 0
        """Rounds in a row that did, and to which nobody brought anything."""
        self._closed_at = 0.0
        self._committed_at: float | None = None
        self._first_at: float | None = None
        self._brought_at: float | None = None
        """When the first one was that brings something."""
        self._ready_at: dict[ClusterId, float] = {}
        """When each was that stands, first."""
        self._most_at: float | None = None
        self._rhythms = {called: Rhythm() for called in (True, False)}
        """Of rounds of calls, and of those of the state: they have nothing to do with each other."""

    def turn(self) -> None:
        """Nobody is READY for the next round yet, or any more."""
        self._first_at = self._brought_at = self._most_at = None
        self._ready_at.clear()

    def came(self, clusters: Iterable[ClusterId], now: float) -> None:
        """These stand READY for the round to come; the first time counts."""
        self._arrivals.came(clusters, now)

    def opened(self, roll: RollCall) -> None:
        """The first attempt of a round begins."""
        self._expected = (*_bringing(roll.standing), *roll.absent)
        self._went_without = bool(roll.absent)

    def latecomer(self) -> str:
        """Say who came last, and how late, if that is worth a word: all others stood still for it."""
        if not self._ready_at:
            return ""
        last = max(self._ready_at, key=lambda name: self._ready_at[name])
        late = self._ready_at[last] - min(self._ready_at.values())
        return f"{last} was ready last, {late:.1f} s after the first" if late >= _WORTH_TELLING else ""

    def closed(self, now: float) -> None:
        """An attempt is over."""
        self._closed_at = now

    def committed(self, opened: Open | None, now: float) -> None:
        """It was the last of its round. If nobody in it had trained anything, the phase of whoever trains goes on."""
        self._arrivals.committed(self._expected, now)
        went_without, self._went_without = self._went_without, False
        self._expected = ()
        if opened is None:
            for each in self._rhythms.values():
                each.broken()
            self._committed_at = now
            return
        rhythm = self._rhythms[opened.spec.kind != "sync"]
        brought = [part.cluster for part in opened.participants if not _idle(opened.spec, [part])]
        if len(brought) < len(opened.participants):
            rhythm.watched([part.cluster for part in opened.participants if part.cluster not in brought], now)
        if not brought:
            self._futile += went_without
            return
        rhythm.committed(brought, now)
        self._futile, self._committed_at = 0, now

    def look(self, roll: RollCall, now: float, given_up: int = 0) -> Wait | None:
        """Say what the next attempt, for which somebody stands READY, waits for; None: it waits for nothing more.

        There is no pause for those `given_up` for another plan: nothing was wrong with anybody.
        """
        self._note(roll, now)
        until = self._door(roll)
        orphans = {name: end for name, end in self._orphans(roll, until).items() if now < end}
        if self._inherited(roll):
            until += self._profile.heir_grace
        if roll.absent and now < until:
            return Wait(f"waiting for READY of {', '.join(roll.absent)}", until)
        if orphans:
            return Wait(f"waiting for an heir in {', '.join(orphans)}", min(orphans.values()))
        pause = self._closed_at + self._pause(roll.attempt - given_up)
        return Wait(f"pausing before attempt {roll.attempt}", pause) if now < pause else None

    def _note(self, roll: RollCall, now: float) -> None:
        if self._first_at is None:
            self._first_at = now
        bringing = _bringing(roll.standing)
        if self._brought_at is None and bringing:
            self._brought_at = now
        if self._most_at is None and len(bringing) > len(roll.absent):
            self._most_at = now
        for name in roll.standing:
            self._ready_at.setdefault(name, now)
        self._arrivals.came(roll.standing, now)
        rhythm = self._rhythms[by_call(roll.standing)]
        for name in bringing:
            rhythm.came(name, now)

    def _door(self, roll: RollCall) -> float:
        """Until when the absent are waited for: the straggler timeout, or sooner where a quorum is enough.

        Who looks on is no part of it: there before all others, it would have the door close behind the first of them.
        Where all train meanwhile, nobody loses anything by waiting longer, as long as the round still ends in time.
        """
        start = self._start(roll)
        late = self._profile.straggler(self._inner(start))
        if by_call(roll.standing):
            late = max(late, self._profile.detour)
        until = max(start, self._closed_at) + late
        if (patient := start + min(self._behind(roll), self._profile.fetch_grace)) > until:
            until = patient
        bringing = _bringing(roll.standing)
        if roll.again is not None or not bringing:
            return until
        until = max(until, min(self._ready_at[name] + roll.standing[name][1].slack for name in bringing))
        spec = elect_spec(roll.standing, self._sight.mine)
        expected = len(bringing) + len(roll.absent)
        door = self._arrivals.door(spec, expected, bringing, self._profile.retry)
        return until if door is None else min(until, door)

    def _behind(self, roll: RollCall) -> float:
        """How long the absent need for the state, having been overtaken until now: while we wait they are not."""
        return max((self._sight.clusters[name].behind for name in roll.absent), default=0.0)

    def _start(self, roll: RollCall) -> float:
        """When waiting for stragglers begins: once most are READY; if fewer are, once they should be.

        Whoever missed a round is READY for the next one at once, and whoever looks on may be long before those who
        train. Neither must make stragglers of all the others. A round of those who look on alone is for nothing, and
        has the others miss it: they wait for the longest phase that was seen lately. Where phases are longer by now, or
        so long that none was ever seen, they wait twice as long for each such round in a row: who drops what was late
        would never bring anything. A first one comes soon, for all who begin may have to look on once.
        """
        assert self._first_at is not None
        if self._most_at is not None:
            return self._most_at
        first = self._first_at if self._brought_at is None else self._brought_at
        rhythm = self._rhythms[by_call(roll.standing)]
        bringing = _bringing(roll.standing)
        idle = not bringing
        patience = 2.0 ** min(self._futile, 16) if idle else 1.0
        known = (rhythm.due(name, at_latest=idle, patience=patience) for name in roll.absent)
        due = sorted(at for at in known if at is not None)
        seen = self._futile or self._committed_at is not None
        if idle and not due and seen:  # nothing is known of phases, and nothing urgent
            return first + patience * self._profile.fetch_grace
        lacking = max(1, (len(roll.absent) - len(bringing)) // 2 + 1)
        return max([first, *due[:lacking]])

    def _inner(self, at: float) -> float:
        """Seconds from the last commit that this peer saw; 0 if it has seen none."""
        return 0.0 if self._committed_at is None else max(0.0, at - self._committed_at)

    def _orphans(self, roll: RollCall, until: float) -> dict[ClusterId, float]:
        """Clusters that may be spoken for by an heir in a moment, and until when to wait for that."""
        waits = dict.fromkeys(self._headless(roll), self._closed_at + self._profile.suspect_grace)
        if by_call(roll.standing):
            for name in roll.due:
                if (end := self._missed(name, until)) is not None:
                    waits[name] = max(end, waits.get(name, end))
        return waits

    def _missed(self, name: ClusterId, until: float) -> float | None:
        """Until when a round of calls waits for a cluster whose leader does not answer; None where it does."""
        if (since := self._sight.bereft(name)) is not None:
            return min(since, until) + self._profile.heir_grace
        if (since := self._sight.wavering(name)) is not None:
            return min(since, until) + self._profile.suspect_grace
        return None

    def _headless(self, roll: RollCall) -> Sequence[ClusterId]:
        """Clusters of the failed attempt that are only suspected: dead in a moment, or spoken for by an heir."""
        failed = sorted(roll.again or ())
        return [name for name in failed if self._sight.wavering(name) is not None and name not in roll.standing]

    def _inherited(self, roll: RollCall) -> bool:
        """Whether a cluster that is not READY for a call has found another leader in this round."""
        since = self._committed_at or 0.0
        return by_call(roll.standing) and any(self._sight.returned(name) > since for name in roll.absent)

    def _pause(self, attempt: int) -> float:
        """The second attempt comes at once; those after it less and less so."""
        doubled = self._profile.retry * 2.0 ** min(attempt - 3, 16) if attempt > 2 else 0.0
        return min(doubled, self._profile.pause_max)


def _bringing(standing: Standing) -> Sequence[ClusterId]:
    """Those who have trained something. A round of the others alone would be for nothing, and be missed."""
    return [name for name, (_, ready) in standing.items() if not _idle(ready.spec, [ready])]


def _idle(spec: Spec, brought: Iterable[Ready | Participant]) -> bool:
    return spec.kind == "sync" and all(each.weight <= LOOKS_ON for each in brought)
