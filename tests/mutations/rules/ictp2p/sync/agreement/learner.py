"""The rules of `ictp2p/sync/agreement/learner.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "acceptances-of-any-ballot",
        "An acceptance counts for the value that was proposed under its ballot and no other.",
        "for voter, ballot in self._accepted.items() if ballot == self.ballot]",
        "for voter, ballot in self._accepted.items()]",
        ("sync/agreement/test_learner.py::test_only_what_a_quorum_has_accepted_under_one_ballot_is_learnt",),
    ),
    Mutation(
        "chosen-whatever-was-shown",
        "What was chosen under a ballot is the value that was shown under that one.",
        "return self._value if ballot == self.ballot else None",
        "return self._value",
        ("sync/agreement/test_learner.py::test_another_ballot_than_was_shown_is_not_taken_for_chosen",),
    ),
)
