"""The rules of `ictp2p/handle/line.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "line-in-place-of-a-standard-stream",
        "The line to a peer's process takes no number of a standard stream, which that process takes for its own.",
        "        spare_standard_streams()  # it is",
        "        # it is",
        ("concurrency/test_descriptors.py::test_a_line_takes_the_number_of_no_standard_stream",),
    ),
    Mutation(
        "line-without-a-thread-left-open",
        "A peer whose process cannot be started for want of threads leaves no descriptor behind.",
        "                end.close()\n            raise\n        _OPEN",
        "                pass\n            raise\n        _OPEN",
        ("test_scarcity.py::test_a_start_without_threads_is_a_typed_error_and_leaves_no_descriptor",),
    ),
    Mutation(
        "writer-outlives-the-line",
        "The thread that writes to a peer's process ends with the line to it.",
        "        self._outbox.close()\n        self._writer.join(_END)\n",
        "",
        ("handle/test_process_ends.py::test_a_process_is_ended_that_has_no_thread_to_answer_it",),
    ),
    Mutation(
        "leaving-without-end",
        "A peer's process that does not leave in time is killed: nobody waits for one that is stopped.",
        "            self._process.kill()\n        self._cut()  # who",
        "            return\n        self._cut()  # who",
        ("handle/test_process_ends.py::test_who_leaves_does_not_wait_for_a_process_that_is_stopped",),
    ),
    Mutation(
        "killed-but-waited-for",
        "Nobody waits for a peer's process that was killed, and does not die while its disk hangs.",
        "                status = process.wait(_END)\n            except",
        "                status = process.wait()\n            except",
        ("handle/test_process_ends.py::test_who_leaves_does_not_wait_for_a_process_that_does_not_die",),
    ),
    Mutation(
        "line-to-who-does-not-die",
        "The line to a peer's process that is killed is closed at once, whether or not it dies.",
        "        self._cut()  # who",
        "        pass  # who",
        ("handle/test_process_ends.py::test_who_leaves_does_not_wait_for_a_process_that_does_not_die",),
    ),
    Mutation(
        "signal-without-a-name",
        "A peer's process that is ended by a signal without a name ends every wait.",
        "was ended by {_name(-status)}",
        "was ended by {signal.Signals(-status).name}",
        ("handle/test_process_ends.py::test_a_process_that_is_ended_by_a_signal_without_a_name_ends_every_wait",),
    ),
    Mutation(
        "end-of-the-line-in-a-fork",
        "A fork that is made while a peer's process starts does not keep the line to it open.",
        "            made_alone(lambda: self._theirs)\n",
        "",
        ("handle/test_process_ends.py::test_a_fork_made_while_a_peers_process_starts_keeps_no_end_of_the_line",),
    ),
)
