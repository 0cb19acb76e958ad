"""The rules of `ictp2p/gossip/election.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "claim-before-its-term-is-on-disk",
        "A claim is persisted before it is sent, or a restarted peer could claim one term twice.",
        "return [*persist, LeaderChanged(self.me, self.term, told), *self._tell(self._alive)]",
        "return [*self._tell(self._alive), LeaderChanged(self.me, self.term, told), *persist]",
        ("gossip/test_election.py::TestOnePeer::test_the_term_is_on_disk_before_the_claim_leaves",),
    ),
    Mutation(
        "tie-of-a-term-unbroken",
        "Of two claims of one term the higher id wins at everybody.",
        "if (term, leader) <= self._knowledge():",
        "if term <= self.term:",
        ("gossip/test_election.py::TestOnePeer::test_in_one_term_the_higher_id_wins",),
    ),
    Mutation(
        "office-outlives-its-process",
        "Who hears of its office of a former life claims anew: (term, leader) names one life.",
        "            return [*persist, *self._claim(now, told=told)]\n        self._leader, self._attended",
        "            persist = [*persist]\n        self._leader, self._attended",
        ("gossip/test_election.py::TestOnePeer::test_an_office_does_not_outlive_its_process",),
    ),
    Mutation(
        "lower-claim-to-a-held-term-obeyed",
        "Who held a term in a former life answers a lower claim to it by a higher term: others remember its own.",
        "if leader == self.me or (term == self._held and leader < self.me):",
        "if leader == self.me:",
        (
            "gossip/test_election.py::TestOnePeer::test_who_held_a_term_in_a_former_life_claims_above_a_lower_claim_to_it",
        ),
    ),
    Mutation(
        "suspicion-deposes",
        "A leader that is only suspected keeps its office.",
        "return self.in_office or self._leader in self._alive",
        "return self.in_office or self._leader in {*self._alive} - self._suspects",
        ("gossip/test_election.py::TestOnePeer::test_a_suspected_leader_stays",),
    ),
    Mutation(
        "heir-takes-the-term-it-is-told",
        "A term is claimed by who leads in it, and by nobody for another.",
        "return [Send(heir, Claim(self.term + 1, heir))]",
        "return self._learn(self.term + 1, heir, 0.0)",
        ("gossip/test_election.py::TestOnePeer::test_an_office_is_handed_over_by_the_heirs_own_claim",),
    ),
    Mutation(
        "term-above-incarnations",
        "A claim to a term that no incarnation of the cluster can hold is refused.",
        "_HIGHEST = MAX_INCARNATION >> 32\n",
        "_HIGHEST = MAX_INCARNATION\n",
        (
            "gossip/test_election.py"
            "::test_a_term_that_the_wire_takes_has_an_incarnation_of_its_cluster_and_room_for_a_later_one",
        ),
    ),
    Mutation(
        "later-term-passed-over",
        "A leader that hears of a later term, and not whose, claims above it: its own would mean nothing to others.",
        "            return self._outdated(term, now)\n",
        "            return []\n",
        (
            "properties/test_election_exhaustive.py::test_no_office_is_held_twice_and_from_every_state_all_end_with_one_leader",
        ),
    ),
    Mutation(
        "named-and-silent",
        "Who sees no leader, and hears from others that it is theirs, claims: else all wait for each other.",
        "        if message.leader == self.me and not self._content():\n",
        "        if message.leader == self.me and not self._alive:\n",
        (
            "properties/test_election_exhaustive.py::test_no_office_is_held_twice_and_from_every_state_all_end_with_one_leader",
        ),
    ),
)
