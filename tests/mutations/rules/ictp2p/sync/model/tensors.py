"""The rules of `ictp2p/sync/model/tensors.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "buffer-in-one-place",
        "A buffer that no average can be written to is refused, by name.",
        "            if _overlaps(now):\n",
        "            if False:\n",
        ("sync/two_level/test_replaced.py::test_a_buffer_whose_elements_are_one_is_refused",),
    ),
    Mutation(
        "buffer-left-behind",
        "A buffer is averaged whichever tensor the program has put in its place.",
        "            if now is held:\n",
        "            if True:\n",
        ("sync/two_level/test_replaced.py::test_a_buffer_is_averaged_whichever_tensor_it_is_by_now",),
    ),
    Mutation(
        "shaped-anew-in-training",
        "A parameter that has another shape by now is refused by name before a step.",
        "if parameter.shape != self._shapes[name]:",
        "if False:",
        ("sync/two_level/test_late_weights.py::test_so_is_one_that_gets_it_while_it_trains[5]",),
    ),
)
