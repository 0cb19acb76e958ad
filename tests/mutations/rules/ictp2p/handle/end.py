"""The rules of `ictp2p/handle/end.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "lost-descriptor-unnoticed",
        "Where a descriptor was lost on its way to a peer's process, no other one is taken for it.",
        "        self._lost |= bool(flags & socket.MSG_CTRUNC)\n",
        "",
        ("handle/test_process_ends.py::test_a_process_that_may_open_no_more_files_says_so_at_its_end",),
    ),
)
