"""The rules of `ictp2p/runtime/state_fetch.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "failed-fetch-in-a-cycle",
        "A fetch of the state that failed lets go of what it still asked for.",
        "            self._opening, self._asked, self._fatal = [], {}, None\n",
        "            self._fatal = None\n",
        ("runtime/test_state_fetch.py::test_a_fetch_that_fails_leaves_nothing_to_the_garbage_collector",),
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
        "more-for-the-last-second",
        "More connections beside several are tried only for what still has far to go.",
        "if left >= LONG or not self._lanes else {}",
        "if True else {}",
        ("bulk/test_lanes.py::test_as_long_as_more_carry_more_and_much_is_left_there_are_more",),
    ),
    Mutation(
        "let-go-with-those-that-gained",
        "A trial that fails ends with its own connections, not with those that had gained before.",
        "self._fetch.narrow(self._newest)",
        "self._fetch.narrow(list(self._lanes))",
        ("bulk/test_lanes.py::test_what_gained_before_stays_where_more_does_not_gain",),
    ),
    Mutation(
        "silent-and-still-asked",
        "What a silent provider was asked for is taken back.",
        "            if provider in silent:\n",
        "            if False:\n",
        ("runtime/test_state_fetch.py::test_what_a_silent_provider_still_brings_is_in_nobodys_way",),
    ),
)
