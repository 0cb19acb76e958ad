"""The rules of `ictp2p/sync/model/stepping.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stepped-at-the-end",
        "What has arrived is stepped while the rest is on the wire.",
        ">= _BATCH:",
        ">= 2**60:",
        ("sync/model/test_stepping.py::test_what_has_arrived_is_stepped_before_the_rest_is_here",),
    ),
    Mutation(
        "untold-elements-unstepped",
        "A step is of all elements, those too of which nothing was told.",
        "self._step([*self._waiting, *_gaps(self._arrived, self._ends[-1] if self._ends else 0)])",
        "self._step(self._waiting)",
        ("sync/model/test_stepping.py::test_the_bits_are_those_of_a_step_at_once",),
    ),
    Mutation(
        "stepped-twice",
        "No element is stepped twice.",
        "            self._waiting, self._waits = [], 0\n",
        "            self._waits = 0\n",
        ("sync/model/test_stepping.py::test_the_bits_are_those_of_a_step_at_once",),
    ),
    Mutation(
        "hashed-at-the-end",
        "What is final is hashed while the rest is on the wire.",
        "        draft.final(",
        "        if False: draft.final(",
        ("sync/model/test_stepping.py::test_what_is_final_is_hashed_before_the_rest_is_here",),
    ),
    Mutation(
        "interrupted-and-gone-on-with",
        "A step that was interrupted in its midst is taken anew.",
        "draft, self._draft = self._draft, None",
        "draft = self._draft",
        ("sync/model/test_stepping.py::test_a_step_that_went_wrong_in_its_midst_is_taken_anew",),
    ),
)
