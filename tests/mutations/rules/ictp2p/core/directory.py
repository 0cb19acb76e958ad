"""The rules of `ictp2p/core/directory.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "all-former-workers-dialed",
        "Of workers that died by the thousand only the last are dialed.",
        "        surplus = len(order) - most\n",
        "        surplus = 0\n",
        (
            "core/test_directory.py::test_of_too_many_former_workers_those_are_kept_who_may_be_back_and_were_named_last",
            "core/test_stack_dialing.py::test_of_many_dead_mates_only_the_last_are_dialed",
        ),
    ),
    Mutation(
        "forgotten-while-here",
        "Nobody is forgotten who is there.",
        "listed.union(here, (",
        "listed.union((",
        ("core/test_directory.py::test_exactly_those_are_forgotten_whom_nobody_named_for_long_enough",),
    ),
    Mutation(
        "hidden-mates-lose-each-other",
        "Who only dials out can be dialed by the workers of its own cluster.",
        "card.endpoint(mate=card.cluster == self.me.cluster)",
        "card.endpoint()",
        ("sim/test_world.py::test_hidden_workers_of_one_cluster_find_each_other_and_find_each_other_again",),
    ),
    Mutation(
        "strangers-dialed-inside",
        "Where a hidden worker listens is for its mates alone: others would dial somebody of their own network.",
        "card.endpoint(mate=card.cluster == self.me.cluster)",
        "card.endpoint(mate=True)",
        ("core/test_directory.py::test_only_mates_are_dialed_where_they_can_be_dialed_from_inside",),
    ),
    Mutation(
        "dials-all-that-ever-died",
        "Clusters that died long ago are forgotten, but for the last few.",
        "            if now - self._absent[cluster] >= after:\n",
        "            if False:\n",
        ("core/test_stack_dialing.py::test_dead_clusters_are_not_dialed_for_ever_by_those_who_go_on",),
    ),
    Mutation(
        "plans-over-the-dead",
        "No plan leads over a cluster that is dead.",
        "if cluster not in self._lapsed]\n",
        "]\n",
        ("core/test_edges.py::test_nothing_is_planned_over_the_dead",),
    ),
    Mutation(
        "a-false-death-lets-old-claims-in",
        "After a false death the higher claim to a cluster holds as before.",
        "        self._lapsed.discard(card.cluster)\n        for worker",
        "        for worker",
        ("core/test_directory.py::test_after_a_false_death_the_higher_claim_holds_as_before",),
    ),
)
