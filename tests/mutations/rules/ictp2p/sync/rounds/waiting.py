"""The rules of `ictp2p/sync/rounds/waiting.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "overtaken-for-good",
        "Who needs longer for the state than rounds last is waited for, once it was overtaken.",
        "        if (patient := start + min(self._behind(roll), self._profile.fetch_grace)) > until:",
        "        if (patient := start) > until:",
        (
            "sync/rounds/test_round_waits.py"
            "::test_who_needs_longer_than_that_for_the_state_is_waited_for_as_long_but_not_without_end",
        ),
    ),
    Mutation(
        "out-of-step-for-good",
        "Who is READY early, for it was overtaken, waits until the others should be.",
        "        return max([first, *due[:lacking]])",
        "        return first",
        ("sync/rounds/test_rhythm.py::test_clusters_of_equal_phases_come_into_step_wherever_each_of_them_began",),
    ),
    Mutation(
        "time-not-used",
        "A round waits for others as long as those who are READY have time, for they train meanwhile.",
        "        until = max(until, min(self._ready_at[name] + roll.standing[name][1].slack for name in bringing))\n",
        "",
        (
            "sync/rounds/test_quorum_waits.py::test_who_trains_meanwhile_waits_for_the_others_as_long_as_it_has_time",
            "sim/test_training.py::test_clusters_that_never_wait_are_together_in_rounds_though_they_drift",
        ),
    ),
    Mutation(
        "time-of-others",
        "Nobody waits for a round because others have time.",
        "until = max(until, min(self._ready_at[name]",
        "until = max(until, max(self._ready_at[name]",
        ("sync/rounds/test_quorum_waits.py::test_who_waits_for_a_round_does_not_wait_because_others_train_meanwhile",),
    ),
    Mutation(
        "onlookers-in-a-hurry",
        "After a round to which nobody brought anything, those who look on wait twice as long for those who train.",
        "            self._futile += went_without\n",
        "            pass\n",
        ("sync/rounds/test_onlookers.py::test_who_looks_on_alone_waits_twice_as_long_after_each_round_of_nothing",),
    ),
    Mutation(
        "onlookers-taken-for-the-first",
        "Waiting for stragglers begins when somebody who trains is READY, not when somebody looks on.",
        "first = self._first_at if self._brought_at is None else self._brought_at",
        "first = self._first_at",
        ("sync/rounds/test_onlookers.py::test_who_looks_on_early_does_not_take_from_the_wait_for_stragglers",),
    ),
    Mutation(
        "phases-of-those-who-bring-alone",
        "Who looked on at a round, having dropped what was late say, begins a phase with it.",
        "        if len(brought) < len(opened.participants):\n",
        "        if False:\n",
        (
            "sync/rounds/test_onlookers.py::test_who_dropped_what_was_late_has_a_phase_from_the_round_at_which_it_looked_on",
        ),
    ),
    Mutation(
        "calls-taken-for-phases",
        "Calls between two rounds of the state tell nothing of its phases.",
        '        rhythm = self._rhythms[opened.spec.kind != "sync"]\n',
        "        rhythm = self._rhythms[False]\n",
        ("sync/rounds/test_rhythm.py::test_calls_between_two_rounds_of_the_state_do_not_make_their_phases_seem_short",),
    ),
    Mutation(
        "suspected-miss-the-call",
        "A round of calls waits for whoever is suspected until that is over.",
        "        if (since := self._sight.wavering(name)) is not None:\n",
        "        if (since := None) is not None:\n",
        ("sync/rounds/test_round_heirs.py::test_a_call_waits_for_who_is_suspected_until_that_is_over",),
    ),
    Mutation(
        "no-time-for-a-detour",
        "Rounds of calls wait for stragglers as long at least as a way around a cut line takes.",
        "late = max(late, self._profile.detour)",
        "late = max(late, 0.0)",
        (
            "sync/rounds/test_round_waits.py::test_calls_wait_for_stragglers_as_long_at_least_as_a_way_around_a_cut_line_takes",
        ),
    ),
    Mutation(
        "round-of-onlookers",
        "A round of clusters that look on does not begin before those who train are late.",
        "self._most_at is None and len(bringing) > len(roll.absent)",
        "self._most_at is None and len(roll.standing) > len(roll.absent)",
        (
            "sync/rounds/test_onlookers.py::test_who_looks_on_does_not_make_stragglers_of_those_who_train",
            "sync/rounds/test_onlookers.py::test_who_looks_on_is_none_of_most_who_are_ready",
        ),
    ),
    Mutation(
        "door-closed-by-onlookers",
        "Who looks on is no part of the quorum with which a round waits for the others no longer.",
        "door = self._arrivals.door(spec, expected, bringing, self._profile.retry)",
        "door = self._arrivals.door(spec, expected, roll.standing, self._profile.retry)",
        ("sync/rounds/test_quorum_waits.py::test_who_looks_on_does_not_close_the_door_on_those_who_train",),
    ),
    Mutation(
        "scattered-by-onlookers",
        "When somebody looks on is no measure of how arrivals scatter.",
        "(*_bringing(roll.standing), *roll.absent)",
        "(*roll.standing, *roll.absent)",
        ("sync/rounds/test_quorum_waits.py::test_when_somebody_looks_on_is_no_measure_of_how_arrivals_scatter",),
    ),
)
