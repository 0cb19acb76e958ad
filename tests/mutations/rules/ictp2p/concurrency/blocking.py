"""The rules of `ictp2p/concurrency/blocking.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "nothing-closed-at-exit",
        "A peer that is closed as its program exits is closed, though there are no threads for it any more.",
        "        if threading.main_thread().is_alive():\n            raise\n",
        "        raise\n",
        ("concurrency/test_blocking.py::test_a_loop_may_end_when_the_program_exits",),
    ),
)
