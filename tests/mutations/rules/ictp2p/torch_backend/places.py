"""The rules of `ictp2p/torch_backend/places.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "messages-without-places",
        "A rank begins no more messages ahead of another than that one remembers.",
        "        if self._taken >= MOST:\n",
        "        if self._taken < 0:\n",
        ("torch_backend/test_places.py::test_of_those_that_nobody_wants_only_so_many_are_under_way",),
    ),
)
