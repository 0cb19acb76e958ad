"""The rules of `ictp2p/runtime/departure.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "gone-before-the-death-is-noticed",
        "Who leaves waits until a death that nobody has noticed yet can no longer keep the others from releasing it.",
        "            await _within(self._unnoticed, self.released)\n",
        "            pass\n",
        ("sim/test_last_voter.py::test_who_leaves_when_the_coordinator_has_just_died_unnoticed_is_released",),
    ),
    Mutation(
        "waits-for-nobody",
        "Who leaves waits no longer where nobody is there who could release it.",
        " and control.core.m.rounds.attended:",
        ":",
        (
            "sim/test_last_voter.py"
            "::test_who_leaves_without_anybody_who_could_release_it_does_not_wait_for_a_death_to_be_noticed",
        ),
    ),
)
