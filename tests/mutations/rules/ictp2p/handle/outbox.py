"""The rules of `ictp2p/handle/outbox.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "torn-frame",
        "A frame to a peer's process is sent whole, once, whatever interrupts who sends it.",
        "self._sent.extend(map(to.send, (rest,), (flags,)))",
        "self._sent.append(to.send(rest, flags))",
        ("handle/test_outbox.py::test_an_interrupt_tears_no_frame_wherever_it_comes",),
    ),
    Mutation(
        "handler-waits-for-itself",
        "A signal handler that has something to say to a peer's process does not wait for the writer under it.",
        "if self._turn.locked() and thread in self._writers:",
        "if False:",
        ("handle/test_outbox.py::test_a_handler_that_says_something_waits_for_nobody_and_is_heard",),
    ),
    Mutation(
        "word-waits-for-room",
        "Who says something to a peer's process waits for no room: it may be stopped.",
        "self._write(socket.MSG_DONTWAIT)",
        "self._write(0)",
        ("handle/test_outbox.py::test_who_says_something_waits_for_no_room_and_who_flushes_waits_until_it_has_left",),
    ),
    Mutation(
        "rest-without-a-writer",
        "What there is no room for is written once there is.",
        "                self._full.put(True)\n",
        "",
        ("handle/test_outbox.py::test_frames_arrive_in_order_through_any_socket",),
    ),
    Mutation(
        "two-write-at-once",
        "While one waits for room to write to a peer's process, nobody else writes to it.",
        "                self._taken = True\n",
        "                pass\n",
        ("handle/test_outbox.py::test_nobody_else_writes_while_one_waits_for_room",),
    ),
)
