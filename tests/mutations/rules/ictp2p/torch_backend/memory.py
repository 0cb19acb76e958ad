"""The rules of `ictp2p/torch_backend/memory.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "written-over-before-it-was-sent",
        "No result is written where something lies that is still to be sent to others.",
        "return before > 0 and first < ends[before - 1] and first < last",
        "return False",
        ("torch_backend/test_memory.py::test_no_place_holds_what_is_read_and_all_are_filled_in_the_end",),
    ),
    Mutation(
        "expanded-results",
        "A result that cannot be written is refused before anything moves.",
        "        if objection := unwritable(tensor):\n",
        "        if objection := False:\n",
        ("torch_backend/test_group_tensors.py::test_results_that_cannot_be_written_are_refused_before_anything_moves",),
    ),
    Mutation(
        "functional-result-refused",
        "What stands for a result that is under way is as good as that result.",
        "    tensor = awaited(tensor)\n",
        "",
        ("torch_backend/test_parity.py::test_every_collective_gives_what_gloo_gives",),
    ),
)
