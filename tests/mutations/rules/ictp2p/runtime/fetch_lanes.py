"""The rules of `ictp2p/runtime/fetch_lanes.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
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
)
