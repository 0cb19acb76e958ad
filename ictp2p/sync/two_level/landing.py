"""What a verdict changes: the one place where a worker's model, state and progress follow what the mesh decided.

- COMMIT: apply what was computed beside the current state. It may have been computed under a leader that died after
  the mesh had committed; the digest tells.
- ADOPT: the mesh is at a state that was not computed here; it was fetched once, by the leader. If this cluster's
  contribution is in it, the local progress is dropped, because it is inside; else it is carried over, and brought to
  the very next round: a newcomer would otherwise walk out of step with the others, and miss one round after another.
  Where late training is dropped there is nothing to carry over, and it looks on at that round for the same reason.
- ABANDON: nothing changes at all. The next round starts from the same base, with more progress.
- STOP: nothing changes either, and the leader's error is everybody's.
"""

from __future__ import annotations

from typing import Literal

from ictp2p.errors import IctError, LocalGroupError
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.samples.trained import Fate
from ictp2p.sync.two_level.stream import Kind, Verdict, kind_of

Late = Literal["keep", "discount", "drop"]
"""What becomes of training that missed its round: `keep` brings it to the next one, `discount` too, with its weight
divided by the root of one plus the rounds that it missed (Liu et al., 2024), `drop` forgets it."""


class Landing:
    """Acts on the verdicts of one worker's rounds.

    Args:
        peer: told of each verdict.
        weights: the model and the global state.
        progress: how far this worker is; kept up to date.
        late: what becomes of training that missed its round.
        sampler: says which samples are in a state.
    """

    def __init__(
        self, peer: Mesh, weights: Weights, progress: Progress, late: Late, sampler: ElasticSampler | None
    ) -> None:
        self._peer, self._weights, self._progress = peer, weights, progress
        self._late, self._sampler = late, sampler

    def act(self, verdict: Verdict) -> None:
        """Act on a verdict. Until here nothing has changed.

        Raises:
            LocalGroupError: this worker computed something else than what the mesh committed.
            IctError: the leader stopped because of that, by an error of the same type (`stream.kind_of`).
        """
        weights, progress = self._weights, self._progress
        match verdict.kind:
            case Kind.COMMIT if verdict.digest == weights.state.digest:
                weights.state.rollback()
                weights.state.confirm(verdict.version)
            case Kind.COMMIT if verdict.digest == weights.state.sealed:
                weights.commit(verdict.version)
                progress.counted(weights.landed)
            case Kind.COMMIT:
                ours, theirs = weights.state.sealed.hex()[:16] or "nothing", verdict.digest.hex()[:16]
                raise LocalGroupError(f"this worker computed {ours} where the mesh committed {theirs}")
            case Kind.ADOPT if progress.version == 0:
                self._forget()
            case Kind.ADOPT:
                self._adopted(verdict.version - progress.version, mine=verdict.mine)
            case Kind.STOP:
                raise _stopped(verdict.reason)
            case _:
                weights.state.rollback()
        if verdict.kind is Kind.ADOPT:
            weights.state.release()
        if weights.state.version != progress.version:
            weights.agenda.landed(weights.state.counters, weights.state.committed)
        if weights.state.version < progress.version:
            progress.scheduled = 0  # the mesh went back, and so does what follows it
        progress.version, progress.aloft = weights.state.version, 0
        self._peer.event("outer", verdict=verdict.kind.name, version=progress.version, reason=verdict.reason)

    def resumed(self) -> None:
        """What was trained apart comes from a file: another cluster's is no good here."""
        state, sampler = self._weights.state, self._sampler
        if sampler is not None and sampler.fate(state.counters, state.committed, mine=False) is Fate.REVOKED:
            self._forget()

    def _adopted(self, rounds: int, *, mine: int) -> None:
        """Go on from a state that was received, so many rounds later."""
        weights, progress, fate = self._weights, self._progress, Fate.IN if mine else Fate.OUT
        if self._sampler is not None:
            fate = self._sampler.fate(weights.state.counters, weights.state.committed, mine=bool(mine))
        if fate is Fate.OUT and self._late == "drop":
            return self._begin_anew()
        inside = set() if fate is Fate.OUT else weights.inside(mine, rounds)
        weights.adopt(mine=inside)
        if weights.landed in inside:
            progress.counted(weights.landed)
        else:
            progress.missed((weights.landed + i) % len(weights.fragments) for i in range(rounds))
        progress.gone(inside - {weights.landed})
        if fate is Fate.REVOKED or (inside and weights.trains_on and mine != 1 << max(0, rounds - 1)):
            self._forget()  # what another worker brought later holds what was trained here since the capture, too

    def _begin_anew(self) -> None:
        """Drop what missed its round, and look on at the very next: a phase that began at once would end out of step.

        It would be overtaken in its middle and be dropped too, phase after phase, where the others wait for nobody.
        """
        self._forget()
        self._progress.due = True

    def _forget(self) -> None:
        """Drop whatever was trained here and is in no agreed state."""
        self._weights.load()
        self._progress.forgotten()
        if self._sampler is not None:
            self._sampler.forget()


def _stopped(reason: str) -> IctError:
    """A follower's form of the error that made its leader stop."""
    name, _, text = reason.partition(": ")
    return kind_of(name)(f"the leader of this cluster stopped: {text}")
