"""The rules of `ictp2p/sync/rounds/coordinator.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "state-of-the-dead",
        "A state that is adopted is offered by somebody who lives.",
        "[peer for peer in self._offers if self._sight.lives(peer)]",
        "list(self._offers)",
        ("sync/rounds/test_rounds.py::test_of_the_states_that_were_offered_one_of_the_living_is_adopted",),
    ),
    Mutation(
        "pause-after-a-better-plan",
        "An attempt that was given up for another plan is no reason to pause before the next.",
        "self._waiting.look(roll, now, self._replanning.given_up)",
        "self._waiting.look(roll, now)",
        (
            "sync/rounds/test_rounds.py"
            "::test_a_slow_attempt_is_given_up_for_another_plan_where_all_average_all[all-True]",
        ),
    ),
    Mutation(
        "detour-of-groups",
        "An attempt of groups is not given up for another plan: there is none, and who is done would lose its part.",
        'return here and tip.spec.grouping == "all" and not self._box.on(tip)',
        "return here and not self._box.on(tip)",
        ("sync/rounds/test_rounds.py::test_a_slow_attempt_is_given_up_for_another_plan_where_all_average_all",),
    ),
    Mutation(
        "nothing-foreseen",
        "The next round is planned before anybody is READY for it.",
        "            wake = self._foresight.look(tip, roll, now)\n",
        "            wake = None\n",
        ("sync/rounds/test_foresight.py::test_the_next_round_is_planned_after_a_rest_and_then_ever_more_rarely",),
    ),
    Mutation(
        "never-another-plan",
        "A round whose link has lost its bandwidth changes its plan before it is over.",
        "            if detour is None:\n",
        "            if detour is None or True:\n",
        ("sim/test_scenarios.py::test_what_must_be_seen_is_seen[bandwidth_changes]",),
    ),
    Mutation(
        "ready-before-the-end-is-known",
        "Who stands READY again after an abort need not say so twice, however late the coordinator hears of that.",
        ", before=slot)  # others",
        ")  # others",
        (
            "sync/rounds/test_round_deaths.py::"
            "test_who_stands_ready_again_before_the_coordinator_knows_of_the_end_has_shown_that_it_lives",
        ),
    ),
    Mutation(
        "withdrawn-yet-opened-with",
        "Who has withdrawn is not in the next attempt, which would come to nothing for it.",
        "        self._readies.withdraw(sender, cluster)\n",
        "        pass\n",
        ("sync/rounds/test_participant.py::test_who_has_withdrawn_is_not_in_the_next_attempt",),
    ),
    Mutation(
        "rounds-of-nothing",
        "Who only attends begins no round.",
        "if all(ready.weight <= ATTENDS for _, ready in roll.standing.values()):",
        "if False:",
        ("sync/rounds/test_quorum_waits.py::test_who_only_attends_begins_no_round_and_is_in_one_that_others_begin",),
    ),
)
