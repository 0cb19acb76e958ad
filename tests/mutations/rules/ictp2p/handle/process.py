"""The rules of `ictp2p/handle/process.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "sealed-kept-to-itself",
        "A peer in a process of its own is told of a state that may be agreed on, before the vote for it leaves.",
        "to_peer.Holds(*served.held(), served.may_be_agreed)",
        'to_peer.Holds(*served.held(), b"")',
        ("handle/test_child.py::test_training_tells_its_peer_what_it_has_sealed_before_anything_else_and_once",),
    ),
    Mutation(
        "still-process-waited-for",
        "Who counts seconds does not wait for a peer's process that stands still.",
        "            return self._ask(message, kind, seconds)\n",
        "            return self._ask(message, kind)\n",
        ("handle/test_standing_still.py::test_who_counts_seconds_does_not_wait_for_a_peer_that_stands_still",),
    ),
    Mutation(
        "wait-outlives-the-peer",
        "The end of a peer's process ends every wait, and says how it ended.",
        "        self._requests.end(error)\n",
        "",
        ("handle/test_isolation.py::test_a_policy_trains_to_equal_bits_beside_a_peer_in_a_thread_and_drains",),
    ),
    Mutation(
        "reader-waits-for-itself",
        "What would wait for a peer's process in the thread that reads what it says is refused there.",
        "            self.line.check_waits_elsewhere()\n",
        "            pass\n",
        ("test_peer_events.py::test_a_callback_that_waits_for_what_its_own_thread_has_to_end_is_refused",),
    ),
    Mutation(
        "process-without-a-thread-left",
        "The process of a peer is ended where no thread can be had that answers it.",
        "say\n            self.line.close()\n",
        "say\n            pass\n",
        ("handle/test_process_ends.py::test_a_process_is_ended_that_has_no_thread_to_answer_it",),
    ),
    Mutation(
        "rounds-changed-at-the-end",
        "The end of a peer's process is told to all rounds, though another one is brought meanwhile.",
        "        for round_ in tuple(self._rounds.values()):",
        "        for round_ in self._rounds.values():",
        ("handle/test_process_ends.py::test_the_end_of_a_process_is_told_to_all_rounds_while_another_one_is_brought",),
    ),
    Mutation(
        "policy-ends-with-a-process",
        "The end of a policy does not wait for a process that stands still.",
        "            self.wait(told, self.config.global_timeouts.connect)\n",
        "            self.wait(told)\n",
        (
            "handle/test_standing_still.py"
            "::test_a_policy_ends_though_the_peer_stands_still_which_hears_of_it_once_it_goes_on",
        ),
    ),
    Mutation(
        "answer-kept-for-a-process",
        "What a peer's process was given to serve is kept no longer than it lives.",
        "        self._questions.close()\n        self._held = None\n",
        "        self._questions.close()\n",
        ("test_call_memory.py::test_a_peer_that_is_closed_keeps_no_result",),
    ),
)
