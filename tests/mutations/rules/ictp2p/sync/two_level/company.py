"""The rules of `ictp2p/sync/two_level/company.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "clusters-in-turns",
        "A shard that is much earlier than shard 0 attends the next round of its mesh.",
        "        if self._apart and attend is not None:\n",
        "        if False:\n",
        ("sync/two_level/test_in_turns.py::test_no_clusters_train_in_turns",),
    ),
    Mutation(
        "both-give-way",
        "Of two clusters that wait for each other with one shard each, one attends.",
        "return self._leave(found[0][1])",
        "return self._leave(max(waited for _, waited in found))",
        ("sync/two_level/test_in_turns.py::test_no_clusters_train_in_turns",),
    ),
    Mutation(
        "others-wait-for-who-waits",
        "A shard that has landed attends the rounds of its mesh while a sibling waits.",
        "if attend is not None and",
        "if False and",
        ("sync/two_level/test_company.py::test_who_has_landed_attends_the_next_round_while_a_sibling_waits",),
    ),
    Mutation(
        "attended-for-good",
        "A round that was only attended is given up when no sibling waits any more.",
        "            raise Abandoned\n",
        "            pass\n",
        ("sync/two_level/test_company.py::test_a_round_that_was_only_attended_is_given_up_when_nobody_waits_any_more",),
    ),
    Mutation(
        "given-up-though-begun",
        "A round that has begun is seen to its end.",
        "Standing.MOVES if self._moves else waits",
        "waits",
        ("sync/two_level/test_company.py::test_but_not_once_it_has_begun",),
    ),
)
