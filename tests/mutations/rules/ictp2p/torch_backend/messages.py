"""The rules of `ictp2p/torch_backend/messages.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "any-source-unordered",
        "A receive from anybody is matched before the next one of its tag is: no message is given away twice.",
        "        if before is not None:\n",
        "        if False:\n",
        ("torch_backend/test_group_messages.py::test_who_receives_from_anybody_gets_each_message_once_and_in_order",),
    ),
    Mutation(
        "from-anybody-but-itself",
        "A receive from anybody, given up, takes along what its own rank would have sent it.",
        "[*self._left(), self._engine.rank] if source is None",
        "self._left() if source is None",
        (
            "torch_backend/test_messages.py"
            "::test_what_a_rank_sends_to_itself_goes_to_the_receive_that_it_is_meant_for_or_to_none",
        ),
    ),
    Mutation(
        "death-told-to-one",
        "Everyone who receives from anybody hears of a death, whatever their tags.",
        "        self._waiting.add(broken)\n",
        "        self._waiting = {broken}\n",
        ("torch_backend/test_messages.py::test_everyone_who_receives_from_anybody_hears_that_nobody_will_send",),
    ),
    Mutation(
        "dead-for-good",
        "A rank that is connected again counts as living again.",
        "        self._deaths.pop(rank, None)\n",
        "",
        ("torch_backend/test_messages.py::test_who_is_connected_again_is_received_from_again",),
    ),
    Mutation(
        "late-message-to-the-next",
        "A receive whose time was over before its turn takes its message along.",
        "        self._late.add(turn)\n        raise TimeoutError\n",
        "        turn.cancel()\n        raise TimeoutError\n",
        ("torch_backend/test_messages.py::test_each_receive_gets_the_message_that_was_meant_for_it_or_has_it_refused",),
    ),
)
