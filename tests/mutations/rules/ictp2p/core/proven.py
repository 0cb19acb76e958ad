"""The rules of `ictp2p/core/proven.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "promises-taken-at-their-word",
        "A plan that has been carried out stays until another promises less, by as much as promises were off.",
        "best.seconds * proven.doubt(by) < GAIN * kept",
        "best.seconds < GAIN * kept",
        (
            "core/test_proven.py::"
            "test_another_plan_has_to_promise_less_than_the_best_took_by_as_much_as_promises_were_off",
        ),
    ),
    Mutation(
        "distrust-for-ever",
        "Another plan is put to the test now and then.",
        "_FORGIVEN * (1 - doubt)",
        "0 * (1 - doubt)",
        ("core/test_proven.py::test_an_empty_promise_is_tried_again_but_ever_more_rarely_than_the_best_is_used",),
    ),
    Mutation(
        "a-failed-plan-is-kept",
        "A plan by which a round failed is not kept.",
        '            proven.plan, proven.seconds = b"", inf\n',
        "            pass\n",
        ("core/test_proven.py::test_a_plan_by_which_a_round_failed_is_kept_no_longer",),
    ),
    Mutation(
        "a-kept-plan-is-not-predicted",
        "A kept plan's links are looked at before each round.",
        "self.seconds * max(1.0, predicted / (self.predicted or predicted))",
        "self.seconds",
        ("core/test_proven.py::test_a_link_that_breaks_down_is_planned_around_before_the_next_round",),
    ),
    Mutation(
        "another-rounds-opening",
        "What a round took is reckoned from its own opening.",
        " and _number(value) == _number(opened[0]):",
        ":",
        ("core/test_proven.py::test_a_round_whose_opening_was_not_seen_counts_for_nothing",),
    ),
    Mutation(
        "one-doubt-for-all",
        "Promises for links as they are and for known lines are doubted apart.",
        "        by = offered.by\n",
        '        by: _By = "links"\n',
        ("core/test_proven.py::test_promises_of_links_and_of_lines_are_doubted_apart",),
    ),
    Mutation(
        "a-trial-given-up-narrows-lines",
        "A plan that was made without regard to lines, and given up, says nothing of them, but of such promises.",
        'if kept or by != "links":',
        "if True:",
        ("core/test_proven.py::test_a_plan_on_trial_that_was_given_up_makes_its_kind_doubted_and_no_line_narrower",),
    ),
    Mutation(
        "given-up-and-promised-again",
        "What a plan promised that was given up is doubted, whatever it was made for.",
        "proven.doubts[by] = max(proven.doubt(by),",
        'proven.doubts["links"] = max(proven.doubt("links"),',
        ("core/test_proven.py::test_what_was_given_up_is_not_what_the_next_attempt_begins_with",),
    ),
    Mutation(
        "given-up-for-what-may-not-be",
        "An attempt that was given up for a plan for links is followed by that, also in a first round.",
        " and request.round != self._outdone",
        "",
        ("core/test_proven.py::test_what_was_given_up_is_not_what_the_next_attempt_begins_with",),
    ),
    Mutation(
        "given-up-for-an-empty-promise",
        "No attempt is given up for another plan that known lines do not allow.",
        "seconds=max(made.seconds, least)",
        "seconds=made.seconds",
        ("core/test_proven.py::test_an_attempt_under_way_is_not_given_up_for_what_known_lines_do_not_allow",),
    ),
    Mutation(
        "failed-only-when-decided",
        "An attempt has failed once another at its round is planned.",
        "(request.round, request.attempt) > _number(self._opened[0])",
        "False",
        ("core/test_proven.py::test_an_attempt_that_is_planned_anew_has_failed_though_that_was_not_yet_decided",),
    ),
    Mutation(
        "the-kept-plans-promise-unheeded",
        "A promise for the very plan that is kept is put to the test by its rounds.",
        "if answer.plan == self.plan and answer.seconds > 0:",
        "if False:",
        ("core/test_proven.py::test_a_promise_for_the_very_plan_that_is_kept_is_put_to_the_test_by_its_rounds",),
    ),
    Mutation(
        "faster-once-for-ever",
        "What is chosen instead of a kept plan that has become worse is kept if it is better than that has become.",
        "if proven is None or took < (offered.instead or (proven.seconds if not offered.plan else inf)):",
        "if proven is None or took < proven.seconds:",
        (
            "core/test_proven.py::"
            "test_what_is_chosen_since_the_kept_plan_has_become_worse_is_kept_though_that_was_faster_once",
        ),
    ),
    Mutation(
        "promises-of-another-weather",
        "Where a kept plan has become faster, promises are believed anew.",
        "            proven.doubts = {}\n",
        "            pass\n",
        ("core/test_proven.py::test_promises_are_believed_anew_where_a_kept_plan_has_become_faster",),
    ),
)
