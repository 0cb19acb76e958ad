"""A plan that was carried out stays until another promises to beat what it took; promises are doubted by experience."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.collectives import plan as plans
from ictp2p.collectives.planning import planner
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.core.directory import Directory
from ictp2p.core.edges import links_between
from ictp2p.core.lines import Lines
from ictp2p.core.planning import asked_of, make_plan
from ictp2p.core.proven import FASTER, GAIN, LEAST, SLOWER, WARY, ProvenPlans
from ictp2p.core.standing import StandingPlan
from ictp2p.sync.rounds.opening import PlanAnswer, PlanQuestion
from ictp2p.sync.values import Close, Open, StateRef
from ictp2p.types import PeerId
from tests.core.planned import MB, directory, request

NAMES = ("a", "b", "c", "d")
REQUEST = request(*NAMES)
STATE = StateRef(1, b"s" * 32, ())
ME = PeerId("A")


def mesh(rate: float = MB, **other: float) -> Directory:
    """All see each other at `rate` bytes/s; `ab=x` is the rate of the link between a and b."""
    pairs = [(a, b) for a in NAMES for b in NAMES if a < b]
    return directory({(a, b): other.get(a + b, rate) for a, b in pairs})


HERE = mesh()
FIRST, SECOND = (make_plan(found, REQUEST) for found in (HERE, mesh(ab=0.3 * MB)))


class Rounds:
    """A chain of rounds, each opened and closed."""

    def __init__(self, proven: ProvenPlans | StandingPlan) -> None:
        self.proven, self.now, self.round = proven, 0.0, 0

    def held(self, plan: bytes, seconds: float, *, committed: bool = True, asked: PlanQuestion = REQUEST) -> None:
        """One more round, by this plan."""
        self.round += 1
        whole = (b"lineage!", (ME,), STATE, ME, self.round, 1)
        self._decided(Open(*whole, asked.spec, asked.participants, plan, "", 60.0))
        self.now += seconds
        self._decided(Close(*whole, committed, b"d" * 32 if committed else b"", "", ()))

    def _decided(self, value: Open | Close) -> None:
        if isinstance(self.proven, StandingPlan):
            self.proven.decided(HERE, value, self.now)
        else:
            self.proven.decided(value, self.now)


def offered(proven: ProvenPlans, promise: float, asked: PlanQuestion = REQUEST, found: Directory = HERE) -> bytes:
    """What is chosen where the planner finds SECOND and promises so many seconds."""
    made = replace(SECOND, seconds=promise)
    return proven.better(asked_of(found, asked), asked, made).plan


def promised(seconds: float) -> bytes:
    """FIRST, as if so many seconds had been predicted for it."""
    return structs.replace(plans.decode(FIRST.plan), seconds=seconds).encode()


class Unseen(Lines):
    """Nothing is known of lines."""

    def request(self, asked: planner.PlanRequest) -> None:
        return None


def unknowing() -> ProvenPlans:
    """Plans where the links as they are now are all that is known."""
    proven = ProvenPlans()
    proven.lines = Unseen()
    return proven


@pytest.fixture
def proven() -> ProvenPlans:
    return unknowing()


def test_what_is_not_known_is_not_in_the_way_of_the_planner(proven: ProvenPlans) -> None:
    assert offered(proven, 1e6) == SECOND.plan


@given(took=st.floats(10 * LEAST, 1e4), part=st.floats(0.01, 2.0), lie=st.floats(0.5, WARY))
def test_another_plan_has_to_promise_less_than_the_best_took_by_as_much_as_promises_were_off(
    took: float, part: float, lie: float
) -> None:
    proven, kept = unknowing(), promised(took / lie)
    Rounds(proven).held(kept, took)
    doubt = lie if lie >= SLOWER else 1 + max(0.0, lie - 1) / 2
    if part * doubt < 0.999 * GAIN:
        assert offered(proven, part * took) == SECOND.plan
    elif part * doubt > 1.001 * GAIN:
        assert offered(proven, part * took) == kept


def test_the_answer_says_what_the_kept_plan_took_and_what_it_is_kept_against(proven: ProvenPlans) -> None:
    Rounds(proven).held(promised(20.0), 20.0)
    answer = proven.better(asked_of(HERE, REQUEST), REQUEST, replace(SECOND, seconds=19.9, reason="why"))
    assert answer == PlanAnswer(promised(20.0), "took 20 s in round 1; not proven: why", 20.0)


def test_a_plan_that_took_longer_than_the_best_is_not_kept(proven: ProvenPlans) -> None:
    rounds = Rounds(proven)
    rounds.held(promised(20.0), 20.0)
    rounds.held(SECOND.plan, 21.0)
    third = replace(make_plan(mesh(cd=0.2 * MB), REQUEST), seconds=19.9)
    assert proven.better(asked_of(HERE, REQUEST), REQUEST, third).plan == promised(20.0)


@pytest.mark.parametrize(
    "asked",
    [request(*NAMES[1:]), request(*reversed(NAMES)), request(*NAMES, name="y")],
    ids=["fewer", "another order", "another collective"],
)
def test_what_a_plan_took_says_nothing_of_another_collective(proven: ProvenPlans, asked: PlanQuestion) -> None:
    Rounds(proven).held(promised(20.0), 20.0)
    assert offered(proven, 1e6, asked) == SECOND.plan


def test_rounds_that_are_mostly_agreement_prove_nothing(proven: ProvenPlans) -> None:
    Rounds(proven).held(promised(0.5 * LEAST), 0.9 * LEAST)
    assert offered(proven, 1e6) == SECOND.plan


def test_a_plan_by_which_a_round_failed_is_kept_no_longer(proven: ProvenPlans) -> None:
    rounds = Rounds(proven)
    rounds.held(promised(20.0), 20.0)
    rounds.held(promised(20.0), 20.0, committed=False)
    assert offered(proven, 1e6) == SECOND.plan


def test_a_round_whose_opening_was_not_seen_counts_for_nothing(proven: ProvenPlans) -> None:
    """Who was behind is told only the newest value: the time since an older OPEN is not that of this round."""
    rounds = Rounds(proven)
    whole = (b"lineage!", (ME,), STATE, ME)
    rounds.proven.decided(Open(*whole, 7, 1, REQUEST.spec, REQUEST.participants, promised(20.0), "", 60.0), 0.0)
    rounds.proven.decided(Close(*whole, 8, 1, True, b"d" * 32, "", ()), 20.0)
    assert offered(proven, 1e6) == SECOND.plan


def test_a_link_that_breaks_down_is_planned_around_before_the_next_round(proven: ProvenPlans) -> None:
    Rounds(proven).held(FIRST.plan, FIRST.seconds)
    now = mesh(ab=0.05 * MB)
    assert offered(proven, 2 * FIRST.seconds) == FIRST.plan
    assert offered(proven, 2 * FIRST.seconds, found=now) == SECOND.plan


def test_a_plan_that_no_longer_fits_the_links_is_not_used(proven: ProvenPlans) -> None:
    Rounds(proven).held(FIRST.plan, FIRST.seconds)
    without = directory({("a", "b"): MB, ("c", "d"): MB})
    assert offered(proven, 1e6, found=without) == SECOND.plan


def test_the_figure_of_a_kept_plan_follows_its_rounds(proven: ProvenPlans) -> None:
    rounds = Rounds(proven)
    rounds.held(promised(20.0), 20.0)
    assert offered(proven, 19.9) == promised(20.0)
    for _ in range(3):
        rounds.held(promised(20.0), 40.0)
    assert offered(proven, 35.0) == SECOND.plan


def test_what_is_chosen_since_the_kept_plan_has_become_worse_is_kept_though_that_was_faster_once(
    proven: ProvenPlans,
) -> None:
    """Regression: links became slower, and one plan was tried again and again, and never improved upon."""
    rounds = Rounds(proven)
    rounds.held(FIRST.plan, FIRST.seconds)
    now = mesh(ab=0.05 * MB)
    assert offered(proven, 2 * FIRST.seconds) == FIRST.plan
    assert offered(proven, 2 * FIRST.seconds, found=now) == SECOND.plan
    rounds.held(SECOND.plan, 3 * FIRST.seconds)
    third = replace(make_plan(mesh(cd=0.2 * MB), REQUEST), seconds=2.95 * FIRST.seconds)
    assert proven.better(asked_of(now, REQUEST), REQUEST, third).plan == SECOND.plan


def test_promises_are_believed_anew_where_a_kept_plan_has_become_faster(proven: ProvenPlans) -> None:
    """Regression: links recovered, and what had been promised and not held while they were slow was not tried again."""
    rounds = Rounds(proven)
    rounds.held(promised(100.0), 100.0)
    assert offered(proven, 50.0) == SECOND.plan
    rounds.held(structs.replace(plans.decode(SECOND.plan), seconds=50.0).encode(), 150.0)
    assert offered(proven, 50.0) == promised(100.0)
    rounds.held(promised(100.0), 100.0 / FASTER * 1.01)
    assert offered(proven, 30.0) == promised(100.0)
    rounds.held(promised(100.0), 60.0)
    assert offered(proven, 50.0) == SECOND.plan


@given(truth=st.floats(1.0, 3.0), promise=st.floats(0.3, 0.99))
@settings(max_examples=20, deadline=None)
def test_an_empty_promise_is_tried_again_but_ever_more_rarely_than_the_best_is_used(
    truth: float, promise: float
) -> None:
    """The planner promises `promise` of what the best plan takes, again and again, and it takes `truth` of it."""
    proven, best = unknowing(), promised(100.0)
    rounds, other = Rounds(proven), structs.replace(plans.decode(SECOND.plan), seconds=100 * promise).encode()
    rounds.held(best, 100.0)
    used = []
    for _ in range(250):
        made = replace(SECOND, plan=other, seconds=100 * promise)
        used.append(proven.better(asked_of(HERE, REQUEST), REQUEST, made).plan)
        rounds.held(used[-1], 100.0 if used[-1] == best else 100 * truth)
    if truth > 1.01:
        assert used.count(best) >= 220
    if promise < 0.6:
        assert other in used[30:]


def test_of_many_collectives_those_of_late_are_remembered() -> None:
    proven, asked = unknowing(), [request(*NAMES, name=f"c{n}") for n in range(20)]
    rounds = Rounds(proven)
    for each in asked:
        rounds.held(promised(20.0), 20.0, asked=each)
    kept = [offered(proven, 19.9, each) == promised(20.0) for each in asked]
    assert kept == [False] * 12 + [True] * 8


def test_the_coordinator_keeps_what_has_proven_itself() -> None:
    standing = StandingPlan()
    first = standing.answer(HERE, REQUEST)
    rounds = Rounds(standing)
    rounds.held(first.plan, 1.01 * first.seconds)
    other = standing.answer(HERE, replace(REQUEST, round=2))
    assert other.plan != first.plan, "nothing says yet that links share a line: that is tried once"
    rounds.held(other.plan, 1.1 * first.seconds)
    now = mesh(ab=1.04 * MB)
    assert make_plan(now, REQUEST).plan != first.plan
    assert standing.answer(now, replace(REQUEST, round=3)).plan == first.plan


WIDE = mesh(4 * MB)
"""What links can do that have their lines for themselves."""
LONG = replace(REQUEST, spec=structs.replace(REQUEST.spec, elements=40_000_000))


def by_lines(only: str | None = None) -> bytes:
    """The plan for links and lines as wide as in `WIDE`."""
    lines = knowing().lines.request(asked_of(HERE, LONG))
    assert lines is not None
    return planner.plan(replace(lines, only=only)).plan.encode()


def knowing() -> ProvenPlans:
    """Plans by a leader who once saw all links alone, and now sees what they carry beside each other."""
    proven = ProvenPlans()
    for found in (WIDE, HERE):
        proven.lines.saw(links_between(found, LONG.participants), 0)
    return proven


def chosen(proven: ProvenPlans, promise: float) -> bytes:
    return proven.better(asked_of(HERE, LONG), LONG, replace(SECOND, seconds=promise)).plan


def test_where_nothing_was_carried_out_yet_the_plan_for_known_lines_comes_first() -> None:
    answer = knowing().better(asked_of(HERE, LONG), LONG, SECOND)
    assert answer.plan in (by_lines(), by_lines("ring"))
    assert answer.reason.startswith("for lines as wide as was seen: ")
    assert answer.seconds == plans.decode(answer.plan).seconds


def test_a_plan_for_known_lines_that_disappoints_gives_way_to_the_ring_and_that_to_the_best_of_them() -> None:
    proven, tried = knowing(), []
    rounds = Rounds(proven)
    took = {by_lines(): 2.0, by_lines("ring"): 1.2}
    assert len(took) == 2
    for _ in range(6):
        tried.append(chosen(proven, 1e6))
        promise = plans.decode(tried[-1]).seconds
        rounds.held(tried[-1], (SLOWER - 0.01 if tried[-1] == by_lines() else 1.0) * promise, asked=LONG)
    assert set(tried) == set(took)
    assert tried[-3:] == [by_lines("ring")] * 3


def test_promises_of_links_and_of_lines_are_doubted_apart() -> None:
    proven = knowing()
    rounds, first = Rounds(proven), chosen(proven, 1.0)
    rounds.held(first, (SLOWER - 0.01) * plans.decode(first).seconds, asked=LONG)
    other = by_lines("ring") if first == by_lines() else by_lines()
    assert chosen(proven, 1.01 * plans.decode(other).seconds) == other
    assert chosen(proven, 0.99 * plans.decode(other).seconds) == SECOND.plan


def test_a_promise_for_links_that_was_empty_is_doubted_by_as_much() -> None:
    proven = knowing()
    rounds, first = Rounds(proven), chosen(proven, 1.0)
    rounds.held(first, plans.decode(first).seconds, asked=LONG)
    assert chosen(proven, 1.0) == SECOND.plan
    rounds.held(SECOND.plan, 1e3, asked=LONG)
    kept = plans.decode(first).seconds
    assert chosen(proven, 1.01 * GAIN * kept / WARY) in (by_lines(), by_lines("ring"))
    assert chosen(proven, 0.99 * GAIN * kept / WARY) == SECOND.plan


def test_an_attempt_under_way_is_not_given_up_for_what_known_lines_do_not_allow() -> None:
    proven = knowing()
    running = replace(LONG, running=by_lines())
    made = make_plan(HERE, LONG)
    lines = proven.lines.request(asked_of(HERE, LONG))
    assert lines is not None
    honest = planner.predict(lines, plans.decode(made.plan))
    rival = proven.rival(asked_of(HERE, running), running, replace(made, seconds=honest / 9, running=7.0))
    assert (rival.plan, rival.running) == (made.plan, 7.0)
    assert rival.seconds == honest
    assert ProvenPlans().rival(asked_of(HERE, running), running, made) == made


def given_up(proven: ProvenPlans, plan: bytes) -> None:
    running = replace(LONG, running=plan)
    proven.rival(asked_of(HERE, running), running, SECOND)
    Rounds(proven).held(plan, 30.0, committed=False, asked=LONG)


def slow_again(proven: ProvenPlans, plan: bytes) -> None:
    rounds = Rounds(proven)
    rounds.held(plan, 10.0, asked=LONG)
    rounds.held(plan, 1.01 * SLOWER * 10.0, asked=LONG)


def slow_at_once(proven: ProvenPlans, plan: bytes) -> None:
    Rounds(proven).held(plan, 1.01 * SLOWER * plans.decode(plan).seconds, asked=LONG)


def test_a_plan_on_trial_that_was_given_up_makes_its_kind_doubted_and_no_line_narrower() -> None:
    proven = knowing()
    rounds, first = Rounds(proven), chosen(proven, 1.0)
    kept = plans.decode(first).seconds
    rounds.held(first, kept, asked=LONG)
    trial = structs.replace(plans.decode(SECOND.plan), seconds=1.0)
    assert (
        proven.better(asked_of(HERE, LONG), LONG, replace(SECOND, plan=trial.encode(), seconds=1.0)).plan
        == trial.encode()
    )
    running = replace(LONG, running=trial.encode())
    proven.rival(asked_of(HERE, running), running, replace(SECOND, running=5.0))
    rounds.held(trial.encode(), 30.0, committed=False, asked=LONG)
    for number in range(3):
        proven.lines.saw(links_between(HERE, LONG.participants), number)
    assert chosen(proven, 1.01 * GAIN * kept / 5.0) == first
    assert chosen(proven, 0.99 * GAIN * kept / 5.0) == SECOND.plan


@pytest.mark.parametrize("proven_before", [False, True])
def test_what_was_given_up_is_not_what_the_next_attempt_begins_with(proven_before: bool) -> None:
    """Regression: a ring was given up for a plan for links, and a ring came next; in a first round it had to be one."""
    proven = knowing()
    rounds, first = Rounds(proven), chosen(proven, 1.0)
    if proven_before:
        rounds.held(first, SLOWER * plans.decode(first).seconds, asked=LONG)
        rounds.held(first, 2 * SLOWER**2 * plans.decode(first).seconds, committed=False, asked=LONG)
        first = chosen(proven, 1e6)
    promise, by = plans.decode(first).seconds, proven._offered.by
    proven.rival(asked_of(HERE, LONG), replace(LONG, running=first), replace(SECOND, seconds=1.0, running=5 * promise))
    rounds.held(first, 9.0, committed=False, asked=LONG)
    after = proven.better(asked_of(HERE, LONG), replace(LONG, round=rounds.round, attempt=2), SECOND)
    assert after.plan == SECOND.plan
    proven.better(asked_of(HERE, LONG), replace(LONG, round=rounds.round + 1), replace(SECOND, seconds=1e6))
    assert {by, proven._offered.by} == {"lines", "ring"}, "what it promised was in vain"


@pytest.mark.parametrize("happens", [given_up, slow_again, slow_at_once])
def test_links_of_a_round_that_was_slow_count_as_they_are_measured(
    happens: Callable[[ProvenPlans, bytes], None],
) -> None:
    proven = knowing()
    plan = chosen(proven, 1.0)
    happens(proven, plan)
    proven.lines.saw(links_between(HERE, LONG.participants), 2)
    tree = plans.decode(plan).shares[0]
    a, b = Tree(tree.root, tree.reduce_parents, tree.broadcast_parents).edges()[0]
    leaders = plans.decode(plan).participants
    assert proven.lines._widest[PeerId(leaders[a]), PeerId(leaders[b])] == MB


def test_an_attempt_that_failed_early_says_nothing_of_its_links() -> None:
    proven = knowing()
    Rounds(proven).held(by_lines(), 1.0, committed=False, asked=LONG)
    proven.lines.saw(links_between(HERE, LONG.participants), 2)
    assert chosen(proven, 1.0) in (by_lines(), by_lines("ring"))


def test_an_attempt_that_is_planned_anew_has_failed_though_that_was_not_yet_decided(proven: ProvenPlans) -> None:
    kept = promised(20.0)
    Rounds(proven).held(kept, 20.0)
    assert offered(proven, 19.9) == kept
    opened = Open(b"lineage!", (ME,), STATE, ME, 2, 1, REQUEST.spec, REQUEST.participants, kept, "", 60.0)
    proven.decided(opened, 20.0)
    assert offered(proven, 19.9, replace(REQUEST, round=2, attempt=2)) == SECOND.plan


def test_a_promise_for_the_very_plan_that_is_kept_is_put_to_the_test_by_its_rounds() -> None:
    proven = knowing()
    Rounds(proven).held(SECOND.plan, 12.0, asked=LONG)
    chosen(proven, 10.0)
    running = replace(LONG, running=SECOND.plan)
    rival = proven.rival(asked_of(HERE, running), running, replace(SECOND, seconds=3.0))
    assert rival.seconds == pytest.approx(3.6)


@pytest.mark.parametrize(("codec", "share"), [("none", 1.0), ("bfloat16", 0.5), ("int8", 258 / 1024)])
def test_what_a_round_carried_shows_how_wide_its_lines_are_at_least(codec: str, share: float) -> None:
    proven, rounds = (known := knowing()), Rounds(known)
    leaders = [each.leader for each in LONG.participants]
    plan = structs.replace(planner.plan(replace(asked_of(HERE, LONG), only="star")).plan, codec=codec)
    sent = share * 2 * 4 * LONG.spec.elements * 3 / 4  # contributions to three others, and our result to them
    for seconds in (2.0, 4.0):  # the second time it is slower, and that is believed
        rounds.held(plan.encode(), seconds, asked=LONG)
        lines = proven.lines.request(asked_of(HERE, LONG))
        assert lines is not None
        assert [lines.up[end] for end in leaders] == pytest.approx([max(4 * MB, sent / seconds)] * 4, rel=0.01)
        proven.lines.slowed([(a, b) for a in leaders for b in leaders if a != b], rounds.round)
