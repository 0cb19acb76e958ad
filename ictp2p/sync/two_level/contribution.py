"""What one cluster brings to an outer round, from its capture to the state that is voted for.

Every worker captures it, since any of them may have to lead before the round is over. The leader alone asks for it to
be brought, in one of two ways: under the eyes of its followers, who get the average while it arrives, or in the
background, where training goes on and nobody is told anything before the round lands. Either way what is asked for is
the same request; they differ in what is done when the mesh calls back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from ictp2p.errors import ConfigError, NotFinite
from ictp2p.fsm import TRAINING
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.mesh import Mesh, RoundRequest
from ictp2p.sync.messages import MOST_SLACK
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.pace import Pace
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.state.manifest import config_digest
from ictp2p.sync.two_level.company import Company
from ictp2p.sync.two_level.landing import Late
from ictp2p.sync.two_level.stream import Publisher
from ictp2p.sync.values import ATTENDS, LOOKS_ON, Participant, Spec, StateRef


class Contribution:
    """What is brought to one round after the other.

    Args:
        peer: the connection to the mesh.
        weights: the model and the global state.
        progress: how far this worker is; kept up to date.
        spec: what is reduced, but for the number of elements, which is that of the fragment, and for what all must
            share, which is known when training begins.
        pace: says how long phases are.
        late: what becomes of training that missed its round.
        sampler: says which samples are in it.
        company: told when a round is on its way, and when it begins.
    """

    def __init__(
        self,
        peer: Mesh,
        weights: Weights,
        progress: Progress,
        spec: Spec,
        pace: Pace,
        late: Late,
        sampler: ElasticSampler | None,
        company: Company | None,
    ) -> None:
        self._peer, self._weights, self._progress = peer, weights, progress
        self.spec = spec
        """What is reduced, whichever the fragment."""
        self._pace, self._late, self._sampler, self._company = pace, late, sampler, company
        self.attends_only = False
        """Whether a contribution of nothing must begin no round."""
        self.note = b""
        """What this cluster has to say in the round under way."""
        self.parts: Sequence[Participant] = ()
        """Who takes part in the attempt that is under way."""
        self._moving = 0.0
        """Seconds from the beginning of the last round in the background to its result; 0 if there was none."""

    def begin(self) -> None:
        """What all must share is known by now."""
        self.spec = msgspec.structs.replace(self.spec, config=config_digest(self._weights.common()))

    def capture(self) -> None:
        """Capture the pseudo-gradient: from here on it is brought, until a round holds it.

        Raises:
            NotFinite: there is a value that is none; nothing is brought.
            ConfigError: a setting of the outer optimizer was changed.
        """
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
        self.note = self._weights.agenda.note()
        self._phase("calculated")

    @property
    def attends(self) -> bool:
        """Whether it is brought: as what was trained, or to look on, as long as there may be anything to come."""
        return self._progress.brought > 0.0 or self._sampler is None or not self._sampler.ended

    def published(self, publisher: Publisher, *, patient: bool) -> RoundRequest:
        """Ask for a round whose average the followers get while it arrives.

        Args:
            publisher: the leader's end towards them.
            patient: whether to wait for a quorum however long it takes.
        """
        fresh = False

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            nonlocal fresh
            fresh = True
            self.restart(parts)
            self._begun()
            self._phase("round_opened")
            publisher.restart(attempt, parts)

        def progress(start: int, stop: int) -> None:
            nonlocal fresh
            if fresh:
                fresh = False
                self._phase("first_chunk")
            publisher.data(start, stop)
            self._weights.arrived(start, stop)

        return self._request(self.finish, progress, restarted, publisher.wait, patient=patient)

    def silent(self, *, patient: bool) -> RoundRequest:
        """Ask for a round in the background, as late as it may begin and still be over when it is waited for.

        Args:
            patient: as for `published`.
        """
        began = self._peer.clock()

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            nonlocal began
            began = self._peer.clock()
            self.restart(parts)
            self._begun()

        def finish() -> bytes:
            digest = self._weights.finish(self.parts)
            self._moving = self._peer.clock() - began
            return digest

        return self._request(
            finish, lambda start, stop: None, restarted, lambda: None, patient=patient, slack=self._slack
        )

    def restart(self, parts: Sequence[Participant]) -> None:
        """An attempt begins with these participants."""
        self.parts = parts
        self._weights.restart(parts)

    def finish(self) -> bytes:
        """All of the average is here: compute the next state; its digest."""
        digest = self._weights.finish(self.parts)
        self._phase("complete")
        return digest

    def _request(
        self,
        finish: Callable[[], bytes],
        progress: Callable[[int, int], None],
        restarted: Callable[[int, Sequence[Participant]], None],
        idle: Callable[[], None],
        *,
        patient: bool,
        slack: float = 0.0,
    ) -> RoundRequest:
        weights = self._weights
        return RoundRequest(
            spec=self._spec_of(weights.fragment),
            base=StateRef(weights.state.version, weights.state.digest, ()),
            weight=max(self._least, self._counts(self._progress.brought, weights.landed)),
            inputs=[weights.delta],
            outputs=[weights.average],
            finish=finish,
            progress=progress,
            restarted=restarted,
            idle=idle,
            patient=patient,
            slack=slack,
            note=self.note,
            holds=weights.holds,
        )

    def _begun(self) -> None:
        if self._company is not None:
            self._company.begun()

    @property
    def _least(self) -> float:
        """What a contribution of nothing counts."""
        return ATTENDS if self.attends_only else LOOKS_ON

    @property
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
        name = self.spec.name if parts == 1 else f"{self.spec.name} fragment {fragment}"
        elements = self._weights.round_elements(fragment)
        return msgspec.structs.replace(self.spec, name=name, elements=elements)

    def _phase(self, trigger: str) -> None:
        self._peer.phase(TRAINING, trigger)
