"""A plan for many, or a quick one, stands while it is as good as when it was made; the rest of the answer is alike."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest
from msgspec import structs

from ictp2p.collectives import plan as plans
from ictp2p.core.directory import Directory
from ictp2p.core.planning import make_plan
from ictp2p.core.standing import MANY, QUICK, SPECS, STANDS, WORSE, StandingPlan
from ictp2p.sync.rounds.opening import PlanQuestion
from ictp2p.sync.rounds.replanning import COST, DETOUR
from ictp2p.sync.values import Close, Open, StateRef
from tests.core.planned import MB, directory, request

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


def far(found: Directory, round_trip: float = 0.2) -> Directory:
    """The same, with links as long as across an ocean."""
    for card in tuple(found.clusters.values()):
        links = tuple(structs.replace(link, round_trip=round_trip) for link in card.links)
        found.learn_cluster(structs.replace(card, links=links))
    return found


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
def test_what_differs_is_planned_anew(standing: StandingPlan, asked: PlanQuestion) -> None:
    now = mesh(ab=9.8 * MB)
    assert standing.answer(now, asked) == make_plan(now, asked)


def little(*names: str, number: int, elements: int = 1000, name: str = "x") -> PlanQuestion:
    asked = request(*names, name=name)
    return replace(asked, round=number, spec=structs.replace(asked.spec, elements=elements))


def test_a_quick_plan_for_few_stands_until_the_links_have_made_it_slower_or_it_is_old() -> None:
    plan, few, then, now = StandingPlan(), NAMES[:4], mesh(), mesh(ab=9 * MB, cd=30 * MB)
    first = plan.answer(then, little(*few, number=1))
    assert first == make_plan(then, little(*few, number=1))
    assert first.seconds <= QUICK
    for number in range(2, 2 + STANDS):
        answer = plan.answer(now, little(*few, number=number))
        assert (answer.plan, "round 1" in answer.reason) == (first.plan, True)
        assert answer.seconds > 0
    old, slow = little(*few, number=2 + STANDS), mesh(ab=0.1 * MB, ac=0.1 * MB, ad=0.1 * MB)
    assert plan.answer(now, old) == make_plan(now, old)
    later = replace(old, round=3 + STANDS)
    assert plan.answer(slow, later) == make_plan(slow, later)


def test_a_plan_for_few_and_many_bytes_is_made_for_each_round() -> None:
    plan, few, now = StandingPlan(), NAMES[:4], mesh(ab=9.8 * MB)
    assert plan.answer(mesh(), little(*few, number=1, elements=1_000_000)).seconds > QUICK
    asked = little(*few, number=2, elements=1_000_000)
    assert plan.answer(now, asked) == make_plan(now, asked)


def test_what_was_asked_for_before_its_time_stands_for_that_attempt_alone_while_links_are_no_worse() -> None:
    plan, few = StandingPlan(), NAMES[:4]
    foreseen = little(*few, number=2, elements=1_000_000)
    first = plan.answer(mesh(), foreseen)
    now, slow = mesh(ab=9.8 * MB), mesh(ab=0.2 * MB)
    assert make_plan(now, foreseen) != first, "the check below could not fail"
    assert plan.answer(now, foreseen) == replace(first, seconds=pytest.approx(first.seconds, rel=WORSE - 1))
    again = replace(foreseen, attempt=2)
    assert plan.answer(now, again) == make_plan(now, again)
    assert plan.answer(slow, again) == make_plan(slow, again)


def test_the_plan_of_an_attempt_that_was_given_up_for_another_does_not_stand_for_the_next() -> None:
    """It keeps its distance from a bound that takes the slow links of its hub for what all have to use."""
    plan, asked = StandingPlan(), little(*NAMES, number=2, elements=5_000_000)
    first = plan.answer(far(mesh(100 * MB)), asked)
    trees = plans.decode(first.plan)
    hub = trees.participants[trees.shares[0].root].lower()
    slow = far(mesh(100 * MB, **{"".join(sorted(hub + name)): 0.2 * MB for name in NAMES if name != hub}))
    rival = plan.answer(slow, replace(asked, running=first.plan))
    assert rival.running > DETOUR * rival.seconds + COST, "else it is not given up"
    assert plan.answer(slow, asked).plan == first.plan, "the check below could not fail"
    again = replace(asked, attempt=2)
    second = plan.answer(slow, again)
    assert second.plan != first.plan
    assert plan.answer(slow, again) == second, "nothing of that very attempt has failed yet"


def test_what_was_foreseen_is_planned_anew_where_another_spares_links_that_have_collapsed() -> None:
    """The bound has come down by the links of one cluster, as the plan has: its distance from it shows nothing."""
    plan, other, few = StandingPlan(), StandingPlan(), NAMES[:8]
    asked, then = little(*few, number=2, elements=1_000_000), far(mesh(100 * MB), 0.1)
    first = plan.answer(then, asked)
    assert first.seconds > QUICK
    other.answer(then, replace(asked, round=1))
    now = far(mesh(100 * MB, **{"a" + name: 10 * MB for name in few[1:]}), 0.1)
    due = other.answer(now, asked)
    assert make_plan(now, replace(asked, running=first.plan)).running > 1.5 * due.seconds, "nothing to be gained"
    assert plan.answer(now, asked) == due


def test_what_was_foreseen_stands_at_the_bound_and_says_what_it_takes_by_now() -> None:
    plan, pair = StandingPlan(), NAMES[:2]
    asked = little(*pair, number=2, elements=100_000_000)
    first = plan.answer(mesh(100 * MB), asked)
    slow, fast = mesh(10 * MB), mesh(200 * MB)
    assert plan.answer(slow, asked) == replace(first, seconds=pytest.approx(make_plan(slow, asked).seconds, rel=0.01))
    assert plan.answer(fast, asked) == first, "to wait a while too long costs less than to wait too little"


def test_a_plan_that_took_longer_than_was_predicted_is_expected_to_take_as_many_times_longer_on_slower_links() -> None:
    plan, pair = StandingPlan(), NAMES[:2]
    asked = little(*pair, number=1, elements=100_000_000)
    made = plan.answer(mesh(100 * MB), asked)
    head = (b"lineage.", (), StateRef(0, b"", ()), asked.participants[0].leader, 1, 1)
    opened = Open(*head, asked.spec, asked.participants, made.plan, "", 60.0)
    took = 3 * made.seconds
    plan.decided(mesh(100 * MB), opened, 10.0)
    plan.decided(mesh(100 * MB), Close(*head, True, bytes(32), "", ()), 10.0 + took)
    foreseen = replace(asked, round=2)
    assert plan.answer(mesh(100 * MB), foreseen).seconds == pytest.approx(took)
    assert plan.answer(mesh(50 * MB), foreseen).seconds == pytest.approx(2 * took, rel=0.1)


def test_a_forecast_is_below_every_plan_and_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, now = StandingPlan(), mesh(ab=3 * MB)
    asked = little(*NAMES[:4], number=1, elements=1_000_000)
    running = make_plan(mesh(), asked)
    due = make_plan(now, replace(asked, running=running.plan))

    def never(*given: object) -> NoReturn:
        raise AssertionError("planned")

    monkeypatch.setattr("ictp2p.core.standing.make_plan", never)
    answer = plan.answer(now, replace(asked, running=running.plan, forecast=True))
    assert answer.plan == b""
    assert 0 < answer.seconds <= due.seconds
    assert answer.running == due.running
    copies = replace(asked, running=running.plan, forecast=True, spec=structs.replace(asked.spec, kind="broadcast"))
    assert plan.answer(now, copies).seconds == 0, "a copy takes less than a sum for everybody"


def test_the_plans_of_collectives_in_turn_stand_and_those_of_the_last_ones_only() -> None:
    plan, pair = StandingPlan(), NAMES[:2]
    for number in range(SPECS + 1):
        plan.answer(mesh(), little(*pair, number=1, name=str(number)))
    again = [plan.answer(mesh(), little(*pair, number=2, name=str(number))) for number in (SPECS, 1, 0)]
    assert ["as planned" in answer.reason for answer in again] == [True, True, False]


@pytest.mark.parametrize("elements", [1000, 1_000_000])
@pytest.mark.parametrize("names", [NAMES[:4], NAMES])
def test_nothing_is_planned_anew_for_links_that_are_known_as_they_were(
    names: tuple[str, ...], elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is answered is what would be planned; once links have changed, what stood may stand for some rounds."""
    plan, made = StandingPlan(), make_plan(mesh(), little(*names, number=1, elements=elements))
    assert plan.answer(mesh(), little(*names, number=1, elements=elements)) == made

    def never(*given: object) -> NoReturn:
        raise AssertionError("planned")

    monkeypatch.setattr("ictp2p.core.standing.make_plan", never)
    for number in range(2, 4 * STANDS):
        answer = plan.answer(mesh(), little(*names, number=number, elements=elements))
        assert (answer.plan, answer.seconds) == (made.plan, made.seconds)
    with pytest.raises(AssertionError, match="planned"):
        plan.answer(mesh(ab=9 * MB), little(*names, number=number + STANDS, elements=elements))


def test_no_plan_stands_that_asks_for_more_room_than_a_leader_came_back_with() -> None:
    plan, asked = StandingPlan(), request(*NAMES)
    asked = replace(asked, spec=structs.replace(asked.spec, elements=100_000_000))

    def most(number: int, room: int) -> int:
        """Bytes that the plan for this round asks of the first leader, which gives `room`."""
        far = mesh(125 * MB)
        for name, card in tuple(far.clusters.items()):
            links = tuple(structs.replace(link, round_trip=0.1) for link in card.links)
            given = room if name == NAMES[0] else 2**28
            far.learn_cluster(structs.replace(card, links=links, room=given))
        made = plans.decode(plan.answer(far, replace(asked, round=number)).plan)
        return made.room(made.participants.index(NAMES[0].upper()))

    assert most(1, 2**28) > 2**25
    assert most(2, 2**25) <= 2**25
