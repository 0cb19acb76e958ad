"""The rules of `ictp2p/collectives/codecs/cast.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "infinite-by-its-codec",
        "What is finite stays so on its way: as infinity it would be in everybody's state for good.",
        "        if self._short and _overflows(written):\n",
        "        if False:\n",
        ("collectives/codecs/test_cast.py::test_what_is_finite_stays_so_in_float16",),
    ),
)
