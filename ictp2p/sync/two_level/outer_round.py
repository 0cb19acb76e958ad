"""One cluster's part in an outer round: the leader brings the pseudo-gradient to the mesh, the followers listen.

Every worker of the cluster holds the same parameters and the same global state, so every one computes the same
pseudo-gradient (`contribution`) and any of them can lead. What becomes of a round is one `Verdict`, which the leader
learns from the mesh (`leader`) and tells the others (`stream`); until then nothing has changed anywhere, and only
`landing` acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ictp2p.errors import IctError, LocalGroupError, PeerClosed
from ictp2p.fsm import TRAINING
from ictp2p.sync.cluster.heal import share_state
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.siblings import Siblings
from ictp2p.sync.mesh import Group, Mesh
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.pace import Pace
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.two_level.company import Abandoned, Company
from ictp2p.sync.two_level.contribution import Contribution
from ictp2p.sync.two_level.landing import Landing, Late
from ictp2p.sync.two_level.leader import Leader
from ictp2p.sync.two_level.patience import Patience
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import Participant, Spec


class OuterRound:
    """Takes part in outer rounds, as leader or as follower.

    A round is launched, which captures what this cluster brings, and landed, which acts on the verdict. Between the two
    training may go on; the leader's conversation with the mesh is then in the background (`Flight`). Whatever breaks in
    between, every worker holds what was captured, and can land it.
    """

    def __init__(
        self,
        peer: Mesh,
        weights: Weights,
        progress: Progress,
        spec: Spec,
        patience: Patience,
        pace: Pace,
        *,
        overlaps: bool,
        sampler: ElasticSampler | None,
        late: Late,
        siblings: Siblings | None,
    ) -> None:
        """Take what a round works on.

        Args:
            peer: the connection to the mesh.
            weights: the model and the global state.
            progress: how far this worker is; kept up to date.
            spec: what is reduced; see `Contribution`.
            patience: what to do while the mesh cannot decide.
            pace: told how long rounds take.
            overlaps: whether rounds are under way while training goes on.
            sampler: says which samples are in a contribution.
            late: what becomes of training that missed its round.
            siblings: the ranks that hold the other shards of the model. Then every round is in the background, so that
                this thread is there for them.
        """
        self._peer, self._weights, self._progress = peer, weights, progress
        self._patience = patience
        self._overlaps = overlaps or siblings is not None
        self._company = company = None if siblings is None else Company(siblings, peer.clock)
        self._contribution = Contribution(peer, weights, progress, spec, pace, late, sampler, company)
        self._leader = Leader(peer, weights, self._contribution, patience, pace, company)
        self._landing = Landing(peer, weights, progress, late, sampler)

    def begin(self) -> None:
        """What all must share is known by now."""
        self._contribution.begin()

    def launch(self, group: Group) -> None:
        """Capture the pseudo-gradient, and send it on its way if training goes on meanwhile.

        Raises:
            NotFinite: there is a value that is none; nothing is brought.
            ConfigError: a setting of the outer optimizer was changed.
        """
        self._phase("global_due")
        self._contribution.capture()
        self.resume(group)

    def resume(self, group: Group) -> None:
        """In a new group: whoever leads has the conversation with the mesh, and nobody else."""
        if group.rank != 0:
            self.withdraw()
        elif self._overlaps and self._progress.aloft and self._contribution.attends:
            self._leader.depart()

    def withdraw(self) -> None:
        """Give up what this worker has under way: another one speaks for the cluster, or nobody does."""
        self._leader.withdraw()

    def land(self, group: Group) -> None:
        """See one round to its verdict, and act on it.

        Raises:
            LocalGroupError: the group broke. Nothing is applied, or all of it; healing sorts it out.
        """
        try:
            self._phase("leads" if group.rank == 0 else "follows")
            if group.rank == 0:
                self._lead(group)
            else:
                self._follow(group)
        except LocalGroupError:
            raise
        except BaseException:
            self._phase("given_up")
            raise
        self._phase("decided")

    def gather(self, group: Group) -> None:
        """Wait at this boundary until the ranks that hold the other shards have landed as well.

        Raises:
            SiblingLost: one of them stops, or cannot be reached.
        """
        if self._company is not None:
            self._company.gather(None if self._progress.aloft else partial(self._attend, group))

    def stop(self) -> None:
        """Tell those ranks that this one cannot go on."""
        if self._company is not None:
            self._company.stop()

    def resumed(self) -> None:
        """What was trained apart comes from a file: another cluster's is no good here."""
        self._landing.resumed()

    def state_dict(self) -> dict[str, Any]:
        """What a newcomer to the cluster needs, to land a round that was launched before it came."""
        aloft = self._progress.aloft > 0
        return {**self._weights.carried(captured=aloft), **({"note": self._contribution.note} if aloft else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become ready to land what another worker launched."""
        self.withdraw()
        self._contribution.note = state.get("note", b"")
        self._weights.take_over(state)

    def _lead(self, group: Group) -> None:
        company = () if self._company is None else (self._company.wait,)
        publisher = Publisher(group, self._weights.average, (*company, self._peer.check_leaving))
        try:
            verdict = self._leader.decide(publisher)
        except (PeerClosed, LocalGroupError):
            raise
        except IctError as error:
            publisher.tell(Verdict(Kind.STOP, reason=f"{type(error).__name__}: {error}"))
            raise
        self._landing.act(verdict)
        publisher.tell(verdict)
        if publisher.broken:
            raise LocalGroupError(publisher.broken)
        if verdict.kind is Kind.ADOPT:
            share_state(group, self._weights.state, 0, verdict.version)

    def _follow(self, group: Group) -> None:
        weights, finish = self._weights, self._contribution.finish
        leaving = self._peer.check_leaving
        verdict = follow(group, weights.average, finish, self._restarted, weights.arrived, leaving)
        if verdict.kind is Kind.ADOPT:
            self._phase("missed")
            share_state(group, self._weights.state, 0, verdict.version)
        self._landing.act(verdict)

    def _restarted(self, attempt: int, parts: Sequence[Participant]) -> None:
        self._contribution.restart(parts)
        self._phase("restarted")

    def _attend(self, group: Group) -> None:
        """Go along with the next round of this mesh, with what there is: nothing, mostly.

        It is something if the last round was given up, or if training went on under it.

        One that is missed is not made up for at once, as others are: the siblings go on from this boundary.
        """
        progress, behind, skipped = self._progress, list(self._progress.behind), self._patience.skipped
        self._contribution.attends_only = True
        try:
            self.launch(group)
            self._see_through(group)
        finally:
            self._contribution.attends_only = progress.due = False
            self._patience.skipped = min(skipped, self._patience.skipped)
            if not progress.brought:
                progress.behind = behind

    def _see_through(self, group: Group) -> None:
        """Land a round that is only attended, unless nobody needs it and it has not begun."""
        try:
            return self.land(group)
        except Abandoned:
            if self._leader.give_up():
                return self._landing.act(Verdict(Kind.ABANDON, reason="attended, and not begun"))
        self.land(group)

    def _phase(self, trigger: str) -> None:
        self._peer.phase(TRAINING, trigger)
