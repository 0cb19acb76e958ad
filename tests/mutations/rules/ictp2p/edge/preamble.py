"""The rules of `ictp2p/edge/preamble.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "fingerprint-ignored-by-the-acceptor",
        "A dialer of another mesh is turned away before TLS.",
        "    if mine.fingerprint != theirs.fingerprint:\n",
        "    if len(mine.fingerprint) != len(theirs.fingerprint):\n",
        ("edge/test_preamble.py::test_each_mismatch_is_named",),
    ),
    Mutation(
        "fingerprint-ignored-by-the-dialer",
        "An acceptor that welcomes strangers is not one of ours.",
        "if verdict == Verdict.WELCOME and theirs.fingerprint != mine.fingerprint:",
        "if verdict == Verdict.WELCOME and not theirs.fingerprint:",
        ("edge/test_preamble.py::test_an_acceptor_that_welcomes_another_mesh_is_not_believed",),
    ),
)
