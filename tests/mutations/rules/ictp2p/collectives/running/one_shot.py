"""The rules of `ictp2p/collectives/running/one_shot.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "leaves-who-wants-it-again",
        "Who has sent its part in one shot stays until the others have kept it, or got it again.",
        "        if not (self._missing or self._again or self._attachment is None or self.ended.done()):\n",
        "        if not (self._missing or self._attachment is None or self.ended.done()):\n",
        ("collectives/running/test_one_shot.py::test_who_sent_early_stays_until_its_part_was_kept_or_sent_again",),
    ),
    Mutation(
        "never-sent-again",
        "A part in one shot that was not kept is sent again.",
        "        if again:\n            self._again.add(peer)\n",
        "        if again:\n",
        ("bulk/test_early.py::test_a_part_in_one_shot_that_comes_early_is_used_or_sent_again",),
    ),
)
