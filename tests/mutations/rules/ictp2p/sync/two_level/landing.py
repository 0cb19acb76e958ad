"""The rules of `ictp2p/sync/two_level/landing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "fragment-of-another-round",
        "Of a state that was received those fragments count as contributed that the cluster's rounds were about.",
        "weights.inside(mine, rounds)",
        "{weights.landed}",
        (
            "sync/two_level/test_what_others_brought.py"
            "::test_only_the_fragments_that_the_cluster_s_rounds_were_about_are_in_a_state",
        ),
    ),
    Mutation(
        "brought-by-a-mate-and-kept",
        "What was trained under a round is not brought again if another worker of the cluster has brought it.",
        "(inside and weights.trains_on and mine != 1 << max(0, rounds - 1))",
        "False",
        (
            "sync/two_level/test_what_others_brought.py"
            "::test_what_was_trained_under_a_round_is_in_what_another_worker_brought_later",
        ),
    ),
    Mutation(
        "dropped-for-good",
        "A cluster whose late training is dropped begins its phase with the others' next round.",
        "            return self._begin_anew()",
        "            return self._forget()",
        (
            "sim/test_training.py"
            "::test_a_cluster_whose_late_training_is_dropped_comes_into_step_where_nobody_waits_for_it",
        ),
    ),
    Mutation(
        "applied-before-commit",
        "A participant holds its result back until the decision, whatever it voted itself.",
        "            case _:\n                weights.state.rollback()\n",
        "            case _:\n                if weights.state.sealed:\n"
        "                    weights.commit(progress.version + 1)\n",
        ("sync/two_level/test_policy_rounds.py::test_an_aborted_round_leaves_everything_as_it_was_to_the_bit",),
    ),
    Mutation(
        "late-kept-though-dropped",
        "What is to be forgotten is not brought to a later round.",
        'if fate is Fate.OUT and self._late == "drop":',
        "if False:",
        ("sync/two_level/test_late.py::test_what_missed_its_round_is_forgotten_if_it_is_to_be",),
    ),
    Mutation(
        "former-state-kept",
        "Who has taken over a state that it received gives the memory of the one before back.",
        "        if verdict.kind is Kind.ADOPT:\n            weights.state.release()\n",
        "",
        (
            "sync/two_level/test_landing.py"
            "::test_of_a_state_that_was_received_the_former_one_is_given_back_and_own_progress_counted_once",
        ),
    ),
)
