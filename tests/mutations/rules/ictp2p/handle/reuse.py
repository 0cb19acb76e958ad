"""The rules of `ictp2p/handle/reuse.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "shared-memory-lent-twice",
        "Memory that a tensor lies in is not given out again.",
        "            region.used = True\n",
        "            region.used = False\n",
        ("handle/test_reuse.py::test_memory_is_used_again_once_no_tensor_lies_in_it_and_not_before",),
    ),
    Mutation(
        "free-memory-kept-for-good",
        "Memory that nobody has asked for in a while goes back to the system.",
        "                if asked == self._asked:\n                    self._trim(0)\n",
        "                if asked == self._asked:\n",
        ("handle/test_reuse.py::test_when_nobody_asks_for_an_interval_what_is_free_goes_back_and_what_is_used_stays",),
    ),
)
