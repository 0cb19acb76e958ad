"""A plan for many stands while it is as good as when it was made; nothing else about the answer differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ictp2p.core.directory import Directory
from ictp2p.core.planning import make_plan
from ictp2p.core.standing import MANY, STANDS, StandingPlan
from ictp2p.sync.opening import PlanRequest
from tests.core.test_planning import MB, directory, request

NAMES = tuple(chr(ord("a") + i) for i in range(MANY + 1))


def mesh(rate: float = 10 * MB, **other: float) -> Directory:
    """All see each other at `rate`; `ab=x` is the rate of the link between a and b."""
    pairs = [(a, b) for a in NAMES for b in NAMES if a < b]
    return directory({(a, b): other.get(a + b, rate) for a, b in pairs})


@pytest.fixture
def standing() -> StandingPlan:
    plan = StandingPlan()
    plan.answer(mesh(), request(*NAMES))
    return plan


def test_a_plan_stands_though_links_were_measured_a_little_anew(standing: StandingPlan) -> None:
    first = make_plan(mesh(), request(*NAMES))
    now = mesh(ab=9.8 * MB, cd=11 * MB)
    second = standing.answer(now, replace(request(*NAMES), round=2))
    assert second.plan == first.plan
    assert second.seconds > 0
    assert "round 1" in second.reason
    assert make_plan(now, request(*NAMES)).plan != first.plan


def test_a_link_that_breaks_down_is_planned_around_at_once(standing: StandingPlan) -> None:
    now = mesh(ab=0.2 * MB)
    asked = replace(request(*NAMES), round=2)
    assert standing.answer(now, asked) == make_plan(now, asked)


@pytest.mark.parametrize(
    "asked",
    [
        replace(request(*NAMES), round=2 + STANDS),
        replace(request(*NAMES[1:]), round=2),
        replace(request(*reversed(NAMES)), round=2),
        replace(request(*NAMES, failures=(("A", "B"),)), round=2),
        replace(request(*NAMES, name="y"), round=2),
        replace(request(*NAMES), round=2, running=make_plan(mesh(), request(*NAMES)).plan),
    ],
    ids=["long-standing", "few", "others", "failures", "spec", "rival"],
)
def test_what_differs_is_planned_anew(standing: StandingPlan, asked: PlanRequest) -> None:
    now = mesh(ab=9.8 * MB)
    assert standing.answer(now, asked) == make_plan(now, asked)
