"""The next attempt is planned while nobody waits for it, by who coordinates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from ictp2p.errors import IctError
from ictp2p.sync.messages import Ready
from ictp2p.sync.rounds.foresight import REST, Foresight
from ictp2p.sync.rounds.machine import PlanAnswer, PlanQuestion
from ictp2p.sync.rounds.notices import RoundCommitted, RoundOpened
from ictp2p.sync.rounds.readies import RollCall
from ictp2p.sync.values import Grouping, Participant, Spec
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, D0, SYNC, Mesh, mesh


def round_of(m: Mesh, spec: Spec = SYNC, seconds: float = 1.0) -> None:
    """A round that takes so long; the plans asked for until it is over are forgotten."""
    leaders = set(m.leaders.values())
    m.silent = leaders
    for cluster in m.clusters:
        m.ready(cluster, spec)
    m.run(seconds)
    m.silent = set()
    for who in sorted(leaders):
        m.work(who, m.told(who, RoundOpened)[-1].open)  # type: ignore[attr-defined]
    m.run(0.1)
    m.bases = dict.fromkeys(m.clusters, m.value(A0).state.digest)
    m.plans.clear()


def with_whom(request: PlanQuestion) -> list[PeerId]:
    return [part.leader for part in request.participants]


def test_the_next_round_is_planned_after_a_rest_and_then_ever_more_rarely() -> None:
    m = mesh(A=1, B=1, C=1)
    round_of(m)
    m.run(REST - 0.2)
    assert not m.plans
    m.run(0.3)
    assert [(p.round, p.attempt, p.spec, with_whom(p)) for p in m.plans] == [(2, 1, SYNC, [A0, B0, C0])]
    m.run(60 * REST)
    assert len(m.plans) == 6, "after 1, 2, 4, 8, 16 and 32 times as long"
    m.plans.clear()
    m.everybody_ready()
    m.run(0.1)
    assert [(p.round, p.attempt, p.spec, with_whom(p)) for p in m.plans] == [(2, 1, SYNC, [A0, B0, C0])]
    assert len(m.told(A0, RoundCommitted)) == 2


def test_the_next_round_is_planned_while_some_are_waited_for() -> None:
    m = mesh(A=1, B=1, C=1)
    round_of(m)
    m.ready("B")
    m.run(REST)
    assert [(p.round, with_whom(p)) for p in m.plans] == [(2, [A0, B0, C0])]
    assert len(m.told(A0, RoundOpened)) == 1


@pytest.mark.parametrize(
    ("grouping", "seconds"), [("all", 0.1), ("pairs", 1.0), ("modules", 1.0)], ids=["short", "pairs", "modules"]
)
def test_what_is_planned_in_no_time_or_each_time_is_not_foreseen(grouping: Grouping, seconds: float) -> None:
    m = mesh(A=1, B=1)
    round_of(m, structs.replace(SYNC, grouping=grouping), seconds)
    m.run(60 * REST)
    m.ready("B", structs.replace(SYNC, grouping=grouping))
    m.run(0.1)
    assert not m.plans


def test_what_came_after_a_collective_the_last_time_is_foreseen() -> None:
    m = mesh(A=1, B=1)
    for _ in range(2):
        round_of(m, SYNC)
        round_of(m, CALL, 0.1)
        round_of(m, structs.replace(SYNC, elements=7))
    m.run(REST)
    assert [p.spec for p in m.plans] == [SYNC]
    m.plans.clear()
    round_of(m, SYNC)
    m.run(60 * REST)
    assert not m.plans, "what comes next is short"
    round_of(m, CALL, 0.1)
    m.run(REST)
    assert [p.spec.elements for p in m.plans] == [7]


def test_who_is_gone_by_then_is_no_part_of_the_next_plan() -> None:
    m = mesh(A=1, B=1, C=1, D=1)
    round_of(m)
    m.run(REST)
    m.failed.add("D")
    m.view()
    m.run(REST)
    assert [with_whom(p) for p in m.plans] == [[A0, B0, C0, D0], [A0, B0, C0]]


def test_that_there_is_no_plan_yet_harms_nothing() -> None:
    class Roadless(Mesh):
        def plan(self, request: PlanQuestion) -> PlanAnswer:
            if super().plan(request) and len(self.told(A0, RoundCommitted)) == 1 and len(self.plans) == 1:
                raise IctError("no route to B")
            return self.answer

    m = Roadless({"A": 1, "B": 1})
    m.found(A0)
    round_of(m)
    m.run(REST)
    assert len(m.plans) == 1
    m.everybody_ready()
    m.run(0.1)
    assert len(m.told(A0, RoundCommitted)) == 2


class Asked:
    """A foresight with nothing around it, and what it has planned."""

    def __init__(self) -> None:
        self.plans: list[tuple[Spec, list[PeerId]]] = []
        clusters = {ClusterId(c): SimpleNamespace(leader=leader) for c, leader in zip("ABC", (A0, B0, C0), strict=True)}
        opener: Any = SimpleNamespace(foresee=self._foresee)
        sight: Any = SimpleNamespace(mine=ClusterId("A"), clusters=clusters)
        self.foresight, self.now = Foresight(opener, sight), 0.0

    def _foresee(self, tip: object, spec: Spec, parts: tuple[Participant, ...]) -> None:
        self.plans.append((spec, [part.leader for part in parts]))

    def round(self, spec: Spec, took: float = 1.0) -> None:
        self.now += took
        opened: Any = SimpleNamespace(spec=spec)
        self.foresight.committed(opened, took, self.now)

    def look(self, ready: dict[str, tuple[PeerId, Spec]], absent: str, attempt: int = 1) -> None:
        standing = {
            ClusterId(c): (leader, Ready(1, 2, ClusterId(c), 1, 1.0, spec, None)) for c, (leader, spec) in ready.items()
        }
        away = tuple(map(ClusterId, absent))
        tip: Any = None
        self.foresight.look(tip, RollCall(2, attempt, standing, away, away, None), self.now + REST)


OTHER = structs.replace(SYNC, elements=7)


def test_an_attempt_after_the_first_is_not_foreseen() -> None:
    """What has failed in the one before is known by whoever plans it, when it is planned."""
    asked = Asked()
    asked.round(SYNC)
    asked.look({}, "ABC", attempt=2)
    assert asked.plans == []
    asked.look({}, "ABC")
    assert asked.plans == [(SYNC, [A0, B0, C0])]


def test_nothing_is_planned_for_one_alone() -> None:
    asked = Asked()
    asked.round(SYNC)
    asked.look({"B": (B0, SYNC)}, "")
    asked.look({}, "A")
    assert asked.plans == []


def test_what_those_want_who_are_there_comes_next_whatever_came_the_last_time() -> None:
    asked = Asked()
    for spec in (SYNC, OTHER, SYNC, OTHER):
        asked.round(spec)
    asked.look({"B": (B0, OTHER), "C": (C0, OTHER)}, "A")
    assert asked.plans == [(OTHER, [A0, B0, C0])]


def test_who_wants_something_else_is_no_part_of_what_is_planned() -> None:
    asked = Asked()
    asked.round(SYNC)
    asked.look({"A": (A0, SYNC), "B": (B0, OTHER)}, "C")
    assert asked.plans == [(SYNC, [A0, C0])]


def test_what_came_after_a_collective_that_is_forgotten_is_forgotten_as_well() -> None:
    asked = Asked()
    for number in range(17):
        asked.round(structs.replace(SYNC, elements=number))
    asked.round(structs.replace(SYNC, elements=0))
    asked.look({}, "AB")
    assert [spec.elements for spec, _ in asked.plans] == [0], "not what came after it before 16 others"
