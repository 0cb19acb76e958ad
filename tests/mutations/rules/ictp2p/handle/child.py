"""The rules of `ictp2p/handle/child.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "sealed-not-answered-for",
        "A peer in a process of its own answers for a state that its training has sealed.",
        "        return self._stock.sealed\n",
        '        return b""\n',
        ("handle/test_child.py::test_it_answers_for_what_training_has_landed_and_for_what_may_be_agreed_on_besides",),
    ),
    Mutation(
        "ended-by-a-warning",
        "A signal by which a scheduler announces an end is not the end of a peer's process.",
        "    signal.SIGUSR1,\n",
        "",
        ("handle/test_process_ends.py::test_a_signal_that_the_program_answers_is_not_the_end_of_its_peer",),
    ),
    Mutation(
        "cancelled-before-it-began",
        "A request to a peer's process is answered, and lets go of its tensors, however early it is cancelled.",
        "self._loop.call_soon(self._tasks[number].cancel)",
        "self._tasks[number].cancel()",
        ("handle/test_child.py::test_every_request_is_answered_once_however_early_it_is_cancelled",),
    ),
    Mutation(
        "peer-outlives-its-program",
        "The process of a peer is killed with its training program, though a fork of that keeps its socket open.",
        "    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)\n",
        "",
        ("handle/test_process_ends.py::test_a_program_that_is_killed_leaves_no_process_and_no_memory",),
    ),
)
