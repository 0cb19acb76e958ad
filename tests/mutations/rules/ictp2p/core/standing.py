"""The rules of `ictp2p/core/standing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "plan-stands-over-a-broken-link",
        "A plan stands only while it is as near to the bound as when it was made.",
        "if not 0.0 < distance <= WORSE * standing.distance:",
        "if not 0.0 < distance:",
        ("core/test_standing.py::test_a_link_that_breaks_down_is_planned_around_at_once",),
    ),
    Mutation(
        "quick-plan-stands-though-slow-now",
        "A quick plan is made anew when the links have made it slower by more than planning costs.",
        "return now <= WORSE * standing.predicted + PLANNING",
        "return True",
        ("core/test_standing.py::test_a_quick_plan_for_few_stands_until_the_links_have_made_it_slower_or_it_is_old",),
    ),
    Mutation(
        "foreseen-for-every-attempt",
        "What was planned ahead for few, and many bytes, is for that attempt alone: the next has its reasons.",
        "(request.round, request.attempt) == (standing.request.round, standing.request.attempt)",
        "request.round == standing.request.round",
        (
            "core/test_standing.py::"
            "test_what_was_asked_for_before_its_time_stands_for_that_attempt_alone_while_links_are_no_worse",
        ),
    ),
    Mutation(
        "given-up-plan-begun-again",
        "No attempt after the first begins with what stood for the one before: it may have been given up.",
        "(request.attempt > 1 or (_few(request) and not _quick(request, answer)))",
        "(_few(request) and not _quick(request, answer))",
        (
            "core/test_standing.py::"
            "test_the_plan_of_an_attempt_that_was_given_up_for_another_does_not_stand_for_the_next",
        ),
    ),
    Mutation(
        "foreseen-though-it-takes-longer-now",
        "What was planned ahead for few stands no longer than what it takes, unless it is at the bound.",
        "    return not _few(request) or distance < WORSE or now <= WORSE * standing.predicted\n",
        "    return True\n",
        (
            "core/test_standing.py::"
            "test_what_was_foreseen_is_planned_anew_where_another_spares_links_that_have_collapsed",
        ),
    ),
    Mutation(
        "seconds-of-former-links",
        "A plan that stands has as long as it takes on the links as they are now, and on no better ones.",
        "        seconds *= max(1.0, now / standing.predicted)\n",
        "",
        ("core/test_standing.py::test_what_was_foreseen_stands_at_the_bound_and_says_what_it_takes_by_now",),
    ),
    Mutation(
        "what-it-took-forgotten-on-other-links",
        "A plan that took longer than was predicted is waited for as many times longer on slower links.",
        "seconds *= max(1.0, now / standing.predicted)",
        "seconds = max(seconds, now)",
        (
            "core/test_standing.py::"
            "test_a_plan_that_took_longer_than_was_predicted_is_expected_to_take_as_many_times_longer_on_slower_links",
        ),
    ),
    Mutation(
        "forecast-by-a-plan",
        "Whether another plan could be worth it is found out without making one.",
        "        if request.forecast:\n",
        "        if request.forecast and not request.running:\n",
        ("core/test_standing.py::test_a_forecast_is_below_every_plan_and_makes_none",),
    ),
    Mutation(
        "plan-stands-for-ever",
        "A plan is made anew after some rounds, whatever the bound shows.",
        "    if not 0 <= request.round - standing.request.round <= STANDS:\n        return None\n",
        "",
        ("core/test_standing.py::test_what_differs_is_planned_anew",),
    ),
)
