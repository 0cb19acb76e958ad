"""The rules of `ictp2p/collectives/running/attempt.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "queued-word-not-waited-for",
        "A neighbour whose word stands behind something else on its line has longer to begin, and not for ever.",
        "        if self._times < _TIMES and all(",
        "        if False and all(",
        ("collectives/running/test_execute.py::test_whose_word_stands_behind_something_else_has_longer_to_begin",),
    ),
    Mutation(
        "word-waited-for-without-end",
        "A neighbour that brings everything but its word is given up at last.",
        "        if self._times < _TIMES and all(",
        "        if all(",
        ("collectives/running/test_execute.py::test_whose_word_stands_behind_something_else_has_longer_to_begin",),
    ),
    Mutation(
        "parts-hear-of-no-difference",
        "A part of a call that ends with another one, where calls differ, tells its neighbours that they do.",
        "await _abort(attachment, _cause(error))",
        "await _abort(attachment, error)",
        ("bulk/test_differing.py::test_parts_that_end_with_one_that_differs_say_what_differs",),
    ),
    Mutation(
        "given-up-unsaid",
        "Who gives up before it has reached all tells those who have begun, and whom it suspects.",
        "        links.give_up(tag.wire(), *_why(_cause(error)))",
        "        pass",
        ("bulk/test_giving_up.py::test_who_gives_up_before_it_has_reached_all_tells_those_who_have_begun",),
    ),
    Mutation(
        "time-for-reaching-besides",
        "What it takes to reach the others is part of the time of a collective.",
        "loop.call_at(over, _expire",
        "loop.call_later(profile.total, _expire",
        ("bulk/test_giving_up.py::test_what_it_takes_to_reach_the_others_is_part_of_the_time",),
    ),
)
