"""The leader's part: when there is to be a new roster, who is in it, and who has still to hear of it.

An office is one claim of the leadership, for one term, and what it knows ends with it. It makes a first roster once it
has gathered whom it expects, and another when the present one cannot go on: a member has gone, the group broke, or
another claimant of the term has numbered as high. For newcomers it waits until the training loop is between two steps.
For each it wants a store first, and decides on the members only when that is there, as late as it can.

An office is used only while the training thread of whoever holds it is up: who does not train leads no group, and looks
for an heir among those who would.
"""

from __future__ import annotations

from collections.abc import Iterable

from ictp2p.machine import Effects, Send
from ictp2p.sync.rosters.devices import choose
from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.profile import RosterProfile
from ictp2p.sync.rosters.reports import Reports
from ictp2p.sync.rosters.roster import (
    HeirFound,
    MatesCall,
    Roster,
    RosterFailed,
    RosterPending,
    RosterProposal,
    RosterReady,
)
from ictp2p.sync.rosters.sight import Sight
from ictp2p.sync.rosters.store import NextStore
from ictp2p.sync.rosters.worker import Worker
from ictp2p.types import Address, PeerId


class Office:
    """That of this worker.

    Args:
        term: in which it leads.
        sight: what it sees of its cluster.
        worker: its own standing.
        failures: how groups broke, in earlier terms as well.
        profile: how patient to be.
        now: when it was elected.
        told: whether another of the cluster said so.
    """

    def __init__(
        self,
        term: int,
        sight: Sight,
        worker: Worker,
        failures: Failures,
        profile: RosterProfile,
        now: float,
        *,
        told: bool = False,
    ) -> None:
        self._term, self._sight, self._worker = term, sight, worker
        self._failures, self._profile = failures, profile
        self._reports = Reports(sight, failures, worker)
        self._store = NextStore(profile.store)
        self._gather_until = now + profile.gather
        self._told = told
        self._founded = False
        """Whether this office has made a roster that still stands."""
        self._number = 0
        """The highest number that this office has used."""
        self._rival = sight.roster.number if sight.roster is not None and sight.roster.term == term else 0
        """The highest number that another claimant of this term has used."""
        self._trainers: dict[PeerId, tuple[int, int]] = {}
        """The members of the present roster, this leader aside, as they were when it was made."""
        self._left_out: tuple[PeerId, ...] = ()
        """Members of the roster before, still alive, that the present one goes on without."""
        self._pending = False
        """Whether the training loop was told of newcomers, and stops for them at its next boundary."""
        self._announced: tuple[PeerId, ...] = ()
        """Of which."""
        self._in_a_row = 0
        """How many groups broke since the last step, or since a member went."""
        self.mates_call = False
        """Whether others are there to make calls."""
        self._yields_at: float | None = None
        """When an office that is not used is offered to a worker that is ready, and offered again."""

    def __repr__(self) -> str:
        state = f"founded={self._founded} wanted={self.wanted} pending={self._pending} failed={self._in_a_row}"
        return f"<Office term={self._term} number={self._number} {state}>"

    @property
    def wanted(self) -> int | None:
        """The number of the roster whose store is being waited for."""
        return self._store.wanted

    # What it is told.

    def view(self, now: float) -> Effects:
        """Take that there is more, or less, to see of the cluster."""
        self._reports.forget()
        return self.lead(now)

    def heard(self, sender: PeerId, report: RosterReady, now: float) -> Effects:
        """Take a worker's report, and tell it at once of a roster that it should have and has not."""
        if not self._reports.take(sender, report):
            return []
        if report.term == self._term and report.leader != self._sight.me:
            self._rival = max(self._rival, report.number)
        missed = self._founded and sender in self._sight.members and report.holds != self._present
        return [*(self._propose((sender,)) if missed else []), *self.lead(now)]

    def broke(self, failure: RosterFailed, now: float) -> Effects:
        """Take that the present group broke, at whichever of its members."""
        presence, generation = self._worker.presence, (failure.term, failure.number)
        if failure.breach.kind == "unmet" and presence.attended < generation:
            presence.missed()  # the others waited for this worker: it knows best that it did not go
        if not self._worker.up:
            return self._vacate(now)
        if not self._founded or self.wanted is not None:
            return []
        self._in_a_row += 1
        wait = self._profile.backoff * 2.0 ** min(self._in_a_row - 2, 30) if self._in_a_row > 1 else 0.0
        return self._want_store(now, min(wait, self._profile.backoff_most))

    def boundary(self, now: float) -> Effects:
        """Take that everybody stands between two steps: the moment for newcomers, and a sign that the group holds."""
        self._in_a_row = 0
        return self._want_store(now) if self._pending and self.wanted is None else []

    def store_refused(self, now: float) -> Effects:
        """Take that there will be no store: who cannot open one is no leader for now."""
        self._worker.presence.step_aside(now)
        return self._vacate(now)

    def disband(self, gather_until: float) -> None:
        """Take that the present group is over: another is made as soon as all have gathered, or at that time."""
        self._founded, self._gather_until = False, gather_until

    # What it decides.

    def make(self, address: str, step: int) -> Roster:
        """Make the roster whose store was wanted, and is at `address`.

        Args:
            address: `host:port`.
            step: at which inner step the training loop was last seen at a boundary.

        Raises:
            ConfigError: the address is none.
        """
        assert self.wanted is not None, "a roster is made when its store is there"
        sight, reports, number = self._sight, self._reports, self.wanted
        store, members = str(Address.parse(address)), (sight.me, *reports.fit())
        trouble, absent = self._failures.trouble(sight.roster, self._in_a_row), reports.absent()
        devices = (self._worker.device, *(reports[peer].device for peer in members[1:]))
        choice = choose(devices, self._failures.refused(members))
        self._left_out = tuple(p for p in sight.members if p not in members and p in sight.alive)
        self._trainers = {peer: reports[peer].trainer for peer in members[1:]}
        self._founded, self._number = True, number
        self._pending, self._announced = False, ()
        self._store.no_more()
        return Roster(self._term, number, members, store, step, choice.library, choice.reason, trouble, absent)

    def lead(self, now: float) -> Effects:
        """Compare the roster with who is there, and start on the next one if need be; tell whether there are calls."""
        before, self.mates_call = self.mates_call, self._reports.calling()
        told: Effects = [MatesCall(self.mates_call)] if self.mates_call != before else []
        return [*told, *self._lead(now)]

    def _lead(self, now: float) -> Effects:
        if not self._worker.up:
            self._store.no_more()
            return self._hand_over(now)
        self._yields_at = None
        if not self._founded and self.wanted is None:
            return self._want_store(now) if self._gathered() or now >= self._gathers_until else []
        changed = self._founded and (any(map(self._gone, self._trainers)) or self._rival >= self._number)
        if self.wanted is not None:
            # A change of members ends the wait after failures, which it explains.
            return self._store.ask(now, hurry=changed)
        if changed:
            self._in_a_row = 0
            return self._want_store(now)
        return self._announce()

    def _gathered(self) -> bool:
        """Whether all are there whom a first roster waits for, as far as this worker sees its cluster by now."""
        return self._reports.gathered() and not (self._told and {*self._sight.alive} <= {self._sight.me})

    def _gone(self, peer: PeerId) -> bool:
        report, sight = self._reports[peer], self._sight
        if peer not in sight.alive or not report.ready or report.trainer != self._trainers[peer]:
            return True
        return peer in sight.suspects and report.holds != self._present

    def _announce(self) -> Effects:
        newcomers = tuple(peer for peer in self._reports.fit() if peer not in self._sight.members)
        if set(newcomers) <= set(self._announced):
            return []
        self._pending, self._announced = True, newcomers
        return [RosterPending(newcomers)]

    def _want_store(self, now: float, wait: float = 0.0) -> Effects:
        return self._store.want(max(self._number, self._rival) + 1, now, wait)

    def _vacate(self, now: float) -> Effects:
        """This leader's thread is out: whether it comes back or another takes the office, a new roster is due then."""
        self.disband(now)
        return self.lead(now)

    def _hand_over(self, now: float) -> Effects:
        """Find an heir for an office that is not used, members of the last group first: they have trained."""
        heirs = sorted(self._reports.fit(alike=False), key=lambda peer: peer not in self._sight.members)
        if not heirs:
            self._yields_at = None
            return []
        if self._yields_at is None:
            self._yields_at = now + self._patience
        if now < self._yields_at:
            return []
        self._yields_at = now + self._profile.repeat
        return [HeirFound(heirs[0])]

    @property
    def _patience(self) -> float:
        """Seconds that an heir waits for this worker's own training thread: none where that has just yielded to it."""
        if self._worker.presence.yields:
            return 0.0
        return 2 * self._profile.repeat if self._worker.has_trained else self._profile.gather

    @property
    def _gathers_until(self) -> float:
        """When it goes on without those who have not come: later, if they were in the last group and a call waits."""
        longer = self._worker.calls and self._sight.roster is not None
        return self._gather_until + longer * (self._profile.gather_for_calls - self._profile.gather)

    # Who hears of it.

    def propose(self) -> Effects:
        """Propose the present roster to its members, and to those whom it leaves out."""
        return self._propose((*self._sight.members, *self._left_out))

    def remind(self) -> Effects:
        """Propose again to whoever has not acknowledged."""
        if not self._worker.up or not self._founded:
            return []
        told = self._reports.holding(self._present)
        concerned = dict.fromkeys((*self._sight.members, *self._left_out, *self._reports.absent()))
        return self._propose(peer for peer in concerned if peer not in told)

    def _propose(self, peers: Iterable[PeerId]) -> Effects:
        roster = self._sight.roster
        assert roster is not None, "a proposal follows a roster"
        return [Send(peer, RosterProposal(roster)) for peer in peers if peer != self._sight.me]

    @property
    def _present(self) -> tuple[int, int, str]:
        """What a worker reports when it has the present roster."""
        return (self._term, self._number, self._sight.me)

    # Time.

    def next_timeout(self) -> float | None:
        """When a wait of this office ends."""
        if not self._worker.up:
            return self._yields_at
        if self.wanted is not None:
            return self._store.ask_at
        return None if self._founded else self._gathers_until

    @property
    def repeats(self) -> bool:
        """Whether there is something to repeat as time goes by: not by who does not train, nor by who leads nobody."""
        return self._worker.up and (self.wanted is not None or not self._founded or not self._sight.alone)
