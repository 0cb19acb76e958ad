"""The rules of `ictp2p/torch_backend/abreast.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "large-ones-all-at-once",
        "Of large collectives only a few share the line.",
        "number < MOST and (number < FEW or self._bytes + nbytes <= BYTES)",
        "number < MOST",
        ("torch_backend/test_abreast.py::test_they_begin_in_order_and_of_large_ones_only_so_many_are_under_way",),
    ),
    Mutation(
        "one-time-for-the-whole-queue",
        "A collective that waits for its turn is not over as long as those before it end well.",
        "left = max(came, self._moved) + patience",
        "left = came + patience",
        ("torch_backend/test_abreast.py::test_who_waits_is_patient_as_long_as_those_before_it_end_well",),
    ),
    Mutation(
        "patient-beyond-failures",
        "Where no rank comes, what waits is over with what is under way.",
        "        if well:\n",
        "        if True:\n",
        ("torch_backend/test_abreast.py::test_who_waits_is_patient_as_long_as_those_before_it_end_well",),
    ),
)
