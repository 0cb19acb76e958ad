"""The rules of `ictp2p/sync/rounds/foresight.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "short-rounds-foreseen",
        "What takes no time is not planned ahead: that would cost more than it spares.",
        "if self._took.get(spec, 0.0) < LEAST or len(leaders) < 2:",
        "if len(leaders) < 2:",
        ("sync/rounds/test_foresight.py::test_what_is_planned_in_no_time_or_each_time_is_not_foreseen",),
    ),
    Mutation(
        "next-attempt-foreseen",
        "No attempt is planned ahead before it is known what has failed in the one before.",
        "self._last is None or roll.attempt > 1:",
        "self._last is None:",
        ("sync/rounds/test_foresight.py::test_an_attempt_after_the_first_is_not_foreseen",),
    ),
    Mutation(
        "planned-for-one-alone",
        "Nothing is planned ahead for a cluster that would be alone in it.",
        "< LEAST or len(leaders) < 2:",
        "< LEAST:",
        ("sync/rounds/test_foresight.py::test_nothing_is_planned_for_one_alone",),
    ),
    Mutation(
        "foreseen-by-habit-alone",
        "What those want who are READY is planned ahead, whatever came next the last time.",
        "elect_spec(roll.standing, self._sight.mine) if roll.standing else self._followers.get(last, last)",
        "self._followers.get(last, last)",
        ("sync/rounds/test_foresight.py::test_what_those_want_who_are_there_comes_next_whatever_came_the_last_time",),
    ),
    Mutation(
        "foreseen-with-those-of-another-call",
        "Who is READY for another collective is no part of the one that is planned ahead.",
        "for name, (leader, ready) in roll.standing.items() if ready.spec == spec}",
        "for name, (leader, _) in roll.standing.items()}",
        ("sync/rounds/test_foresight.py::test_who_wants_something_else_is_no_part_of_what_is_planned",),
    ),
    Mutation(
        "followers-without-bound",
        "What came after collectives is forgotten with them: a program may name a new one each time.",
        "            self._followers.pop(self._took.popitem(last=False)[0], None)",
        "            self._took.popitem(last=False)",
        ("sync/rounds/test_foresight.py::test_what_came_after_a_collective_that_is_forgotten_is_forgotten_as_well",),
    ),
)
