"""The rules of `ictp2p/handle/requests.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "unsaid-stands-for-ever",
        "What could not be said is asked of nobody.",
        "            self._forget(number)\n            raise\n",
        "            raise\n",
        ("handle/test_requests.py::test_what_could_not_be_said_is_asked_of_nobody_and_keeps_nothing",),
    ),
    Mutation(
        "fork-waits-for-a-lock",
        "A fork asks nothing of its parent's peer, and waits for no lock that a thread held when it was made.",
        "        if os.getpid() != self._process:",
        "        if False:",
        ("handle/test_requests.py::test_a_fork_does_not_wait_for_a_thread_that_was_asking_when_it_was_made",),
    ),
    Mutation(
        "kept-error-raised",
        "Who asks for something of a peer's process that is gone has an error of its own, which nobody keeps.",
        "                raise PeerClosed(str(self.error))",
        "                raise self.error",
        ("handle/test_requests.py::test_who_asks_for_something_of_a_peer_that_is_gone_has_an_error_of_its_own",),
    ),
)
