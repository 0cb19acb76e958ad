"""Rules of planning: when a plan stays, how wide lines are taken to be, and who probes when."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ways-as-long-as-their-queues",
        "Plans reckon with a way's least round trip: amid a round others are as long as the round makes them.",
        "ictp2p/core/views.py",
        "    figures = (out, into, measured.min_rtt or 0.0, measured.loss, *bounds)",
        "    figures = (out, into, measured.srtt or 0.0, measured.loss, *bounds)",
        ("core/test_views.py::test_a_link_is_as_long_as_its_least_round_trip_whatever_waits_in_its_queues",),
    ),
    Mutation(
        "promises-taken-at-their-word",
        "A plan that has been carried out stays until another promises less, by as much as promises were off.",
        "ictp2p/core/proven.py",
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
        "ictp2p/core/proven.py",
        "_FORGIVEN * (1 - doubt)",
        "0 * (1 - doubt)",
        ("core/test_proven.py::test_an_empty_promise_is_tried_again_but_ever_more_rarely_than_the_best_is_used",),
    ),
    Mutation(
        "a-failed-plan-is-kept",
        "A plan by which a round failed is not kept.",
        "ictp2p/core/proven.py",
        '            proven.plan, proven.seconds = b"", inf\n',
        "            pass\n",
        ("core/test_proven.py::test_a_plan_by_which_a_round_failed_is_kept_no_longer",),
    ),
    Mutation(
        "a-kept-plan-is-not-predicted",
        "A kept plan's links are looked at before each round.",
        "ictp2p/core/proven.py",
        "self.seconds * max(1.0, predicted / (self.predicted or predicted))",
        "self.seconds",
        ("core/test_proven.py::test_a_link_that_breaks_down_is_planned_around_before_the_next_round",),
    ),
    Mutation(
        "another-rounds-opening",
        "What a round took is reckoned from its own opening.",
        "ictp2p/core/proven.py",
        " and _number(value) == _number(opened[0]):",
        ":",
        ("core/test_proven.py::test_a_round_whose_opening_was_not_seen_counts_for_nothing",),
    ),
    Mutation(
        "one-doubt-for-all",
        "Promises for links as they are and for known lines are doubted apart.",
        "ictp2p/core/proven.py",
        "        by = offered.by\n",
        '        by: _By = "links"\n',
        ("core/test_proven.py::test_promises_of_links_and_of_lines_are_doubted_apart",),
    ),
    Mutation(
        "a-trial-given-up-narrows-lines",
        "A plan that was made without regard to lines, and given up, says nothing of them, but of such promises.",
        "ictp2p/core/proven.py",
        'if kept or self._offer(opened).by != "links":',
        "if True:",
        ("core/test_proven.py::test_a_plan_on_trial_that_was_given_up_makes_its_kind_doubted_and_no_line_narrower",),
    ),
    Mutation(
        "given-up-for-an-empty-promise",
        "No attempt is given up for another plan that known lines do not allow.",
        "ictp2p/core/proven.py",
        "seconds=max(made.seconds, least)",
        "seconds=made.seconds",
        ("core/test_proven.py::test_an_attempt_under_way_is_not_given_up_for_what_known_lines_do_not_allow",),
    ),
    Mutation(
        "failed-only-when-decided",
        "An attempt has failed once another at its round is planned.",
        "ictp2p/core/proven.py",
        "(request.round, request.attempt) > _number(self._opened[0])",
        "False",
        ("core/test_proven.py::test_an_attempt_that_is_planned_anew_has_failed_though_that_was_not_yet_decided",),
    ),
    Mutation(
        "the-kept-plans-promise-unheeded",
        "A promise for the very plan that is kept is put to the test by its rounds.",
        "ictp2p/core/proven.py",
        "if answer.plan == self.plan and answer.seconds > 0:",
        "if False:",
        ("core/test_proven.py::test_a_promise_for_the_very_plan_that_is_kept_is_put_to_the_test_by_its_rounds",),
    ),
    Mutation(
        "slow-links-stay-wide",
        "Links of a round that was slow count as they are measured.",
        "ictp2p/core/lines.py",
        "before = 0.0 if pair in self._followed else self._widest.get(pair, 0.0)",
        "before = self._widest.get(pair, 0.0)",
        (
            "core/test_proven.py::test_links_of_a_round_that_was_slow_count_as_they_are_measured",
            "core/test_lines.py::test_links_that_were_slow_count_as_measured_for_some_rounds_and_then_anew",
        ),
    ),
    Mutation(
        "the-last-figure-of-a-link",
        "A link is as wide as it ever was, whatever it shares its lines with later.",
        "ictp2p/core/lines.py",
        "self._widest[pair] = max(rate, before)",
        "self._widest[pair] = rate",
        ("core/test_lines.py::test_links_that_had_their_lines_for_themselves_show_lines_whatever_they_share_later",),
    ),
    Mutation(
        "relays-taken-for-lines",
        "What a relayed link carries says nothing of the lines at its ends.",
        "ictp2p/core/lines.py",
        "for pair, link in links.items() if link.via is None}",
        "for pair, link in links.items()}",
        ("core/test_lines.py::test_what_a_relayed_link_carries_says_nothing_of_its_ends",),
    ),
    Mutation(
        "all-probe-at-once",
        "Whoever is probed lets one after the other.",
        "ictp2p/bulk/turns.py",
        "if self._probing is None and self._waiting:",
        "if self._waiting:",
        (
            "bulk/test_turns.py::test_one_has_the_turn_and_the_next_gets_it_when_it_ends",
            "bulk/test_hub.py::test_who_is_probed_by_two_at_once_lets_one_after_the_other",
        ),
    ),
    Mutation(
        "a-turn-for-ever",
        "A turn is over after some seconds, whatever has become of who has it.",
        "ictp2p/bulk/turns.py",
        "call_later(self._seconds, self._free)",
        "call_later(1e9, self._free)",
        ("bulk/test_turns.py::test_one_has_the_turn_and_the_next_gets_it_when_it_ends",),
    ),
    Mutation(
        "a-heap-taken-for-the-line",
        "What arrives at once, because a lost packet had held it up, is not the rate of the line.",
        "ictp2p/bulk/pacing.py",
        "rate = min(((total - so_far)",
        "rate = max(((total - so_far)",
        (
            "bulk/test_pacing.py::"
            "test_a_blast_shows_the_line_though_it_began_slowly_and_a_lost_packet_held_up_what_came_behind",
        ),
    ),
    Mutation(
        "slow-start-taken-for-the-line",
        "A probe's beginning, in which the sender's window opens, is left out.",
        "ictp2p/bulk/pacing.py",
        "return size, size / rate if rate else seconds, False",
        "return size, seconds, False",
        (
            "bulk/test_pacing.py::"
            "test_a_blast_shows_the_line_though_it_began_slowly_and_a_lost_packet_held_up_what_came_behind",
        ),
    ),
    Mutation(
        "content-with-a-crowded-plan",
        "A plan at the bound that crowds its lines does not end the search for another.",
        "ictp2p/collectives/planning/search.py",
        "best = min(best, candidate.fluid + max(0.0, candidate.crowded - candidate.seconds))",
        "best = min(best, candidate.fluid)",
        ("collectives/planning/test_planner.py::test_where_lines_would_be_crowded_trees_are_looked_for_as_well",),
    ),
    Mutation(
        "no-chain-alone",
        "Where one chain does, more of them are not relied on: what they carry depends on figures that may be wrong.",
        "ictp2p/collectives/planning/search.py",
        '            ("ring", (chain, *cycle) if chain else (), True),\n',
        "",
        (
            "collectives/planning/test_planner.py::test_one_chain_does_where_a_slow_line_can_be_its_end_however_wrong_the_figures_are",
        ),
    ),
    Mutation(
        "one-shot-unasked",
        "Nobody plans without roots but for who said that its sums come out alike everywhere.",
        "ictp2p/collectives/planning/planner.py",
        "in_one_shot(job) if request.small and codec",
        "in_one_shot(job) if codec",
        ("collectives/planning/test_planner.py::test_what_is_small_goes_in_one_shot_where_it_may",),
    ),
    Mutation(
        "line-no-wider-than-a-link",
        "A line is as wide at least as what all its links carried together in a round.",
        "ictp2p/core/lines.py",
        "self._together[end] = max(size / seconds,",
        "self._together[end] = max(0.0,",
        ("core/test_lines.py::test_a_line_is_as_wide_at_least_as_what_its_links_carried_together",),
    ),
    Mutation(
        "faster-once-for-ever",
        "What is chosen instead of a kept plan that has become worse is kept if it is better than that has become.",
        "ictp2p/core/proven.py",
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
        "ictp2p/core/proven.py",
        "            proven.doubts = {}\n",
        "            pass\n",
        ("core/test_proven.py::test_promises_are_believed_anew_where_a_kept_plan_has_become_faster",),
    ),
    Mutation(
        "rates-that-are-no-numbers",
        "What others say of their lines never has the planner reckon with what is no number, and go round for ever.",
        "ictp2p/collectives/planning/topology.py",
        "    return np.where((rates > 0) & (rates < np.inf), np.clip(rates, LEAST, MOST), rates)\n",
        "    return rates\n",
        (
            "collectives/planning/test_topology.py::test_rates_that_no_line_has_are_taken_for_the_least_or_the_most",
            "core/test_planning.py::test_whatever_a_card_says_of_its_links_there_is_a_plan",
        ),
    ),
)
