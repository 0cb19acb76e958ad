"""A leader's own part in rounds: its standing contribution, the attempt that binds it, and its verdict.

Everything it says is a function of that state (`message`), so it can be said again, to anybody who turns out to
be the coordinator, without harm. A new coordinator therefore needs no hand-over: it is told.

An attempt that names this peer binds it even if it stands READY no longer (it was withdrawn, or the peer has
restarted); it then answers FAILED at once, so that nobody waits. So it does if what stands now is another contribution
than the attempt was opened with: its tensors would be added up with the other's weight, and its note be the other's.

A cluster that comes to another result than the others sits the round out, fetches the state, and brings its training to
the next round. If that goes on, it is no accident, and there is no end to it: whoever waits for the round is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ictp2p.machine import Notice
from ictp2p.sync.credits import same
from ictp2p.sync.messages import Failed, Offer, Ready, Rejected, Vote
from ictp2p.sync.rounds.notices import (
    OddOneOut,
    ParticipantUnseated,
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
    StateAdvanced,
    StateRestored,
    StateStale,
)
from ictp2p.sync.rounds.opening import Validate
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.values import Camps, Close, Open, Participant, Restore, Spec, StateRef, Value, outvoted, upcoming
from ictp2p.types import ClusterId, PeerId

_MOST_ODD = 3
"""Rounds of the state in a row that may be decided without a cluster for its digest before it is told so. A bit that
flipped by itself costs one; each costs the cluster the phase that the others train meanwhile."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a leader brings to the next round. Must stay untouched until COMMIT."""

    cluster: ClusterId
    leader: PeerId
    term: int
    weight: float
    spec: Spec
    base: StateRef | None
    note: bytes = b""
    """For all other participants, opaque here."""
    slack: float = 0.0
    """Seconds; see `Ready`."""
    newcomer: bool = False
    """See `Ready`."""


class Part:
    """State of one peer as a participant."""

    def __init__(self, me: PeerId, validate: Validate) -> None:
        self._me = me
        self._validate = validate
        self._version: StateRef | None = None
        self._verdict: tuple[bytes, str, tuple[PeerId, ...]] | None = None
        self._last: Value | None = None
        self._odd: tuple[int, Camps] = (0, ())
        """In which round, and against whom, this cluster came to another result."""
        self._odd_rounds = 0
        """How many in a row were decided without it for that."""
        self.standing: Contribution | None = None
        self.bound: Open | None = None
        self._unseated: frozenset[PeerId] = frozenset()
        """Participants of the attempt that binds this peer of whom it was told that another leads their cluster."""
        self.offer: bytes = b""

    @property
    def progress(self) -> str:
        """How far this peer is with the attempt that binds it."""
        if self._verdict is None:
            return "reducing"
        return "voted" if self._verdict[0] else f"failed ({self._verdict[1]})"

    def message(self, slot: int, tip: Value) -> Ready | Vote | Failed | Offer | None:
        """What the coordinator should hear from this peer now, if anything."""
        if self.bound is not None:
            return self._verdict_message(slot, self.bound)
        if self.standing is not None:
            c = self.standing
            brought = (c.weight, c.spec, c.base, c.note, c.slack, c.newcomer)
            return Ready(slot, upcoming(tip)[0], c.cluster, c.term, *brought)
        return Offer(slot, self.offer) if self.offer and tip.state.version == 0 else None

    def stand(self, contribution: Contribution, tip: Value | None) -> list[Notice]:
        """Stand READY, unless the base is stale already."""
        self.standing = contribution
        return self._check_base(tip)

    def viewed(self, clusters: Mapping[ClusterId, ClusterView]) -> None:
        """A leader that was elected anew stands READY in its new term; its old one would be refused."""
        c = self.standing
        view = None if c is None else clusters.get(c.cluster)
        if c is not None and view is not None and view.leader == self._me and view.term > c.term:
            self.standing = replace(c, term=view.term)

    def look(self, sight: Sight) -> list[Notice]:
        """Tell of each participant of the attempt that binds this peer, once, that another leads its cluster."""
        parts = () if self.bound is None else self.bound.participants
        unseated = [p.leader for p in parts if sight.unseated(p.cluster, p.leader, p.term)]
        told = [ParticipantUnseated(peer) for peer in unseated if peer not in self._unseated]
        self._unseated |= {*unseated}
        return [*told]

    def withdraw(self) -> Contribution | None:
        """Stand no longer; an attempt under way fails."""
        dropped, self.standing = self.standing, None
        if self.bound is not None and self._verdict is None:
            self._verdict = (b"", "withdrawn", ())
        return dropped

    def conclude(self, round_: int, attempt: int, verdict: tuple[bytes, str, tuple[PeerId, ...]]) -> bool:
        """Vote (a digest) or fail (no digest, a reason, suspects). The first verdict on an attempt stays."""
        bound = self.bound
        if bound is None or (bound.round, bound.attempt) != (round_, attempt) or self._verdict is not None:
            return False
        self._verdict = verdict
        return True

    def rejected(self, message: Rejected, tip: Value) -> list[Notice]:
        """The others want something else: stand no longer. Late, for another round or spec, it means nothing."""
        c = self.standing
        if c is None or (message.round, message.spec) != (upcoming(tip)[0], c.spec):
            return []
        self.standing = None
        return [SpecRejected(message.reason)]

    def resume(self, tip: Value) -> list[Notice]:
        """Begin a process's life with a chain from the disk: an attempt that was open then cannot be finished."""
        if isinstance(tip, Open):
            self._bind(tip)
        return self._advance(tip)

    def decided(self, value: Value) -> list[Notice]:
        """Take a decision: it ends what bound this peer, and may bind it anew."""
        if isinstance(value, Close):
            self._compare(value)
        notices = self._release(value)
        self._last = value
        if isinstance(value, Restore):
            notices.append(StateRestored(value))
        notices += self._advance(value)
        notices += self._check_base(value)
        if isinstance(value, Open):
            notices += self._bind(value)
        return notices

    def _verdict_message(self, slot: int, bound: Open) -> Vote | Failed | None:
        if self._verdict is None:
            return None
        digest, reason, suspects = self._verdict
        if digest:
            return Vote(slot, bound.round, bound.attempt, digest)
        return Failed(slot, bound.round, bound.attempt, reason, suspects, self.standing is not None)

    def _release(self, value: Value) -> list[Notice]:
        bound, verdict = self.bound, self._verdict
        self.bound = self._verdict = None
        self._unseated = frozenset()
        if bound is None:
            return self._missed(value)
        if isinstance(value, Close) and (value.round, value.attempt) == (bound.round, bound.attempt):
            if not value.committed:
                return [RoundAborted(bound, value)]
            self.standing = None
            return [RoundCommitted(bound, value, verdict is not None and verdict[0] == value.digest)]
        if upcoming(value)[0] == bound.round:
            return [RoundAborted(bound, None)]
        self.standing = None
        return [RoundPassed(bound.round, value)]

    def _compare(self, value: Close) -> None:
        """Note whether this cluster came to another result, and whether the round was decided without it.

        Rounds of the state alone count: a collective call in between, that it was in, says nothing of its state.
        """
        opened = self.bound or self._last
        if isinstance(opened, Open) and opened.spec.kind != "sync":
            return
        if value.committed and self.bound is not None:
            self._odd_rounds = 0
        elif value.committed and value.round == self._odd[0]:
            self._odd_rounds += 1
        elif self.bound is not None:
            mine = next(p.cluster for p in self.bound.participants if p.leader == self._me)
            if mine in (outvoted(value.camps) or itertools.chain.from_iterable(value.camps)):
                self._odd = (value.round, value.camps)

    def _missed(self, value: Value) -> list[Notice]:
        """Whether a round that this peer stood READY for has committed without it."""
        before, c = self._last, self.standing
        if not (isinstance(value, Close) and value.committed and isinstance(before, Open)) or c is None:
            return []
        if (value.round, value.attempt) != (before.round, before.attempt) or c.spec != before.spec:
            return []
        self.standing = None
        if value.round == self._odd[0] and self._odd_rounds >= _MOST_ODD:
            return [OddOneOut(self._odd_rounds, self._odd[1])]
        return [RoundPassed(value.round, value)]

    def _advance(self, value: Value) -> list[Notice]:
        if value.state.version == 0 or value.state == self._version:
            return []
        self._version = value.state
        self.offer = b""
        return [StateAdvanced(value.state)]

    def _check_base(self, tip: Value | None) -> list[Notice]:
        c = self.standing
        if c is None or c.spec.kind != "sync" or tip is None or tip.state.version == 0:
            return []
        if c.base is not None and same(c.base, tip.state):
            return []
        self.standing = None
        return [StateStale(tip.state)]

    def _bind(self, opened: Open) -> list[Notice]:
        part = next((p for p in opened.participants if p.leader == self._me), None)
        if part is None:
            return []
        self.bound = opened
        wrong = self._unfit(opened, part)
        if wrong is None:
            return [RoundOpened(opened)]
        self._verdict = (b"", wrong[:1024], ())
        return []

    def _unfit(self, opened: Open, part: Participant) -> str | None:
        c = self.standing
        if c is None:
            return "not ready"
        if (c.cluster, c.term, c.spec) != (part.cluster, part.term, opened.spec):
            return f"ready as {c.cluster} in term {c.term} for {c.spec}, not for this"
        if (c.weight, c.note) != (part.weight, part.note):
            return f"ready with weight {c.weight} and a note of {len(c.note)} bytes, not as before"
        wrong = self._validate(opened.plan, opened.participants)
        return None if wrong is None else f"plan refused: {wrong}"
