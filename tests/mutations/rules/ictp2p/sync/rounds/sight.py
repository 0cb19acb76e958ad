"""The rules of `ictp2p/sync/rounds/sight.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "votes-end-with-the-leader",
        "The workers of a cluster between two leaders keep their votes: without them one more death may halt the mesh.",
        "return since is None or peer == self._bereft[home].leader or now >= since + self._grace",
        "return True",
        ("sync/rounds/test_voter_deaths.py::test_the_workers_of_a_cluster_between_two_leaders_keep_their_votes",),
    ),
    Mutation(
        "present-homes-forgotten",
        "Whose worker somebody is may be forgotten only of those who are in no view any more.",
        "former = [peer for peer in self._homes if peer not in seen]",
        "former = list(self._homes)",
        (
            "sync/rounds/test_sight.py::test_of_workers_that_are_somebody_else_after_each_start_only_so_many_are_remembered",
        ),
    ),
    Mutation(
        "half-cleared-is-cleared",
        "A cluster is doubted as long as it or its leader is suspected.",
        "if view is None or not view.alive or self.steady(cluster):",
        "if view is None or not view.alive or not view.suspect:",
        ("sync/rounds/test_round_heirs.py::test_a_suspicion_that_is_half_taken_back_is_one",),
    ),
    Mutation(
        "given-up-as-it-comes-back",
        "A cluster in doubt of which a new claim is heard is given time anew.",
        "name: loss if loss.term == views[name].term else _Loss",
        "name: loss if True else _Loss",
        ("sync/rounds/test_sight.py::test_a_new_claim_in_a_cluster_that_is_in_doubt_is_given_time_of_its_own",),
    ),
    Mutation(
        "newcomers-left-alone",
        "Who votes alone does not leave a newcomer behind that has been let in and is in no view yet.",
        "        return self.met.union(",
        "        return frozenset[PeerId]().union(",
        (
            "sync/rounds/test_leaving.py::test_the_last_voter_waits_for_a_newcomer_that_no_view_names_yet",
            "sim/test_last_voter.py::test_who_comes_in_as_the_last_voter_leaves_has_its_vote",
        ),
    ),
    Mutation(
        "replaced-by-a-lower-claim",
        "A leader is replaced by a higher claim: else two side by side would end each other's attempts for ever.",
        "return view.leader != leader and (view.term, view.leader) > (term, leader)",
        "return view.leader != leader",
        ("sync/rounds/test_unseated.py::test_a_leader_is_replaced_by_another_with_a_higher_claim_and_by_nothing_else",),
    ),
)
