"""The rules of `ictp2p/sync/values.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "value-longer-than-a-frame",
        "No value is proposed or accepted that is longer than what a frame can carry to who has to know it.",
        "if (size := encoded_size(value)) > MAX_VALUE:",
        "if (size := encoded_size(value)) > 2 * MAX_VALUE:",
        ("sync/rounds/test_room.py::test_an_attempt_that_is_too_long_is_none",),
    ),
    Mutation(
        "half-is-a-quorum",
        "Exactly half of the voters decide only with the first of them: any two quorums meet.",
        "(2 * present == len(voters) > 0 and voters[0] in ids)",
        "(2 * present == len(voters) > 0)",
        ("sync/test_values.py::test_any_two_quorums_intersect",),
    ),
    Mutation(
        "version-numbers-go-back",
        "A version has one digest for ever: what is restored gets a new number.",
        "if value.state != expected or not value.state.providers:",
        "if not value.state.providers:",
        ("sync/rounds/test_restore.py::test_a_restore_that_cannot_be_is_refused",),
    ),
    Mutation(
        "lost-versions-keep-contributions",
        "What was brought to a version that died is in none, and is brought again.",
        "{name: (min(v, source), earlier >> max(0, v - source)) for name, (v, earlier) in _standing(lost).items()}",
        "_standing(lost)",
        ("sync/test_values.py::test_what_was_in_a_version_that_died_is_in_none",),
    ),
    Mutation(
        "heir-forgotten",
        "What a cluster brought to a later round than the next is in the state as well, and not brought again.",
        "if newest > base else 0",
        "if newest == base + 1 else 0",
        (
            "sync/test_values.py::test_what_an_heir_brought_to_a_later_round_is_not_brought_again",
            "properties/test_agreement_safety.py::test_rounds_are_safe_in_chaos_and_live_after_it",
        ),
    ),
    Mutation(
        "earlier-forgotten",
        "A state says of each of the last versions whether a cluster had a part in it, not of the newest alone.",
        "_before(*before.get(p.cluster, (0, 0)), version)",
        "0",
        ("sync/test_values.py::test_a_state_says_whose_contributions_are_in_it",),
    ),
    Mutation(
        "newcomers-before-the-promised",
        "Who is in the middle of a call of two rounds gets to its end, however many come to the first one.",
        "        return first or (other.trains and not self.trains)",
        "        return other.trains and not self.trains",
        ("sync/rounds/test_readies.py::test_who_is_at_the_first_round_of_a_call_waits_while_others_are_at_its_second",),
    ),
    Mutation(
        "call-ends-a-training",
        "A call waits while other clusters train with a policy, however many call.",
        "        return first or (other.trains and not self.trains)",
        "        return first",
        (
            "sync/rounds/test_readies.py::test_calls_wait_while_others_train",
            "sync/rounds/test_round_waits.py::test_a_call_stands_while_another_cluster_trains_and_has_no_part_in_that",
        ),
    ),
)
