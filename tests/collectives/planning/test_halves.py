from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.plan import BROADCAST, NO_PARENT, REDUCE, check
from ictp2p.collectives.planning import growing, planner
from ictp2p.collectives.planning.halves import cuts, plan_collect, plan_gather, plan_scatter
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan_broadcast
from ictp2p.errors import NoRoute
from ictp2p.types import PeerId


def request(size: int, elements: int, blocked: set[tuple[int, int]]) -> PlanRequest:
    names = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {
        (names[a], names[b]): LinkEstimate(1e6 * (1 + (a + 2 * b) % 3), 0.01)
        for a in range(size)
        for b in range(size)
        if a != b and (a, b) not in blocked
    }
    return PlanRequest(names, elements, 4, links)


@given(st.integers(1, 6), st.sampled_from([0, 1, 5, 300_000]), st.data())
@settings(max_examples=30, deadline=None)
def test_every_half_is_a_valid_plan_that_uses_no_link_that_is_not_there(
    size: int, elements: int, data: st.DataObject
) -> None:
    pairs = [(a, b) for a in range(1, size) for b in range(1, size) if a != b]
    blocked = set(data.draw(st.lists(st.sampled_from(pairs), max_size=5))) if pairs else set()
    asked = request(size, elements, blocked)
    root = data.draw(st.integers(0, size - 1))
    found = {
        "gather": plan_gather(asked).plan,
        "scatter": plan_scatter(asked).plan,
        "collect": plan_collect(asked, asked.participants[root]).plan,
    }
    ends = cuts(elements, size)
    for name, plan in found.items():
        assert check(plan, asked.participants, elements) is None
        assert plan.kind == (BROADCAST if name == "gather" else REDUCE)
        for share in plan.shares:
            for n, parent in enumerate(share.broadcast_parents):
                assert parent == NO_PARENT or ((parent, n) if name == "gather" else (n, parent)) not in blocked
            if name == "collect":
                assert share.root == root
            elif share.stop > share.start:
                assert ends[share.root] <= share.start
                assert share.stop <= ends[share.root + 1]


def test_a_half_says_for_how_long_a_chunk_is_on_its_way_at_most() -> None:
    asked = request(4, 300_000, set())
    whole = {plan_gather: plan_broadcast, plan_scatter: plan_collect}
    for half, one in whole.items():
        ways = [one(request(4, 75_000, set()), name).plan.way for name in asked.participants]
        assert half(asked).plan.way == pytest.approx(max(ways))
        assert min(ways) >= 0.01


def test_a_participant_that_cannot_be_reached_is_an_error() -> None:
    alone = {(a, b) for a in range(3) for b in range(3) if 2 in (a, b)}
    for plan in (plan_gather, plan_scatter):
        with pytest.raises(NoRoute):
            plan(request(3, 100, alone))


def test_the_parts_of_all_are_planned_over_trees_that_are_grown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # growing them is nearly all that a plan costs: among a dozen the coordinator would hear nothing for seconds
    grown: list[int] = []

    def counted(*given: object) -> growing.Grown:
        grown.append(1)
        return growing.grow(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(planner, "grow", counted)
    asked = request(5, 500_000, {(1, 2)})
    gathered = plan_gather(asked).plan
    assert len(grown) == 1
    scattered = plan_scatter(asked).plan
    assert len(grown) == 2
    for root, name in enumerate(asked.participants):  # and each is as it is when planned by itself
        for whole, alone in ((gathered, plan_broadcast), (scattered, plan_collect)):
            parts = [share for share in whole.shares if share.root == root]
            expected = alone(request(5, 100_000, {(1, 2)}), name).plan.shares
            assert [part.broadcast_parents for part in parts] == [share.broadcast_parents for share in expected]
