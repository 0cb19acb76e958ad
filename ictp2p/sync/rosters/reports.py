"""What the workers of a cluster have told the leader, and whom a group may therefore count on.

Of each worker only the newest report counts. Who is ready, alive and not doubted is fit for a group, but for those
whose training thread stands still: the thread cannot say so, and its peer need not know yet. They are known by others,
who waited in a meeting to its deadline. Whoever reports that it went there, or is ready though it has heard what the
roster says of it, does not stand still.

A group is of those who make collective calls, or of those who train with a policy. In one of both an operation of the
one would meet another one's of the other, at which Gloo ends the process. So only who does what the leader does is fit.
"""

from __future__ import annotations

from ictp2p.sync.rosters.failures import Failures
from ictp2p.sync.rosters.roster import Roster, RosterReady
from ictp2p.sync.rosters.sight import Sight
from ictp2p.sync.rosters.worker import Worker
from ictp2p.types import PeerId

_STRANGERS = 64
"""Workers that are not here, or not yet, whose reports are kept: who has no disk is another one after each start."""


class Reports:
    """Those to one claim of the leadership. Gone with it: what they told a former leader, workers tell again.

    Args:
        sight: what the leader sees of its cluster.
        failures: how groups broke.
        worker: the leader's own standing.
    """

    def __init__(self, sight: Sight, failures: Failures, worker: Worker) -> None:
        self._sight = sight
        self._failures = failures
        self._worker = worker
        self._newest: dict[PeerId, RosterReady] = {}

    def __getitem__(self, peer: PeerId) -> RosterReady:
        """The newest of a worker that has reported."""
        return self._newest[peer]

    def take(self, sender: PeerId, report: RosterReady) -> bool:
        """Take a report, unless a newer one of this worker is here; say whether it was taken."""
        known = self._newest.get(sender)
        if known is not None and (report.life, report.sequence) <= (known.life, known.sequence):
            return False
        self._newest[sender] = report
        return True

    def forget(self) -> None:
        """Of those who are not here, or not yet, what the last ones said is kept."""
        here = {*self._sight.alive, *self._sight.members}
        for peer in [peer for peer in self._newest if peer not in here][:-_STRANGERS]:
            del self._newest[peer]

    def fit(self, *, alike: bool = True) -> tuple[PeerId, ...]:
        """Who, this leader aside, would be in a roster made now; `alike`: and does there what this leader does."""
        sight, calls = self._sight, self._worker.calls
        wants = {peer for peer, report in self._newest.items() if report.ready and (report.calls == calls or not alike)}
        ready = wants - {*self.absent()}
        return tuple(p for p in sight.alive if p in ready and p not in sight.suspects and p != sight.me)

    def calling(self) -> bool:
        """Whether any of those who are fit is there to make calls."""
        return any(self._newest[peer].calls for peer in self.fit(alike=False))

    def gathered(self) -> bool:
        """Whether all are fit whom a first roster waits for: those of the last one, or everyone if there was none.

        A call waits for whoever has been in a group as well: of those that leave a policy before their leader does
        each is in the last one no more.
        """
        sight = self._sight
        here = {peer for peer in sight.alive if peer != sight.me and peer not in sight.suspects}
        before = {peer for peer, report in self._newest.items() if self._worker.calls and report.spell}
        expected = (here & {*sight.members, *before}) - {*self.absent()} if sight.roster is not None else here
        return expected <= {*self.fit()}

    def absent(self) -> tuple[PeerId, ...]:
        """Whose training thread stands still, whether its peer knows it already or is to be told by the next roster."""
        present = self._sight.roster
        if present is None:
            return ()
        still = {*present.absent} - self._ready_though_told(present)
        if self._failures.unmet(present):
            went = {peer for peer, report in self._newest.items() if report.attended >= present.generation}
            still |= {*present.members} - went
        # A leader that makes a roster moves, whatever the one before said of it: nobody reports to itself.
        return tuple(peer for peer in self._sight.alive if peer in still - {self._sight.me})

    def _ready_though_told(self, roster: Roster) -> set[PeerId]:
        """Who knows what the roster says of it, and says all the same that it is ready."""
        ready = {peer for peer, report in self._newest.items() if report.ready}
        return ready & self.holding((*roster.generation, roster.leader))

    def holding(self, roster: tuple[int, int, str]) -> set[PeerId]:
        """Who has this roster, as far as it has been heard."""
        return {peer for peer, report in self._newest.items() if report.holds == roster}
