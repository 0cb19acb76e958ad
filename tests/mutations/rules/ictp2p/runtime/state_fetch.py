"""The rules of `ictp2p/runtime/state_fetch.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "failed-fetch-in-a-cycle",
        "A fetch of the state that failed lets go of what it still asked for.",
        "            self._asked, self._fatal = {}, None\n",
        "            self._fatal = None\n",
        ("runtime/test_state_fetch.py::test_a_fetch_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "cancelled-again-and-left-open",
        "Who is cancelled once more, while its fetch ends, lets the further connections go all the same.",
        "        finally:\n            # Errors know",
        "        except asyncio.CancelledError:\n            raise\n        else:\n            # Errors know",
        ("bulk/test_lanes.py::test_who_is_cancelled_again_while_it_ends_lets_them_go_all_the_same",),
    ),
    Mutation(
        "heirs-not-asked",
        "Who comes to hold a state whose known holders have died is asked for it.",
        "        for peer in self._witnesses():",
        "        for peer in ():",
        ("runtime/test_state_fetch.py::test_who_comes_to_hold_it_after_all_known_holders_have_died_is_asked",),
    ),
    Mutation(
        "chatter-taken-for-bytes",
        "A connection that says no more than that somebody is there brings nothing.",
        "before.get(provider, brought) + _CHATTER:",
        "before.get(provider, brought):",
        (
            "runtime/test_state_fetch.py::test_who_is_asked_over_a_connection_that_brings_something_else_first_is_not_silent[500-1]",
        ),
    ),
    Mutation(
        "asked-when-idle",
        "Who provides a state has the next question before it has answered the one before.",
        "awaited = [*self._asked, self._arrival]",
        "awaited = [*self._asked]",
        ("runtime/test_state_fetch.py::test_a_provider_has_the_next_question_before_it_has_answered_the_one_before",),
    ),
    Mutation(
        "silent-and-still-asked",
        "What a silent provider was asked for is taken back.",
        "            if provider in silent:\n",
        "            if False:\n",
        ("runtime/test_state_fetch.py::test_what_a_silent_provider_still_brings_is_in_nobodys_way",),
    ),
)
