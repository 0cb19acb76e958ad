"""The rules of `ictp2p/handle/service.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "begun-from-what-the-disk-knew",
        "Who starts again begins from what the others have agreed on by then, not from what its own disk knew.",
        "        await self.peer.informed()\n",
        "",
        ("sim/test_quick_restart.py::test_a_worker_that_restarts_quickly_does_not_begin_from_what_its_own_disk_knew",),
    ),
    Mutation(
        "served-answer-kept",
        "A peer that is closed serves no result of a call any more, nor keeps it.",
        "            self.answers.let_go()\n",
        "            pass\n",
        ("test_call_memory.py::test_a_peer_that_is_closed_keeps_no_result",),
    ),
)
