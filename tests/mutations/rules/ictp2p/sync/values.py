"""The rules of `ictp2p/sync/values.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "half-is-a-quorum",
        "Exactly half of the voters decide only with the first of them: any two quorums meet.",
        "(2 * present == len(voters) > 0 and voters[0] in ids)",
        "(2 * present == len(voters) > 0)",
        ("sync/test_values.py::test_any_two_quorums_intersect",),
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
