"""The rules of `ictp2p/bulk/seal.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "forged-in-pieces",
        "What is opened in several pieces is as sure to be what was sealed as what is opened in one.",
        "            decryptor.finalize()\n",
        "            pass\n",
        ("bulk/test_frames.py::test_a_body_in_pieces_is_sealed_and_opened_as_one",),
    ),
    Mutation(
        "frames-replayable",
        "A sealed frame opens once and in its turn.",
        "        self._count += 1\n",
        "",
        ("bulk/test_frames.py::test_frames_cannot_be_replayed_or_reordered",),
    ),
)
