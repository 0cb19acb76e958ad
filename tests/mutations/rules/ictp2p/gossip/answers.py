"""The rules of `ictp2p/gossip/answers.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "only-quick-answers-are-learned-from",
        "An answer after the verdict tells how long answers take, too: the quick ones alone never tell of the slow.",
        "_LATE = 4",
        "_LATE = 1",
        ("gossip/test_prober.py::test_an_answer_after_the_verdict_is_learned_from",),
    ),
)
