"""The rules of `ictp2p/torch_backend/own.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "given-up-and-left-to-the-next",
        "A receive from its own rank that is given up takes its message along.",
        "            self._refused.add(key)\n",
        "            pass\n",
        (
            "torch_backend/test_messages.py"
            "::test_what_a_rank_sends_to_itself_goes_to_the_receive_that_it_is_meant_for_or_to_none",
        ),
    ),
)
