"""The leader of a cluster, with the mesh: it brings the contribution, and learns what becomes of the round.

Nobody else of the cluster talks to the mesh about rounds. What the leader learns is one `Verdict`, and until it has
that nothing has changed. There are three ways to one: the round was committed or is known to have come to nothing; the
mesh went on without us, so the state that it is at is fetched first; or the mesh cannot decide, and `Patience` says
whether to bring the same again.
"""

from __future__ import annotations

from ictp2p.errors import NoQuorum, RoundAborted, RoundMissed, RoundTimeout, StateError
from ictp2p.fsm import TRAINING
from ictp2p.sync.mesh import Mesh, RoundResult
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.pace import Pace
from ictp2p.sync.two_level.company import Company
from ictp2p.sync.two_level.contribution import Contribution
from ictp2p.sync.two_level.flight import IDLE, Flight
from ictp2p.sync.two_level.patience import Patience
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict
from ictp2p.sync.values import StateRef


class Leader:
    """Speaks for a cluster, while this worker leads it.

    Args:
        peer: the connection to the mesh.
        weights: the model and the global state.
        contribution: what is brought.
        patience: what to do while the mesh cannot decide.
        pace: told how long rounds take.
        company: says how often the ranks that hold the other shards are told that this one waits.
    """

    def __init__(
        self,
        peer: Mesh,
        weights: Weights,
        contribution: Contribution,
        patience: Patience,
        pace: Pace,
        company: Company | None,
    ) -> None:
        self._peer, self._weights, self._contribution = peer, weights, contribution
        self._patience, self._pace, self._company = patience, pace, company
        self._flight: Flight | None = None

    def depart(self) -> None:
        """Send the contribution on its way in the background, unless it is there already."""
        if self._flight is None:
            self._flight = Flight(self._peer, self._contribution.silent(patient=self._patience.waits))

    def withdraw(self) -> None:
        """Give up what is under way: another worker speaks for the cluster, or nobody does."""
        if self._flight is not None:
            self._flight.withdraw()
            self._flight = None

    def give_up(self) -> bool:
        """Withdraw what is under way, and say whether it is; not, if it has begun: then it has still to be landed."""
        flight, self._flight = self._flight, None
        if flight is None or flight.give_up():
            return True
        self._flight = flight
        return False

    def decide(self, publisher: Publisher) -> Verdict:
        """Learn from the mesh what becomes of this round. With ADOPT the state has been fetched."""
        if self._weights.state.version == 0:
            return self._begin(publisher)
        if not self._contribution.attends:
            return Verdict(Kind.ABANDON, reason="nothing was contributed")
        while True:
            try:
                # Whatever else comes of it, the mesh can decide again.
                verdict = self._bring(publisher)
                self._patience.skipped = 0
                return verdict
            except (NoQuorum, RoundTimeout) as error:
                # Nothing was decided, and this contribution may yet be committed: to wait is to bring the same again.
                if self._patience.stops:
                    raise
                if self._patience.skips:
                    self._patience.skipped += 1
                    return Verdict(Kind.ABANDON, reason=str(error))

    def _begin(self, publisher: Publisher) -> Verdict:
        """Agree on the weights that everybody starts from."""
        self._phase("first_state")
        state = self._weights.state
        first = self._peer.first_state(self._contribution.spec, state.digest, publisher.wait)
        if first.digest == state.digest:
            return Verdict(Kind.COMMIT, first.version, first.digest)
        return self._adopt(first, 0, publisher)

    def _bring(self, publisher: Publisher) -> Verdict:
        """Bring this cluster's contribution, once."""
        try:
            result = self._landed(publisher) if self._flight else self._brought(publisher)
            if result.seconds:
                self._pace.took(result.seconds)
            return self._catch_up(result.state, result.mine, publisher)
        except RoundMissed:
            decided = self._peer.decided_state()
            return self._catch_up(decided, self._holds(decided), publisher)
        except RoundAborted as error:
            return Verdict(Kind.ABANDON, reason=str(error))

    def _brought(self, publisher: Publisher) -> RoundResult:
        """A round while everybody waits for it."""
        return self._peer.outer_round(self._contribution.published(publisher, patient=self._patience.waits))

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
            publisher.restart(0, self._contribution.parts)
            self._phase("first_chunk")
            publisher.data(0, self._weights.average.numel())
            self._phase("complete")
        return result

    def _catch_up(self, decided: StateRef, mine: int, publisher: Publisher) -> Verdict:
        """Go to the agreed state."""
        state = self._weights.state
        if (decided.version, decided.digest) == (state.version, state.digest):
            return Verdict(Kind.ABANDON, reason="the round was missed, and the state did not move")
        if decided.digest in (state.digest, state.sealed):
            return Verdict(Kind.COMMIT, decided.version, decided.digest)
        return self._adopt(decided, mine, publisher)

    def _adopt(self, ref: StateRef, mine: int, publisher: Publisher) -> Verdict:
        """Fetch the agreed state; a newer one, if nobody provides this one any longer."""
        self._phase("missed")
        base = self._weights.state
        while True:
            try:
                self._peer.fetch_state(ref, self._weights.receiver(), publisher.wait)
                return Verdict(Kind.ADOPT, ref.version, ref.digest, mine)
            except StateError as error:
                newer = self._peer.missing_state(ref, str(error), publisher.wait)
                if newer.version <= ref.version and self._patience.stops:
                    raise
            if newer.digest == base.digest:  # the mesh went back to what is here
                return Verdict(Kind.COMMIT, newer.version, newer.digest)
            if newer.version > ref.version:
                mine = self._holds(newer)
            ref = newer

    def _holds(self, state: StateRef) -> int:
        """Which versions up to an agreed state hold what this cluster brought."""
        return self._peer.contributed(state, self._weights.state.version)

    def _phase(self, trigger: str) -> None:
        self._peer.phase(TRAINING, trigger)
