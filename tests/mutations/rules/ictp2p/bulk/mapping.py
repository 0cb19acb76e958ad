"""The rules of `ictp2p/bulk/mapping.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "fork-between",
        "No fork of another thread comes between mapping memory and keeping it from forks.",
        "    with undivided():\n",
        "    if True:\n",
        ("bulk/test_shared.py::test_no_other_thread_forks_before_it_is_kept_from_forks",),
    ),
)
