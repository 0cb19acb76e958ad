"""The rules of `ictp2p/concurrency/forks.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "death-hidden-by-forks",
        "A process that is killed is known at once, though forks of it, such as a loader's workers, live on.",
        "            os.dup2(nothing, sock.fileno(), inheritable=False)\n",
        "            pass\n",
        (
            "edge/test_ports.py::test_nor_does_a_fork_keep_a_connection_that_is_still_being_made",
            "edge/test_ports.py::test_a_connection_ends_with_its_process_although_a_fork_lives_on",
        ),
    ),
)
