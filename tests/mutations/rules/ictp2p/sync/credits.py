"""The rules of `ictp2p/sync/credits.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "lost-versions-keep-contributions",
        "What was brought to a version that died is in none, and is brought again.",
        "{name: (min(v, source), earlier >> max(0, v - source)) for name, (v, earlier) in _standing(lost).items()}",
        "_standing(lost)",
        ("sync/test_credits.py::test_what_was_in_a_version_that_died_is_in_none",),
    ),
    Mutation(
        "heir-forgotten",
        "What a cluster brought to a later round than the next is in the state as well, and not brought again.",
        "if newest > base else 0",
        "if newest == base + 1 else 0",
        (
            "sync/test_credits.py::test_what_an_heir_brought_to_a_later_round_is_not_brought_again",
            "properties/test_agreement_safety.py::test_rounds_are_safe_in_chaos_and_live_after_it",
        ),
    ),
    Mutation(
        "earlier-forgotten",
        "A state says of each of the last versions whether a cluster had a part in it, not of the newest alone.",
        "_before(*before.get(p.cluster, (0, 0)), version)",
        "0",
        ("sync/test_credits.py::test_a_state_says_whose_contributions_are_in_it",),
    ),
)
