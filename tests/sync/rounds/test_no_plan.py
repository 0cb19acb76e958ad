"""An attempt for which there is no plan: it is asked for again when something has changed, or after a while."""

from __future__ import annotations

import msgspec
import pytest

from ictp2p.errors import IctError
from ictp2p.sync.messages import Ready
from ictp2p.sync.rounds.machine import PlanAnswer, PlanQuestion
from ictp2p.sync.rounds.notices import RoundCommitted, SpecRejected
from ictp2p.types import ClusterId
from tests.sync.rounds.rounds_mesh import A0, B0, CALL, DELAY, SYNC, Mesh


class Roadless(Mesh):
    """There is no plan while `lost` says so."""

    lost = False

    def plan(self, request: PlanQuestion) -> PlanAnswer:
        answer = super().plan(request)
        if self.lost:
            raise IctError("no route to B")
        return answer


def refused() -> Roadless:
    """A0 was asked once, and found no plan for A and B."""
    m = Roadless({"A": 1, "B": 1})
    m.found(A0)
    m.one_round()
    m.lost = True
    m.everybody_ready()
    m.run(5 * DELAY)
    assert "no plan: no route to B" in m.rounds[A0].explain()
    m.plans.clear()
    return m


def said_again(m: Roadless) -> Ready:
    return next(message for who, _, message in reversed(m.sent) if who == B0 and isinstance(message, Ready))


def test_what_is_said_again_has_nothing_planned_again() -> None:
    """Regression: with 64 leaders that repeat what they bring, the planner was asked 31 times a second."""
    m = refused()
    start, ready = m.now, said_again(m)
    for _ in range(400):
        m.do(A0, m.rounds[A0].receive(B0, ready, m.now))
        m.run(5 * DELAY)
    assert 0 < len(m.plans) <= 1 + (m.now - start) / m.profile.retry


def test_a_route_that_is_found_is_used_after_a_while_at_most() -> None:
    m = refused()
    m.lost = False
    m.run(m.profile.retry + 10 * DELAY)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_who_was_turned_away_before_there_was_a_plan_is_named_once_there_is_one() -> None:
    m = refused()
    m.ready("B", msgspec.structs.replace(CALL, elements=11))
    m.ready("A", CALL)
    m.run(5 * DELAY)
    assert m.told(B0, SpecRejected)
    m.lost = False
    m.run(2 * m.profile.straggler_floor)
    opened = m.told(A0, RoundCommitted)[-1].open  # type: ignore[attr-defined]
    assert opened.spec == CALL
    assert "cluster B brings elements 11" in opened.misfits


def test_who_comes_back_with_what_fits_before_there_is_a_plan_is_no_misfit() -> None:
    m = refused()
    m.ready("B", msgspec.structs.replace(CALL, elements=11))
    m.ready("A", CALL)
    m.run(5 * DELAY)
    assert m.told(B0, SpecRejected)
    m.ready("B", CALL)
    m.lost = False
    m.run(m.profile.retry + 10 * DELAY)
    opened = m.told(A0, RoundCommitted)[-1].open  # type: ignore[attr-defined]
    assert [p.cluster for p in opened.participants] == ["A", "B"]
    assert not opened.misfits


@pytest.mark.parametrize("news", ["another READY", "another view", "another suspect"])
def test_news_have_it_planned_at_once(news: str) -> None:
    m = refused()
    m.lost = False
    if news == "another READY":
        m.ready("B", SYNC, 2.0)
    elif news == "another view":
        m.view(A0)
    else:
        m.do(A0, m.rounds[A0].suspects({B0}, m.now))
    m.run(10 * DELAY)
    assert m.plans
    assert ClusterId("A") in [p.cluster for p in m.plans[0].participants]
