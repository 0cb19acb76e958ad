"""Asking one member after another whether it is there, and asking on behalf of others.

Every second turn belongs to the shuffled list, so that everybody is asked by everybody; those between to whom this
member guards (`guards`): a suspect that nobody else may have asked yet, or the charge that is asked again and again.

One probe is outstanding at a time. It ends well by an ack, direct or through a helper, or by any byte heard from its
target; it ends badly by its deadline, and then the target is suspected, in the incarnation in which it was asked.
Where answers have taken long of late the deadline is later, by a bounded while: a slow answer is no missing one.
A ping to a member that we suspect carries the accusation, so that the answer can carry the refutation.
"""

from __future__ import annotations

import random

from ictp2p.gossip.answers import Answers
from ictp2p.gossip.guards import Guards
from ictp2p.gossip.health import LocalHealth, missed_probe
from ictp2p.gossip.ledger import Ledger
from ictp2p.gossip.messages import Ack, Delta, Nack, Ping, PingRequest, Status
from ictp2p.gossip.probe import Probe, Relays, Rota
from ictp2p.gossip.profile import SwimProfile
from ictp2p.machine import Effects, Send

_ALONE = 10
"""Intervals between two looks of a member that knows of nobody to probe; whoever comes is probed at once."""
_PATIENCE_LIMIT = 10
"""A measured round trip raises the probe timeout at most this many times: a wrong measurement must not blind us."""
_GRACE_LIMIT = 1.5
"""Slow answers raise each of a probe's two chances to at most this many times `probe_timeout`: between continents a
death is known a second later for it, and only where answers are slow."""


class Prober:
    """The probes of the member `me`."""

    def __init__(self, me: str, profile: SwimProfile, rng: random.Random, health: LocalHealth, ledger: Ledger) -> None:
        self._me = me
        self._profile = profile
        self._rng = rng
        self._health = health
        self._ledger = ledger
        self._members = ledger.table.members
        self._rota = Rota(rng)
        self._guards = Guards(me, ledger.table)
        self._guarding = False
        """Whether the last turn belonged to those whom this member guards."""
        self._relays = Relays()
        self._answers = Answers(2 * _GRACE_LIMIT * profile.probe_timeout)
        self._patience: dict[str, float] = {}
        self._number = 0
        self._probe: Probe | None = None
        self._failed: Probe | None = None
        """The one before, if it failed."""
        self._next_at = 0.0

    def start(self, now: float) -> None:
        """Begin within an interval, at a random moment: members that start together must not probe together."""
        self._probe = self._failed = None
        self._next_at = now + self._rng.random() * self._profile.probe_interval

    def stop(self) -> None:
        """Forget what is under way."""
        self._probe = self._failed = None
        self._rota.clear()
        self._relays.clear()
        self._answers.excuse()

    def welcome(self, member: str, now: float) -> None:
        """Probe a newcomer already in this round."""
        self._rota.insert(member)
        self._next_at = min(self._next_at, now + self._profile.probe_interval * self._health.factor)

    def measured(self, member: str, wanted: float) -> None:
        """Wait `wanted` seconds for a direct answer of `member`, within reason."""
        floor = self._profile.probe_timeout
        if wanted > floor:  # false for a NaN too
            self._patience[member] = min(wanted, _PATIENCE_LIMIT * floor)
        else:
            self._patience.pop(member, None)

    @property
    def target(self) -> str | None:
        """Whose answer is outstanding."""
        return None if self._probe is None or self._probe.answered else self._probe.target

    def due(self) -> float:
        """Say when `proceed` is next wanted."""
        probe = self._probe
        own = self._next_at if probe is None or probe.answered else probe.due()
        return min(own, self._relays.due()) if self._relays else own

    def postpone(self, seconds: float) -> None:
        """Allow for time in which this process could not have heard an answer."""
        self._answers.excuse()
        if self._probe is not None:
            self._probe.postpone(seconds)

    def proceed(self, now: float) -> Effects:
        """Do what is due by `now`."""
        silence: Effects = [Send(relay.requester, Nack(relay.number)) for relay in self._relays.silent(now)]
        probe = self._probe
        if probe is None or probe.answered:
            return silence + self._begin(now) if self._next_at <= now else silence
        if probe.due() > now:
            return silence
        return silence + (self._fail(probe, now) if probe.asked else self._ask_helpers(probe))

    # --- our own probes

    def heard(self, member: str, now: float) -> None:
        """Take any sign of life as the answer."""
        if self._probe is not None and self._probe.target == member and not self._probe.answered:
            self._answered(self._probe, now)

    def acked(self, number: int, now: float) -> Effects:
        """Take an ack: of our own probe, or of one made for another, who is told."""
        self._answers.came(number, now)
        if self._probe is not None and self._probe.number == number and not self._probe.answered:
            self._answered(self._probe, now)
        relay = self._relays.answered(number)
        return [] if relay is None else [Send(relay.requester, Ack(relay.number, self._ledger.news()))]

    def refused(self, helper: str, number: int) -> None:
        """Take a helper's word that the target is silent to it as well.

        After the verdict, as it comes where helpers are several hops away, it takes back what its absence counted as:
        else each member that dies would make its probers take themselves for sick, and ask more rarely.
        """
        for probe in (self._probe, self._failed):
            if probe is not None and probe.number == number and helper in probe.helpers and helper not in probe.refused:
                probe.refused.add(helper)
                if probe is self._failed:
                    self._health.note(-1)

    def alarm(self, member: str) -> Effects:
        """Ask `member` at once, directly and through helpers, out of turn: it is under suspicion and should know."""
        number = self._next_number()
        ping = Send(member, Ping(number, self._ledger.news(to=member)))
        return [ping, *self._ask(self._choose_helpers(member), number, member)]

    # --- on behalf of others

    def acknowledge(self, sender: str, number: int) -> Effects:
        """Answer a ping, and ask who a stranger is."""
        effects: Effects = [Send(sender, Ack(number, self._ledger.news(to=sender)))]
        if sender not in self._members:
            effects.append(Send(sender, Delta(wanted=(sender,))))
        return effects

    def help(self, requester: str, number: int, target: str, now: float) -> Effects:
        """Probe `target` for another member."""
        if target == self._me:
            return self.acknowledge(requester, number)
        if target not in self._members:
            return [Send(requester, Nack(number))]
        own_number = self._next_number()
        if not self._relays.open(own_number, requester, number, self._patience_for(target), now):
            return []
        return [Send(target, Ping(own_number, self._ledger.news(to=target)))]

    # --- inside

    def _begin(self, now: float) -> Effects:
        interval = self._profile.probe_interval * self._health.factor
        self._next_at = now + interval
        self._probe = None
        target = self._next_target()
        if target is None:
            self._next_at = now + _ALONE * interval
            return []
        patience = self._patience_for(target)
        incarnation = self._members[target].record.incarnation
        number = self._next_number()
        verdict_at = now + max(interval, 2 * patience, 2 * self._grace())
        self._probe = Probe(target, incarnation, number, now + patience, verdict_at)
        self._answers.asked(number, now)
        return [Send(target, Ping(number, self._ledger.news(to=target)))]

    def _next_target(self) -> str | None:
        self._guarding = not self._guarding
        guarded = (self._guards.doubted() or self._guards.charge()) if self._guarding else None
        return guarded or self._rota.next(self._ledger.others, self._is_present)

    def _answered(self, probe: Probe, now: float) -> None:
        probe.answered = True
        self._next_at = max(self._next_at, now)
        self._health.note(-1)

    def _fail(self, probe: Probe, now: float) -> Effects:
        self._health.note(missed_probe(len(probe.helpers), len(probe.refused)))
        self._failed = probe
        return self._ledger.suspect(probe.target, probe.incarnation, self._me, now) + self._begin(now)

    def _ask_helpers(self, probe: Probe) -> Effects:
        probe.asked = True
        probe.helpers = self._choose_helpers(probe.target)
        return self._ask(probe.helpers, probe.number, probe.target)

    def _ask(self, helpers: tuple[str, ...], number: int, target: str) -> Effects:
        return [Send(helper, PingRequest(number, target, self._ledger.news())) for helper in helpers]

    def _choose_helpers(self, target: str) -> tuple[str, ...]:
        # A true sample, which in a small group is a shuffle of all: drawing at random offsets can miss the only helper.
        able = [n for n in self._ledger.others() if n != target and self._members[n].status is Status.ALIVE]
        return tuple(self._rng.sample(able, min(self._profile.helpers, len(able))))

    def _is_present(self, name: str) -> bool:
        known = self._members.get(name)
        return known is not None and known.status.present and name != self._me

    def _patience_for(self, target: str) -> float:
        return self._patience.get(target, self._profile.probe_timeout)

    def _grace(self) -> float:
        """Seconds that each of the two chances of a probe should have, by what answers took of late."""
        return min(self._answers.wanted, _GRACE_LIMIT * self._profile.probe_timeout)

    def _next_number(self) -> int:
        self._number += 1
        return self._number
