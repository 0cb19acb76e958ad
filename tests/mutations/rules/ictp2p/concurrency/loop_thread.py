"""The rules of `ictp2p/concurrency/loop_thread.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "waits-for-the-parents-thread",
        "A call of a group in a forked process is refused: the thread that would end it was not forked along.",
        "        if self.left_behind:\n            raise self._closed(",
        "        if self._closing:\n            raise self._closed(",
        ("torch_backend/test_fork.py::test_every_call_in_a_forked_process_is_refused_by_name",),
    ),
    Mutation(
        "loop-with-a-team-of-torch",
        "What the loop asks torch for is computed in its thread, and not by as many as there are cores.",
        "        compute_alone()\n",
        "",
        ("concurrency/test_torch_threads.py::test_a_loop_computes_alone_and_nobody_else_does",),
    ),
    Mutation(
        "loop-ended-in-silence",
        "Who waits for a loop that was ended from within is told.",
        '            logs.exception(_log, "the loop of %s has ended", self._owner)\n            self._give_up()\n',
        "            raise\n",
        ("concurrency/test_loop_thread.py::test_who_waits_when_the_loop_is_ended_from_within_gets_a_typed_error_too",),
    ),
    Mutation(
        "loop-that-never-ends",
        "An event loop is closed also where no thread can be had to wait for its executor in.",
        "        with suppress(RuntimeError):  # it waits",
        "        if True:  # it waits",
        ("test_scarcity.py::test_a_loop_ends_also_where_no_thread_can_be_started",),
    ),
    Mutation(
        "loop-in-place-of-a-standard-stream",
        "An event loop takes no number of a standard stream, though the program was started without them.",
        "    spare_standard_streams()  # libuv",
        "    # libuv",
        ("concurrency/test_descriptors.py::test_a_loop_takes_the_number_of_no_standard_stream",),
    ),
    Mutation(
        "loop-waits-for-itself",
        "What would wait for a peer in its own thread is refused there.",
        "    if threading.current_thread() is thread:\n        raise",
        "    if False:\n        raise",
        ("test_peer_events.py::test_a_callback_that_waits_for_what_its_own_thread_has_to_end_is_refused",),
    ),
)
