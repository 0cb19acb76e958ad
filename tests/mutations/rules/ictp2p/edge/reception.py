"""The rules of `ictp2p/edge/reception.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "takes-the-place-of-who-came-in",
        "Who has come in gives its place back at once, and is made to go no more.",
        "            self._places.leave(opening)  # at once: who has come in can be made to go no more\n",
        "            pass\n",
        ("edge/test_reception.py::test_who_has_just_come_in_is_not_made_to_go",),
    ),
)
