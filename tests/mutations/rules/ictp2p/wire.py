"""The rules of `ictp2p/wire.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "half-a-frame-is-forgotten",
        "What a read holds of a frame is kept until the rest has come; simulated reads end within frames.",
        "            self._buffer += memoryview(data)[start:]\n",
        "            pass\n",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
    Mutation(
        "one-frame-a-read",
        "All frames that a read completes are handed on; simulated reads complete several.",
        "        return frames\n\n    def _header",
        "        return frames[:1]\n\n    def _header",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
)
