"""The rules of `ictp2p/sync/rounds/readies.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "calls-without-the-heir",
        "The round of a call waits for the heir of a leader that died: its cluster's program did nothing wrong.",
        'return any(ready.spec.kind != "sync" for _, ready in standing.values())',
        "return False",
        ("sync/rounds/test_round_heirs.py::test_a_call_waits_for_the_heir_of_a_leader_that_died",),
    ),
    Mutation(
        "stale-base-takes-part",
        "A contribution that starts from another state than the agreed one is not reduced with the others.",
        "            and not _stale(ready, tip)\n",
        "",
        ("sync/rounds/test_rounds.py::test_a_stale_ready_on_the_wire_is_neither_used_nor_waited_for",),
    ),
    Mutation(
        "who-waits-is-refused",
        "Who can wait for others to be done is neither refused nor counted meanwhile.",
        "        present = in_turn(standing)\n",
        "        present = standing\n",
        ("sync/rounds/test_round_waits.py::test_a_call_stands_while_another_cluster_trains_and_has_no_part_in_that",),
    ),
    Mutation(
        "called-alone-after-a-policy",
        "A call waits for who has just ended its training as for who trains.",
        "if (view.training or name in paused)",
        "if view.training",
        ("sync/rounds/test_round_waits.py::test_a_call_waits_a_while_for_who_has_just_ended_its_training",),
    ),
)
