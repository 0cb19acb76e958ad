"""Who is in the process group of a cluster: the leader says so, one generation after the other.

A process group (Gloo, NCCL) is rigid: its members are fixed when it is built, and one death breaks it for all. So
membership comes in generations, `(term, number)`, ordered, each with a rendezvous store of its own; a worker only
ever moves to a later one. The leader is chosen by an election that may name two at once, hence the term: a proposal
of a deposed leader is older than what its workers have, and is ignored. Two claimants of one term may reach the same
number; a worker takes the first, and the leader that hears of the other's group numbers on above it.
This is a view-synchronous membership with a fixed sequencer (Birman and Joseph, 1987) without its guarantees about
messages: what the members hold is compared and healed after each change, by the training side.

Theory of operation:

1. Every worker tells its leader every `repeat` seconds where it stands: whether its training thread wants in, which
   training thread that is (one that restarted unnoticed is another member), and which generation it has. That is at
   once the announcement, the acknowledgement of a proposal, and the sign that one was lost.
2. A member that goes (dead, left, unwilling, restarted, or suspected before it acknowledged) and a collective that
   broke make a new roster at once: nobody can work in the old one. The same group breaking again and again makes the
   leader wait longer each time.
3. A newcomer makes none by itself. The leader's training loop is told (`RosterPending`), brings everybody to one step
   boundary, and says so (`boundary`). Once it was told, the next boundary yields a roster even if the newcomer has
   gone, because by then everybody has stopped and waits for it.
4. A leader's first roster waits up to `gather` seconds for the workers that it expects: those of the last roster, or
   everyone alive when there was none.
5. A leader whose training thread is not up (not yet, or no more) makes no roster. Where one of its workers has been
   ready for `gather` seconds, the office is for that worker: the election is asked to hand it over (`HeirFound`).
   Where training has ended here, nobody comes up who is worth waiting for: two reports of a worker that is still
   ready are enough, by which it is told from one that ends at the same step.
6. Reports say which meeting the training thread last went to. Where members wait for others to the deadline of a
   meeting, those who did not go are left out of the next roster, which says so; they report themselves unready then
   until their threads show themselves (`presence`). Only whoever did not go is blamed, never whom somebody accuses: of
   two workers that cannot reach each other both went. A leader that did not go has an office that is not used (5).
7. Who cannot build its own part says so, and stands aside for a while. Why a group broke is in the next roster: the
   others hear of the new one before they would see the reason. From the third time in a row people are told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ictp2p.errors import RemoteProtocolError
from ictp2p.machine import Effects, Message, Send, earliest
from ictp2p.sync.rosters.alarms import Alarms
from ictp2p.sync.rosters.devices import HOST, Device, choose
from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.presence import Presence, Stage
from ictp2p.sync.rosters.profile import RosterProfile
from ictp2p.sync.rosters.roster import (
    Breach,
    Generation,
    HeirFound,
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterPending,
    RosterProposal,
    RosterReady,
    StoreWanted,
    check_proposal,
)
from ictp2p.sync.rosters.worker import Worker
from ictp2p.types import Address, PeerId

_STRANGERS = 64
"""Workers that are not here, or not yet, whose reports are kept: who has no disk is another one after each start."""
_BROKE = Breach()


@dataclass(slots=True)
class _Office:
    """What one claim of the leadership knows. Forgotten with it: what they told a former leader, workers tell again."""

    term: int
    leader: str
    gather_until: float
    reports: dict[PeerId, RosterReady] = field(default_factory=dict)
    trainers: dict[PeerId, tuple[int, int]] = field(default_factory=dict)
    """The members of the present roster, this leader aside, as they were when it was made."""
    left_out: tuple[PeerId, ...] = ()
    """Members of the roster before, still alive, that the present one goes on without."""
    founded: bool = False
    """Whether this office has made a roster that still stands."""
    number: int = 0
    """The highest number that this office has used."""
    rival: int = 0
    """The highest number that another claimant of this term has used."""
    pending: bool = False
    announced: tuple[PeerId, ...] = ()
    failures: int = 0
    wanted: int | None = None
    """The number of the roster whose store is being waited for."""
    asked: bool = False
    ask_at: float = 0.0
    """When that store is asked for: later than at once after repeated failures, and again when none came."""
    yields_at: float | None = None
    """When an office that is not used is offered to a worker that is ready, and offered again."""


class Rosters:
    """One worker's part in the rosters of its cluster."""

    def __init__(self, me: PeerId, life: int, profile: RosterProfile) -> None:
        """Start without a group.

        Args:
            me: this worker.
            life: greater in each process of one peer, as its incarnation is.
            profile: how patient to be.
        """
        self.me = me
        self.roster: Roster | None = None
        """The newest roster known, of which this worker need not be a member."""
        self._profile = profile
        self._alive: tuple[PeerId, ...] = ()
        self._suspects: frozenset[PeerId] = frozenset()
        self._office = _Office(0, "", 0.0)
        self._worker = Worker(life, Presence(profile.backoff, profile.aside_most))
        self._step = 0
        self._failures, self._alarms = Failures(), Alarms()
        self._repeat_at: float | None = None

    def view(self, alive: Iterable[PeerId], now: float, suspects: frozenset[PeerId] = frozenset()) -> Effects:
        """Take the cluster's membership: everyone alive or suspected, this peer included."""
        self._alive, self._suspects = tuple(sorted(alive)), suspects
        self._forget()
        return self._lead(now)

    def leader(self, leader: PeerId, term: int, now: float) -> Effects:
        """Take the election's word for who leads. An older one changes nothing."""
        if not self._follow(leader, term, now):
            return []
        return [*self._report(now), *self._lead(now)]

    def wants(self, ready: bool, now: float, device: Device = HOST) -> Effects:
        """Say whether this worker's training thread is up and wants into the group, and what it computes on."""
        if not self._worker.wants(ready, device):
            return []
        self._office.founded, self._office.gather_until = False, now + self._profile.gather
        return [*self._report(now), *self._lead(now)]

    def attends(self, stage: Stage, generation: Generation, now: float) -> Effects:
        """Say what this worker's training thread is at: so much is known of it until it says something else."""
        worker, presence = self._worker, self._worker.presence
        before = worker.up, presence.attended
        presence.says(stage, generation)
        if (worker.up, presence.attended) == before:
            return []
        return [*self._report(now), *self._lead(now)]

    def failed(self, generation: Generation, now: float, breach: Breach = _BROKE) -> Effects:
        """Say that a group of this worker broke. News of an earlier generation is no news.

        Args:
            generation: whose.
            now: the time.
            breach: how.
        """
        if self.roster is None or generation != self.roster.generation:
            return []
        if not self._worker.broke(generation, breach, now):
            return []
        return [*self._report(now), *self._broke(self.me, self._worker.failure(), now)]

    def boundary(self, step: int, now: float) -> Effects:
        """Say that the leader's training loop, and so everybody's, stands between two steps; `step` is the next."""
        self._step, self._office.failures = step, 0
        return self._want_store(now) if self._office.pending and self._office.wanted is None else []

    def store_opened(self, address: str, number: int, now: float) -> Effects:
        """Take the rendezvous store that `StoreWanted(number)` asked for, as `host:port`.

        Raises:
            ConfigError: the address is none.
        """
        office = self._office
        if office.wanted != number:
            return []
        store, members = str(Address.parse(address)), (self.me, *self._fit())
        office.left_out = tuple(p for p in self._members() if p not in members and p in self._alive)
        office.trainers = {peer: office.reports[peer].trainer for peer in members[1:]}
        office.founded, office.number, office.wanted = True, number, None
        office.pending, office.announced = False, ()
        trouble, absent = self._failures.trouble(self.roster, office.failures), self._absent()
        devices = (self._worker.device, *(office.reports[peer].device for peer in members[1:]))
        choice = choose(devices, self._failures.refused(members))
        reason, before = choice.reason, self.roster
        self.roster = Roster(office.term, number, members, store, self._step, choice.library, reason, trouble, absent)
        self._repeat_at = now + self._profile.repeat
        told = [RosterChanged(self.roster), *self._alarms.of(self.roster, before)]
        return [*told, *self._propose((*members, *office.left_out)), *self._lead(now)]

    def store_refused(self, number: int, now: float) -> Effects:
        """Hear that `StoreWanted(number)` cannot be met: who cannot open a store is no leader for now."""
        if self._office.wanted != number:
            return []
        self._worker.presence.step_aside(now)
        return self._vacate(now)

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a message of another worker of the cluster.

        Raises:
            RemoteProtocolError: it is of another kind, or a proposal that cannot be.
        """
        match message:
            case RosterReady():
                return self._heard(PeerId(sender), message, now)
            case RosterFailed():
                return self._broke(PeerId(sender), message, now) if sender in self._members() else []
            case RosterProposal():
                return self._proposed(PeerId(sender), message.roster, now)
        raise RemoteProtocolError(f"peer {sender} sent {type(message).__name__} to a roster")

    def handle_timeout(self, now: float) -> Effects:
        """Repeat what was not acknowledged, and go on without who did not come."""
        effects = [*(self._report(now) if self._worker.presence.comes_back(now) else []), *self._lead(now)]
        if self._repeat_at is not None and self._repeat_at <= now:
            effects += [*self._report(now), *self._remind()]
        return effects

    def next_timeout(self) -> float | None:
        """When something is to be repeated, or a wait ends."""
        office, back = self._office, self._worker.presence.aside_until
        if office.leader == self.me and not self._worker.up:
            return earliest([office.yields_at, back])
        if not self._leading():
            return earliest([self._repeat_at, back])
        if office.wanted is not None:
            return earliest([self._repeat_at, office.ask_at])
        if not office.founded:
            return earliest([self._repeat_at, office.gather_until])
        return None if {*self._alive, *self._members()} == {self.me} else self._repeat_at

    # The worker.

    def _follow(self, leader: str, term: int, now: float) -> bool:
        if (term, leader) <= (self._office.term, self._office.leader):
            return False
        self._office = _Office(term, leader, now + self._profile.gather)
        if self.roster is not None and self.roster.term == term:
            self._office.rival = self.roster.number
        return True

    def _report(self, now: float) -> Effects:
        """Tell the leader where this worker stands; a leader needs no telling, and has proposals to repeat."""
        leader = self._office.leader
        if not leader:
            return []
        self._repeat_at = now + self._profile.repeat
        if leader == self.me:
            return []
        return [Send(leader, message) for message in self._worker.report(self.roster)]

    def _proposed(self, sender: PeerId, roster: Roster, now: float) -> Effects:
        check_proposal(sender, roster)
        if roster == self.roster:
            return self._report(now)
        if (roster.term, sender) < (self._office.term, self._office.leader):
            return []
        self._follow(sender, roster.term, now)
        if self.roster is not None and roster.generation <= self.roster.generation:
            return self._report(now)
        before, self.roster = self.roster, roster
        if self.me in roster.absent:
            self._worker.presence.missed()
        notice = RosterChanged(roster) if self.me in roster.members else RosterMissed(roster)
        return [notice, *self._alarms.of(roster, before), *self._report(now)]

    # The leader.

    def _leading(self) -> bool:
        return self._office.leader == self.me and self._worker.up

    def _members(self) -> tuple[PeerId, ...]:
        return tuple(PeerId(peer) for peer in self.roster.members) if self.roster else ()

    def _heard(self, sender: PeerId, report: RosterReady, now: float) -> Effects:
        office, known = self._office, self._office.reports.get(sender)
        if office.leader != self.me or (known and (report.life, report.sequence) <= (known.life, known.sequence)):
            return []
        office.reports[sender] = report
        if report.term == office.term and report.leader != self.me:
            office.rival = max(office.rival, report.number)
        missed = office.founded and sender in self._members() and report.holds != self._holding()
        return [*(self._propose((sender,)) if missed else []), *self._lead(now)]

    def _broke(self, sender: PeerId, failure: RosterFailed, now: float) -> Effects:
        office = self._office
        if self.roster is None or self.roster.generation != (failure.term, failure.number):
            return []
        self._failures.learn(self.roster, sender, failure)
        late = failure.breach.kind == "unmet" and self._worker.presence.attended < self.roster.generation
        if office.leader == self.me and late:
            self._worker.presence.missed()
        if office.leader == self.me and not self._worker.up:
            return self._vacate(now)
        if not self._leading() or not office.founded or office.wanted is not None:
            return []
        office.failures += 1
        wait = self._profile.backoff * 2.0 ** min(office.failures - 2, 30) if office.failures > 1 else 0.0
        return self._want_store(now, min(wait, self._profile.backoff_most))

    def _absent(self) -> tuple[PeerId, ...]:
        """Whose training thread stands still, whether its peer knows it already or is to be told by the next roster."""
        if self.roster is None:
            return ()
        reports, present = self._office.reports, self.roster
        # A worker that says it is ready and has this roster knows what the roster says of it, and says it all the same.
        heard = (*present.generation, present.leader)
        back = {peer for peer, report in reports.items() if report.ready and report.holds == heard}
        still = {*present.absent} - back
        if self._failures.unmet(present):
            went = {peer for peer, report in reports.items() if report.attended >= present.generation}
            still |= {*present.members} - went
        # A leader that makes a roster moves, whatever the one before said of it: nobody reports to itself.
        return tuple(peer for peer in self._alive if peer in still - {self.me})

    def _forget(self) -> None:
        """Of those who are not here, or not yet, what the last ones said is kept."""
        here = {*self._alive, *self._members()}
        for peer in [peer for peer in self._office.reports if peer not in here][:-_STRANGERS]:
            del self._office.reports[peer]

    def _lead(self, now: float) -> Effects:
        """Compare the roster with who is there, and start on the next one if need be."""
        office = self._office
        if not self._leading():
            office.wanted = None
            return self._hand_over(now)
        office.yields_at = None
        if not office.founded and office.wanted is None:
            return self._want_store(now) if self._gathered() or now >= office.gather_until else []
        changed = office.founded and (any(map(self._gone, self._members())) or office.rival >= office.number)
        if office.wanted is not None:
            return self._ask_store(now, hurry=changed)
        if changed:
            office.failures = 0
            return self._want_store(now)
        return self._announce()

    def _vacate(self, now: float) -> Effects:
        """This leader's thread is out: whether it comes back or another takes the office, a new roster is due then."""
        self._office.founded, self._office.gather_until = False, now
        return self._lead(now)

    def _hand_over(self, now: float) -> Effects:
        """Find an heir for an office that is not used, members of the last group first: they have trained."""
        office, members = self._office, self._members()
        heirs = sorted(self._fit(), key=lambda peer: peer not in members) if office.leader == self.me else []
        if not heirs:
            office.yields_at = None
            return []
        if office.yields_at is None:
            office.yields_at = now + (2 * self._profile.repeat if self._worker.has_trained else self._profile.gather)
        if now < office.yields_at:
            return []
        office.yields_at = now + self._profile.repeat
        return [HeirFound(heirs[0])]

    def _gathered(self) -> bool:
        here = [peer for peer in self._alive if peer != self.me and peer not in self._suspects]
        expected = {peer for peer in here if peer in self._members()} - {*self._absent()} if self.roster else {*here}
        return expected <= set(self._fit())

    def _announce(self) -> Effects:
        newcomers = tuple(peer for peer in self._fit() if peer not in self._members())
        if set(newcomers) <= set(self._office.announced):
            return []
        self._office.pending, self._office.announced = True, newcomers
        return [RosterPending(newcomers)]

    def _fit(self) -> tuple[PeerId, ...]:
        """Who, this leader aside, would be in a roster made now."""
        ready = {peer for peer, report in self._office.reports.items() if report.ready} - {*self._absent()}
        return tuple(p for p in self._alive if p in ready and p not in self._suspects and p != self.me)

    def _gone(self, peer: PeerId) -> bool:
        if peer == self.me:
            return False
        report = self._office.reports[peer]
        if peer not in self._alive or not report.ready or report.trainer != self._office.trainers[peer]:
            return True
        return peer in self._suspects and report.holds != self._holding()

    def _holding(self) -> tuple[int, int, str]:
        """What a worker reports when it has the present roster."""
        return (self._office.term, self._office.number, self.me)

    def _want_store(self, now: float, wait: float = 0.0) -> Effects:
        office = self._office
        office.wanted, office.asked, office.ask_at = max(office.number, office.rival) + 1, False, now + wait
        return self._ask_store(now)

    def _ask_store(self, now: float, *, hurry: bool = False) -> Effects:
        """Ask for the store if it is time; a change of members ends the wait after failures, which it explains."""
        office = self._office
        if office.wanted is None or (now < office.ask_at and (office.asked or not hurry)):
            return []
        office.asked, office.ask_at = True, now + self._profile.store
        return [StoreWanted(office.wanted)]

    def _remind(self) -> Effects:
        """Propose again to whoever has not acknowledged."""
        if not self._leading() or not self._office.founded:
            return []
        told = {peer for peer, report in self._office.reports.items() if report.holds == self._holding()}
        concerned = dict.fromkeys((*self._members(), *self._office.left_out, *self._absent()))
        return self._propose(p for p in concerned if p not in told)

    def _propose(self, peers: Iterable[PeerId]) -> Effects:
        assert self.roster is not None, "a proposal follows a roster"
        return [Send(peer, RosterProposal(self.roster)) for peer in peers if peer != self.me]
