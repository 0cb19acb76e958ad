"""One cluster's part in an outer round: the leader brings the pseudo-gradient to the mesh, the followers listen.

Every worker of the cluster holds the same parameters and the same global state, so every one computes the same
pseudo-gradient and any of them can lead. What becomes of a round is one `Verdict`, and only `_conclude` acts on it:

- COMMIT: apply what was computed beside the current state. It may have been computed under a leader that died after
  the mesh had committed; the digest tells.
- ADOPT: the mesh is at a state that was not computed here; it is fetched once, by the leader. If this cluster's
  contribution is in it, the local progress is dropped, because it is inside; else it is carried over.
- ABANDON: nothing changes at all. The next round starts from the same base, with more progress.
"""

from __future__ import annotations

from typing import Literal

from ictp2p.errors import (
    IctError,
    LocalGroupError,
    MeshMismatch,
    NoQuorum,
    PeerClosed,
    RoundAborted,
    RoundError,
    RoundMissed,
    RoundTimeout,
    StateError,
)
from ictp2p.sync.heal import Progress, share_state
from ictp2p.sync.mesh import Group, Mesh, RoundRequest
from ictp2p.sync.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import Spec, StateRef
from ictp2p.sync.weights import Weights

WithoutQuorum = Literal["wait", "continue", "stop"]
"""What to do while the mesh cannot decide: `wait` for it, `continue` with inner steps, or `stop` with an error.

If a round that was in doubt turns out to be committed with this cluster's contribution, `continue` loses the inner
steps taken since; nothing is ever applied twice.
"""


class OuterRound:
    """Takes part in outer rounds, as leader or as follower."""

    def __init__(
        self, peer: Mesh, weights: Weights, progress: Progress, spec: Spec, without_quorum: WithoutQuorum
    ) -> None:
        """Take what a round works on.

        Args:
            peer: the connection to the mesh.
            weights: the model and the global state.
            progress: how far this worker is; kept up to date.
            spec: what is reduced.
            without_quorum: what to do while the mesh cannot decide.
        """
        self._peer, self._weights, self._progress = peer, weights, progress
        self._spec, self._without_quorum = spec, without_quorum

    def run(self, group: Group) -> None:
        """Take part in one round, to its verdict.

        Raises:
            LocalGroupError: the group broke. Nothing is applied, or all of it; healing sorts it out.
        """
        self._weights.subtract()
        if group.rank == 0:
            self._lead(group)
        else:
            self._follow(group)

    def _follow(self, group: Group) -> None:
        verdict = follow(group, self._weights.average, self._weights.finish)
        if verdict.kind is Kind.ADOPT:
            share_state(group, self._weights.state, 0, verdict.version)
        self._conclude(verdict)

    def _lead(self, group: Group) -> None:
        publisher = Publisher(group, self._weights.average)
        try:
            verdict = self._decide(publisher)
        except (PeerClosed, LocalGroupError):
            raise
        except IctError as error:
            publisher.tell(Verdict(Kind.STOP, reason=f"{type(error).__name__}: {error}"))
            raise
        self._conclude(verdict)
        publisher.tell(verdict)
        if publisher.broken is not None:
            raise publisher.broken
        if verdict.kind is Kind.ADOPT:
            share_state(group, self._weights.state, 0, verdict.version)

    def _decide(self, publisher: Publisher) -> Verdict:
        """Learn from the mesh what becomes of this round. With ADOPT the state has been fetched."""
        if self._weights.state.version == 0:
            return self._begin(publisher)
        if self._progress.weight <= 0.0:
            return Verdict(Kind.ABANDON, reason="nothing was contributed")
        while True:
            try:
                result = self._peer.outer_round(self._request(publisher))
                return self._catch_up(result.state, result.mine, publisher)
            except RoundMissed:
                return self._catch_up(self._peer.decided_state(), False, publisher)
            except RoundAborted as error:
                return Verdict(Kind.ABANDON, reason=str(error))
            except (NoQuorum, RoundTimeout) as error:
                # Nothing was decided, and this contribution may yet be committed: to wait is to bring the same again.
                if self._without_quorum == "stop":
                    raise
                if self._without_quorum == "continue":
                    return Verdict(Kind.ABANDON, reason=str(error))

    def _begin(self, publisher: Publisher) -> Verdict:
        """Agree on the weights that everybody starts from."""
        state = self._weights.state
        first = self._peer.first_state(self._spec, state.digest, publisher.wait)
        if first.digest == state.digest:
            return Verdict(Kind.COMMIT, first.version, first.digest)
        return self._adopt(first, True, publisher)

    def _request(self, publisher: Publisher) -> RoundRequest:
        weights = self._weights
        return RoundRequest(
            spec=self._spec,
            base=StateRef(weights.state.version, weights.state.digest, ()),
            weight=self._progress.weight,
            inputs=[weights.delta],
            outputs=[weights.average],
            finish=weights.finish,
            progress=publisher.data,
            restarted=publisher.restart,
            idle=publisher.wait,
        )

    def _catch_up(self, decided: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Go to the agreed state."""
        if decided.digest == self._weights.state.digest:
            return Verdict(Kind.ABANDON, reason="the round was missed, and the state did not move")
        if decided.digest == self._weights.state.sealed:
            return Verdict(Kind.COMMIT, decided.version, decided.digest)
        return self._adopt(decided, mine, publisher)

    def _adopt(self, ref: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Fetch the agreed state; a newer one, if nobody provides this one any longer."""
        while True:
            try:
                self._peer.fetch_state(ref, self._weights.state, publisher.wait)
                return Verdict(Kind.ADOPT, ref.version, ref.digest, mine)
            except StateError:
                newer = self._peer.decided_state()
                if newer.version <= ref.version:
                    raise
                ref = newer

    def _conclude(self, verdict: Verdict) -> None:
        """Act on the verdict. Until here nothing has changed."""
        weights, progress = self._weights, self._progress
        match verdict.kind:
            case Kind.COMMIT if verdict.digest == weights.state.digest:
                weights.state.confirm(verdict.version)
            case Kind.COMMIT if verdict.digest == weights.state.sealed:
                weights.commit(verdict.version)
                progress.weight = 0.0
            case Kind.COMMIT:
                ours, theirs = weights.state.sealed.hex()[:16] or "nothing", verdict.digest.hex()[:16]
                raise LocalGroupError(f"this worker computed {ours} where the mesh committed {theirs}")
            case Kind.ADOPT if verdict.mine:
                weights.load()
                progress.weight = 0.0
            case Kind.ADOPT:
                weights.carry_over()
            case Kind.STOP:
                raise _stopped(verdict.reason)
            case _:
                weights.state.rollback()
        progress.version, progress.since = weights.state.version, 0
        self._peer.event("outer", verdict=verdict.kind.name, version=progress.version, reason=verdict.reason)


def _stopped(reason: str) -> IctError:
    """A follower's form of the error that made its leader stop."""
    name, _, text = reason.partition(": ")
    kinds: dict[str, type[IctError]] = {k.__name__: k for k in (NoQuorum, MeshMismatch, StateError)}
    return kinds.get(name, RoundError)(f"the leader of this cluster stopped: {text}")
