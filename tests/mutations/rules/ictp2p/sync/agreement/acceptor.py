"""The rules of `ictp2p/sync/agreement/acceptor.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "promise-not-on-disk",
        "A promise survives the process that made it.",
        "        self.promised = ballot\n        return self.persist()\n",
        "        forgetful = self.persist()\n        self.promised = ballot\n        return forgetful\n",
        ("sync/agreement/test_agreement.py::test_a_promise_outlives_the_process",),
    ),
    Mutation(
        "two-values-under-one-ballot",
        "Another value than the one that was accepted under a ballot is not accepted under it.",
        "return ballot == self.accepted and value != self.value",
        "return False",
        (
            "sync/agreement/test_misanswers.py::"
            "test_another_value_under_the_ballot_of_what_was_accepted_is_refused_and_not_accepted",
        ),
    ),
    Mutation(
        "accepts-below-its-promise",
        "An acceptor refuses every ballot below the one that it promised.",
        "        if ballot < self.promised:\n            return None\n        assert not",
        "        assert not",
        ("sync/agreement/test_agreement.py::test_a_promise_outlives_the_process",),
    ),
)
