"""One cluster's part in an outer round: the leader brings the pseudo-gradient to the mesh, the followers listen.

Every worker of the cluster holds the same parameters and the same global state, so every one computes the same
pseudo-gradient and any of them can lead. What becomes of a round is one `Verdict`, which the leader learns from the
mesh and tells the others; until then nothing has changed anywhere, and only `landing` acts on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from ictp2p.errors import (
    ConfigError,
    IctError,
    LocalGroupError,
    NoQuorum,
    NotFinite,
    PeerClosed,
    RoundAborted,
    RoundMissed,
    RoundTimeout,
    StateError,
)
from ictp2p.fsm import TRAINING
from ictp2p.sync.cluster.heal import share_state
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.siblings import Siblings
from ictp2p.sync.mesh import Group, Mesh, RoundRequest, RoundResult
from ictp2p.sync.messages import MOST_SLACK
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.pace import Pace
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.state.manifest import config_digest
from ictp2p.sync.two_level.company import Abandoned, Company
from ictp2p.sync.two_level.flight import IDLE, Flight
from ictp2p.sync.two_level.landing import Landing, Late
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import ATTENDS, LOOKS_ON, Participant, Spec, StateRef

WithoutQuorum = Literal["wait", "continue", "stop"]
"""What to do while the mesh cannot decide: `wait` for it, `continue` with inner steps, or `stop` with an error.

`continue` skips so many rounds in a row as it was allowed to, then waits: the further a cluster walks alone, the less
its pseudo-gradient fits what the others have by then.
If a round that was in doubt turns out to be committed with this cluster's contribution, `continue` loses the inner
steps taken since; nothing is ever applied twice.
"""


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
        without_quorum: WithoutQuorum,
        pace: Pace,
        most_skipped: int = 0,
        *,
        overlaps: bool = False,
        sampler: ElasticSampler | None = None,
        late: Late = "keep",
        siblings: Siblings | None = None,
    ) -> None:
        """Take what a round works on.

        Args:
            peer: the connection to the mesh.
            weights: the model and the global state.
            progress: how far this worker is; kept up to date.
            spec: what is reduced, but for the number of elements, which is that of the fragment, and for what all must
                share, which is known when training begins.
            without_quorum: what to do while the mesh cannot decide.
            pace: told how long rounds take.
            most_skipped: rounds that `continue` may skip in a row.
            overlaps: whether rounds are under way while training goes on.
            sampler: says which samples are in a contribution.
            late: what becomes of training that missed its round.
            siblings: the ranks that hold the other shards of the model. Then every round is in the background, so that
                this thread is there for them.
        """
        self._landing = Landing(peer, weights, progress, late, sampler)
        self._late = late
        self._peer, self._weights, self._progress = peer, weights, progress
        self._spec, self._without_quorum = spec, without_quorum
        self._pace = pace
        self._most_skipped, self._skipped = most_skipped, 0
        self._overlaps = overlaps or siblings is not None
        self._company = None if siblings is None else Company(siblings, peer.clock)
        self._attends_only = False
        """Whether a contribution of nothing must begin no round."""
        self._sampler = sampler
        self._flight: Flight | None = None
        self._parts: Sequence[Participant] = ()
        """Who takes part in the attempt that is under way."""
        self._note = b""
        """What this cluster has to say in the round under way."""
        self._moving = 0.0
        """Seconds from the beginning of the last round in the background to its result; 0 if there was none."""

    def begin(self) -> None:
        """What all must share is known by now."""
        self._spec = msgspec.structs.replace(self._spec, config=config_digest(self._weights.common()))

    def launch(self, group: Group) -> None:
        """Capture the pseudo-gradient, and send it on its way if training goes on meanwhile.

        Raises:
            NotFinite: there is a value that is none; nothing is brought.
            ConfigError: a setting of the outer optimizer was changed.
        """
        self._phase("global_due")
        fragment = self._weights.fragment
        weight = self._counts(self._progress.weights[fragment], fragment)
        try:
            self._weights.check()
            self._weights.capture(weight)
        except (NotFinite, ConfigError):
            self._phase("given_up")
            raise
        self._progress.launched(fragment)
        if self._company is not None:
            self._company.launched()
        if self._sampler is not None:
            steps = self._pace.length(self._weights.fragment + 1) + self._pace.overlap
            self._sampler.launches(steps)
        self._pace.launched(trained=weight > 0.0)
        self._note = self._weights.agenda.note()
        self._phase("calculated")
        self.resume(group)

    def resume(self, group: Group) -> None:
        """In a new group: whoever leads has the conversation with the mesh, and nobody else."""
        if group.rank != 0:
            self.withdraw()
        elif self._overlaps and self._flight is None and self._progress.aloft and self._attends:
            self._flight = Flight(self._peer, self._request())

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

    def _attend(self, group: Group) -> None:
        """Go along with the next round of this mesh, with what there is: nothing, mostly.

        It is something if the last round was given up, or if training went on under it.

        One that is missed is not made up for at once, as others are: the siblings go on from this boundary.
        """
        progress, behind, skipped = self._progress, list(self._progress.behind), self._skipped
        self._attends_only = True
        try:
            self.launch(group)
            self._see_through(group)
        finally:
            self._attends_only = progress.due = False
            self._skipped = min(skipped, self._skipped)
            if not progress.brought:
                progress.behind = behind

    def _see_through(self, group: Group) -> None:
        """Land a round that is only attended, unless nobody needs it and it has not begun."""
        try:
            return self.land(group)
        except Abandoned:
            flight, self._flight = self._flight, None
            if flight is None or flight.give_up():
                return self._landing.act(Verdict(Kind.ABANDON, reason="attended, and not begun"))
            self._flight = flight
        self.land(group)

    def resumed(self) -> None:
        """What was trained apart comes from a file: another cluster's is no good here."""
        self._landing.resumed()

    def withdraw(self) -> None:
        """Give up what this worker has under way: another one speaks for the cluster, or nobody does."""
        if self._flight is not None:
            self._flight.withdraw()
            self._flight = None

    def state_dict(self) -> dict[str, Any]:
        """What a newcomer to the cluster needs, to land a round that was launched before it came."""
        aloft = self._progress.aloft > 0
        return {**self._weights.carried(captured=aloft), **({"note": self._note} if aloft else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become ready to land what another worker launched."""
        self.withdraw()
        self._note = state.get("note", b"")
        self._weights.take_over(state)

    def _follow(self, group: Group) -> None:
        verdict = follow(group, self._weights.average, self._finish, self._restarted)
        if verdict.kind is Kind.ADOPT:
            self._phase("missed")
            share_state(group, self._weights.state, 0, verdict.version)
        self._landing.act(verdict)

    def _restarted(self, parts: Sequence[Participant]) -> None:
        self._parts = parts
        self._phase("restarted")

    def _finish(self) -> bytes:
        digest = self._weights.finish(self._parts)
        self._phase("complete")
        return digest

    def _phase(self, trigger: str) -> None:
        self._peer.phase(TRAINING, trigger)

    def _lead(self, group: Group) -> None:
        publisher = Publisher(group, self._weights.average, () if self._company is None else (self._company.wait,))
        try:
            verdict = self._decide(publisher)
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

    def _decide(self, publisher: Publisher) -> Verdict:
        """Learn from the mesh what becomes of this round. With ADOPT the state has been fetched."""
        if self._weights.state.version == 0:
            return self._begin(publisher)
        if not self._attends:
            return Verdict(Kind.ABANDON, reason="nothing was contributed")
        while True:
            try:
                # Whatever else comes of it, the mesh can decide again.
                verdict = self._bring(publisher)
                self._skipped = 0
                return verdict
            except (NoQuorum, RoundTimeout) as error:
                # Nothing was decided, and this contribution may yet be committed: to wait is to bring the same again.
                if self._without_quorum == "stop":
                    raise
                if self._may_skip():
                    self._skipped += 1
                    return Verdict(Kind.ABANDON, reason=str(error))

    def _bring(self, publisher: Publisher) -> Verdict:
        """Bring this cluster's contribution, once."""
        try:
            result = self._landed(publisher) if self._flight else self._peer.outer_round(self._request(publisher))
            if result.seconds:
                self._pace.took(result.seconds)
            return self._catch_up(result.state, result.mine, publisher)
        except RoundMissed:
            decided = self._peer.decided_state()
            return self._catch_up(decided, self._holds(decided), publisher)
        except RoundAborted as error:
            return Verdict(Kind.ABANDON, reason=str(error))

    @property
    def _attends(self) -> bool:
        """Whether it takes part: with what it has trained, or looking on, as long as there may be anything to come."""
        return self._progress.brought > 0.0 or self._sampler is None or not self._sampler.ended

    def _may_skip(self) -> bool:
        return self._without_quorum == "continue" and self._skipped < self._most_skipped

    def _landed(self, publisher: Publisher) -> RoundResult:
        """The round that was under way in the background; its result is handed to the followers now."""
        flight = self._flight
        assert flight is not None
        try:
            result = flight.wait(publisher.wait, IDLE if self._company is None else self._company.pause)
        finally:
            if flight.told:  # else this wait was interrupted, and what comes of it has still to be heard, or withdrawn
                self._flight = None
        if result.state.digest == self._weights.state.sealed:
            self._phase("round_opened")
            publisher.restart(0, self._parts)
            self._phase("first_chunk")
            publisher.data(0, self._weights.average.numel())
            self._phase("complete")
        return result

    def _begin(self, publisher: Publisher) -> Verdict:
        """Agree on the weights that everybody starts from."""
        self._phase("first_state")
        state = self._weights.state
        first = self._peer.first_state(self._spec, state.digest, publisher.wait)
        if first.digest == state.digest:
            return Verdict(Kind.COMMIT, first.version, first.digest)
        return self._adopt(first, True, publisher)

    def _request(self, publisher: Publisher | None = None) -> RoundRequest:
        """This cluster's contribution.

        Args:
            publisher: gets the result while it arrives; None to have it silently in the background.
        """
        weights = self._weights
        reducing, began = False, self._peer.clock()

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            nonlocal reducing, began
            reducing, self._parts, began = True, parts, self._peer.clock()
            if self._company is not None:
                self._company.begun()
            if publisher is not None:
                self._phase("round_opened")
                publisher.restart(attempt, parts)

        def progress(start: int, stop: int) -> None:
            nonlocal reducing
            if publisher is not None:
                if reducing:
                    reducing = False
                    self._phase("first_chunk")
                publisher.data(start, stop)

        def finish() -> bytes:
            digest = weights.finish(self._parts)
            self._moving = self._peer.clock() - began
            return digest

        return RoundRequest(
            spec=self._spec_of(weights.fragment),
            base=StateRef(weights.state.version, weights.state.digest, ()),
            weight=max(self._least, self._counts(self._progress.brought, weights.landed)),
            inputs=[weights.delta],
            outputs=[weights.average],
            finish=finish if publisher is None else self._finish,
            progress=progress,
            restarted=restarted,
            idle=(lambda: None) if publisher is None else publisher.wait,
            patient=self._without_quorum != "stop" and not self._may_skip(),
            slack=self._slack() if publisher is None else 0.0,
            note=self._note,
            holds=weights.holds,
        )

    @property
    def _least(self) -> float:
        """What a contribution of nothing counts."""
        return ATTENDS if self._attends_only else LOOKS_ON

    def _slack(self) -> float:
        """Seconds by which a round in the background may begin later, and still end before training waits for it.

        It is given twice as long as the last one took. Of a first one nothing is known, and it is not put off.
        """
        covered = self._pace.covered(self._progress.aloft - 1)
        return min(MOST_SLACK, max(0.0, covered - 2 * self._moving)) if self._moving else 0.0

    def _counts(self, trained: float, fragment: int) -> float:
        """What a contribution counts, of so much that was trained."""
        missed = self._progress.behind[fragment] if self._late == "discount" else 0
        return trained / math.sqrt(1 + missed)

    def _spec_of(self, fragment: int) -> Spec:
        parts = len(self._weights.fragments)
        name = self._spec.name if parts == 1 else f"{self._spec.name} fragment {fragment}"
        elements = self._weights.round_elements(fragment)
        return msgspec.structs.replace(self._spec, name=name, elements=elements)

    def _catch_up(self, decided: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Go to the agreed state."""
        state = self._weights.state
        if (decided.version, decided.digest) == (state.version, state.digest):
            return Verdict(Kind.ABANDON, reason="the round was missed, and the state did not move")
        if decided.digest in (state.digest, state.sealed):
            return Verdict(Kind.COMMIT, decided.version, decided.digest)
        return self._adopt(decided, mine, publisher)

    def _adopt(self, ref: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Fetch the agreed state; a newer one, if nobody provides this one any longer."""
        self._phase("missed")
        base = self._weights.state
        while True:
            try:
                self._peer.fetch_state(ref, self._weights.receiver(), publisher.wait)
                return Verdict(Kind.ADOPT, ref.version, ref.digest, mine)
            except StateError as error:
                newer = self._peer.missing_state(ref, str(error), publisher.wait)
                if newer.version <= ref.version and self._without_quorum == "stop":
                    raise
            if newer.digest == base.digest:  # the mesh went back to what is here
                return Verdict(Kind.COMMIT, newer.version, newer.digest)
            if newer.version > ref.version:
                mine = self._holds(newer)
            ref = newer

    def _holds(self, state: StateRef) -> bool:
        """Whether what this cluster brought is in an agreed state."""
        return self._peer.contributed(state, self._weights.state.version)
