"""The rules of `ictp2p/sync/agreement/proposer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "accepted-value-ignored",
        "A proposer that finds an accepted value proposes that one, for it may be decided already.",
        "        value = bound.value if bound.accepted > NO_BALLOT else self.wish\n",
        "        value = self.wish\n",
        ("sync/agreement/test_agreement.py::test_an_accepted_value_binds_later_proposers",),
    ),
    Mutation(
        "ballot-one-for-everybody",
        "Only the author of the last decision may skip the first phase.",
        "return ballot == (_OWNED, tip.author)",
        "return ballot.number == _OWNED",
        ("sync/agreement/test_agreement.py::test_ballot_one_belongs_to_the_author_alone",),
    ),
    Mutation(
        "bids-what-cannot-be-read",
        "Nobody is talked into a bid that its own disk cannot give back.",
        "if promised <= ballot or promised.number > HIGHEST:",
        "if promised <= ballot:",
        (
            "sync/agreement/test_misanswers.py::test_whatever_voters_say_the_disk_can_be_read",
            "sync/agreement/test_misanswers.py::test_what_no_voter_says_is_named",
        ),
    ),
    Mutation(
        "takes-over-what-cannot-follow",
        "What others are said to have accepted is taken over only if it could be decided in that slot.",
        "            return follows(tip, value)\n",
        "            return None\n",
        ("sync/agreement/test_misanswers.py::test_what_no_voter_says_is_named",),
    ),
    Mutation(
        "promises-forgotten",
        "With a quorum of promises a later wish is asked for at once.",
        "        if self.busy:\n            return self._choose(now)\n",
        "        if self.busy:\n            return []\n",
        (
            "sync/agreement/test_agreement.py::test_a_wish_may_change_or_go_until_a_quorum_has_promised_and_the_promises_stay",
        ),
    ),
)
