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
   everyone alive when there was none. Who has just been started again, and is told by another that it leads, waits to
   see that one first: alone it would begin anew what its mates hold. For collective calls, which each of them has to
   make, it waits longer for those of the last roster, and that have left it: what goes without one lacks its tensors.
   Who makes calls and who trains with a policy are never in one roster.
5. A leader whose training thread is not up (not yet, or no more) makes no roster. Where one of its workers has been
   ready for `gather` seconds, the office is for that worker: the election is asked to hand it over (`HeirFound`).
   Where training has ended here, nobody comes up who is worth waiting for: two reports of a worker that is still
   ready are enough, by which it is told from one that ends at the same step. Whose thread has come to others that are
   at another call, and left them to theirs, hands over at once.
6. Reports say which meeting the training thread last went to. Where members wait for others to the deadline of a
   meeting, those who did not go are left out of the next roster, which says so; they report themselves unready then
   until their threads show themselves (`presence`). Only whoever did not go is blamed, never whom somebody accuses: of
   two workers that cannot reach each other both went. A leader that did not go has an office that is not used (5).
7. Who cannot build its own part says so, and stands aside for a while. Why a group broke is in the next roster: the
   others hear of the new one before they would see the reason. From the third time in a row people are told.
"""

from __future__ import annotations

from collections.abc import Iterable

from ictp2p.errors import RemoteProtocolError
from ictp2p.machine import Effects, Message, Send, earliest
from ictp2p.sync.rosters.alarms import Alarms
from ictp2p.sync.rosters.devices import HOST, Device
from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.office import Office
from ictp2p.sync.rosters.presence import Presence, Stage
from ictp2p.sync.rosters.profile import RosterProfile
from ictp2p.sync.rosters.roster import (
    Breach,
    Generation,
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterProposal,
    RosterReady,
    check_proposal,
)
from ictp2p.sync.rosters.sight import Sight
from ictp2p.sync.rosters.worker import Worker
from ictp2p.types import PeerId

_BROKE = Breach()


class Rosters:
    """One worker's part in the rosters of its cluster."""

    def __init__(self, me: PeerId, life: int, profile: RosterProfile) -> None:
        """Start without a group.

        Args:
            me: this worker.
            life: greater in each process of one peer, as its incarnation is.
            profile: how patient to be.
        """
        self._profile = profile
        self._sight = Sight(me)
        self._worker = Worker(life, Presence(profile.backoff, profile.aside_most))
        self._failures, self._alarms = Failures(), Alarms()
        self._claim: tuple[int, str] = (0, "")
        """The newest claim of the leadership: its term, and whose it is."""
        self._office: Office | None = None
        """If that is this worker's."""
        self._step = 0
        self._repeat_at: float | None = None

    @property
    def roster(self) -> Roster | None:
        """The newest roster known, of which this worker need not be a member."""
        return self._sight.roster

    @property
    def mates_call(self) -> bool:
        """Whether this worker leads others that are there to make calls, as of the newest `MatesCall`."""
        return self._office is not None and self._office.mates_call

    def view(self, alive: Iterable[PeerId], now: float, suspects: frozenset[PeerId] = frozenset()) -> Effects:
        """Take the cluster's membership: everyone alive or suspected, this peer included."""
        self._sight.alive, self._sight.suspects = tuple(sorted(alive)), suspects
        return self._office.view(now) if self._office is not None else []

    def leader(self, leader: PeerId, term: int, now: float, *, told: bool = False) -> Effects:
        """Take the election's word for who leads. An older one changes nothing.

        `told`: this worker does, as another of its cluster has said, so there is somebody to lead.
        """
        if not self._follow(leader, term, now, told=told):
            return []
        return [*self._report(now), *self._lead(now)]

    def wants(self, ready: bool, now: float, device: Device = HOST, calls: bool = False) -> Effects:
        """Say whether this worker's training thread is up and wants into the group, and what it computes on.

        `calls`: into one that makes collective calls, and not into one that trains with a policy.
        """
        if not self._worker.wants(ready, device, calls):
            return []
        if self._office is not None:
            self._office.disband(now + self._profile.gather)
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
        return [*self._report(now), *self._broke(self._sight.me, self._worker.failure(), now)]

    def boundary(self, step: int, now: float) -> Effects:
        """Say that the leader's training loop, and so everybody's, stands between two steps; `step` is the next."""
        self._step = step
        return self._office.boundary(now) if self._office is not None else []

    def store_opened(self, address: str, number: int, now: float) -> Effects:
        """Take the rendezvous store that `StoreWanted(number)` asked for, as `host:port`.

        Raises:
            ConfigError: the address is none.
        """
        office = self._office
        if office is None or office.wanted != number:
            return []
        told = self._adopt(office.make(address, self._step))
        self._repeat_at = now + self._profile.repeat
        return [*told, *office.propose(), *office.lead(now)]

    def store_refused(self, number: int, now: float) -> Effects:
        """Hear that `StoreWanted(number)` cannot be met."""
        office = self._office
        return office.store_refused(now) if office is not None and office.wanted == number else []

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a message of another worker of the cluster.

        Raises:
            RemoteProtocolError: it is of another kind, or a proposal that cannot be.
        """
        match message:
            case RosterReady():
                return self._office.heard(PeerId(sender), message, now) if self._office is not None else []
            case RosterFailed():
                return self._broke(PeerId(sender), message, now) if sender in self._sight.members else []
            case RosterProposal():
                return self._proposed(PeerId(sender), message.roster, now)
        raise RemoteProtocolError(f"peer {sender} sent {type(message).__name__} to a roster")

    def handle_timeout(self, now: float) -> Effects:
        """Repeat what was not acknowledged, and go on without who did not come."""
        effects = [*(self._report(now) if self._worker.presence.comes_back(now) else []), *self._lead(now)]
        if self._repeat_at is not None and self._repeat_at <= now:
            effects += [*self._report(now), *(self._office.remind() if self._office is not None else [])]
        return effects

    def next_timeout(self) -> float | None:
        """When something is to be repeated, or a wait ends."""
        office, back = self._office, self._worker.presence.aside_until
        if office is None:
            return earliest([self._repeat_at, back])
        return earliest([self._repeat_at if office.repeats else None, office.next_timeout(), back])

    def _follow(self, leader: PeerId, term: int, now: float, *, told: bool = False) -> bool:
        """Take a claim of the leadership; say whether it is the newest. This worker's own begins an office."""
        if (term, leader) <= self._claim:
            return False
        self._claim, self._office = (term, leader), None
        if leader == self._sight.me:
            self._office = Office(term, self._sight, self._worker, self._failures, self._profile, now, told=told)
        return True

    def _lead(self, now: float) -> Effects:
        return self._office.lead(now) if self._office is not None else []

    def _report(self, now: float) -> Effects:
        """Tell the leader where this worker stands; a leader needs no telling, and has proposals to repeat."""
        _, leader = self._claim
        if not leader:
            return []
        self._repeat_at = now + self._profile.repeat
        if self._office is not None:
            return []
        return [Send(leader, message) for message in self._worker.report(self.roster)]

    def _broke(self, sender: PeerId, failure: RosterFailed, now: float) -> Effects:
        if self.roster is None or self.roster.generation != (failure.term, failure.number):
            return []
        self._failures.learn(self.roster, sender, failure)
        return self._office.broke(failure, now) if self._office is not None else []

    def _proposed(self, sender: PeerId, roster: Roster, now: float) -> Effects:
        check_proposal(sender, roster)
        if roster == self.roster:
            return self._report(now)
        if (roster.term, sender) < self._claim:
            return []
        self._follow(sender, roster.term, now)
        if self.roster is not None and roster.generation <= self.roster.generation:
            return self._report(now)
        return [*self._adopt(roster), *self._report(now)]

    def _adopt(self, roster: Roster) -> Effects:
        """Take a roster for the present one."""
        before, self._sight.roster = self.roster, roster
        if self._sight.me in roster.absent:
            self._worker.presence.missed()
        notice = RosterChanged(roster) if self._sight.me in roster.members else RosterMissed(roster)
        return [notice, *self._alarms.of(roster, before)]
