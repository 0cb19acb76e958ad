"""Making the OPEN of an attempt: whose spec, which participants, which plan.

Plans are made once, by the coordinator, and agreed as bytes. They are never recomputed from gossip by each peer: views
differ, and so do floating-point libraries (that two builds of one solver return different vertices is enough).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ictp2p.errors import IctError
from ictp2p.sync.messages import Ready
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.room import fitting
from ictp2p.sync.rounds.wording import told_apart
from ictp2p.sync.validity import fault
from ictp2p.sync.values import Open, Participant, Spec, Value, upcoming
from ictp2p.types import ClusterId, PeerId

Standing = Mapping[ClusterId, tuple[PeerId, Ready]]
"""Per cluster its leader and the leader's READY, sorted by cluster."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What the planner is asked."""

    round: int
    attempt: int
    spec: Spec
    participants: tuple[Participant, ...]
    failures: tuple[tuple[PeerId, PeerId], ...]
    """(who reported, whom it failed on) of this round's earlier attempts: edges to route around."""
    base: bytes = b""
    """Digest of the agreed state that the round starts from."""
    running: bytes = b""
    """A plan for the same that is being carried out, to be predicted beside the new one."""
    forecast: bool = False
    """Whether the seconds that no plan can beat will do for a new one, which is dearer to make."""


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What the planner answers: a plan, or none to a forecast; why; how many seconds it should take (0: unknown)."""

    plan: bytes
    reason: str
    seconds: float = 0.0
    running: float = 0.0
    """Seconds that `PlanQuestion.running` would take from start to end on the links as known now; 0: unknown."""


Planner = Callable[[PlanQuestion], PlanAnswer]
"""Makes a plan; an `IctError` from it is shown as the reason to wait, and it is asked again."""


Validate = Callable[[bytes, tuple[Participant, ...]], str | None]
"""Checks a plan against the participants; says what is wrong with it, or None."""


def elect_spec(standing: Standing, mine: ClusterId | None) -> Spec:
    """The spec that most clusters want; on a tie `mine`'s, then the first cluster's.

    Newcomers are asked only where there is nobody else. They come to the call that the others are at, while who has
    been in rounds before, and is refused in this one, has missed it for good.
    """
    settled = {name: entry for name, entry in standing.items() if not entry[1].newcomer}
    groups: dict[Spec, list[ClusterId]] = {}
    for name, (_, ready) in (settled or standing).items():
        groups.setdefault(ready.spec, []).append(name)
    return max(groups, key=lambda spec: (len(groups[spec]), mine in groups[spec]))


def rejections(standing: Standing, spec: Spec) -> tuple[tuple[PeerId, Spec, str], ...]:
    """Who wants something else than `spec`, which, and what to tell it."""
    agreeing = ", ".join(name for name, (_, ready) in standing.items() if ready.spec == spec)
    return tuple(
        (leader, ready.spec, told_apart(name, ready.spec, spec, agreeing)[:1024])
        for name, (leader, ready) in standing.items()
        if ready.spec != spec
    )


@dataclass(frozen=True, slots=True)
class Opener:
    """What an OPEN is made with besides the READYs."""

    me: PeerId
    profile: RoundProfile
    planner: Planner
    validate: Validate

    def open(
        self,
        tip: Value,
        voters: tuple[PeerId, ...],
        chosen: Standing,
        failures: tuple[tuple[PeerId, PeerId], ...],
        misfits: str = "",
        longer: float = 1.0,
    ) -> Open | str:
        """Make the OPEN that follows `tip` for `chosen`, all of one spec; or say why there is no valid one.

        It is without those for whom there is no room in one decision (`room`), and may take so many times longer than
        the plan says.
        """
        spec = next(ready.spec for _, ready in chosen.values())
        ready = tuple(Participant(name, leader, r.term, r.weight, r.note) for name, (leader, r) in chosen.items())
        number = upcoming(tip)
        head = (tip.lineage, voters, tip.state, self.me, *number, spec)
        bare = Open(*head, (), b"", "", self.profile.deadline(0.0), misfits[:1024])
        parts = fitting(bare, ready)
        try:
            answer = self.planner(PlanQuestion(*number, spec, parts, failures, tip.state.digest))
        except IctError as error:
            return f"no plan: {error}"
        left = len(ready) - len(parts)
        reason = f"{answer.reason}, without {left} clusters more than fit into one decision" if left else answer.reason
        deadline = self.profile.deadline(answer.seconds) * longer
        opened = replace(bare, participants=parts, plan=answer.plan, reason=reason[:1024], deadline=deadline)
        wrong = fault(opened) or self.validate(answer.plan, parts)
        return f"no valid plan: {wrong}" if wrong else opened

    def foresee(self, tip: Value, spec: Spec, parts: tuple[Participant, ...]) -> None:
        """Have the attempt that probably follows `tip` planned already, where such a plan is one for all."""
        if spec.kind in ("sync", "reduce") and spec.grouping == "all":
            with contextlib.suppress(IctError):
                self.planner(PlanQuestion(*upcoming(tip), spec, parts, (), tip.state.digest))

    def rival(
        self, running: Open, failures: tuple[tuple[PeerId, PeerId], ...], *, forecast: bool
    ) -> tuple[float, float]:
        """Predict the plan that is being carried out, and one made now: seconds of both, 0 if there is no telling.

        For a forecast none is made: no plan takes less than the second figure.
        """
        asked = PlanQuestion(
            running.round,
            running.attempt,
            running.spec,
            running.participants,
            failures,
            running.state.digest,
            running.plan,
            forecast,
        )
        try:
            answer = self.planner(asked)
        except IctError:
            return 0.0, 0.0
        return answer.running, answer.seconds
