"""The rules of `ictp2p/torch_backend/endpoint.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "end-left-open",
        "A group that ends in a hurry leaves no connection behind.",
        "        for connection in told if late else ():\n",
        "        for connection in ():\n",
        (
            "torch_backend/test_group_ends.py::test_a_group_ends_in_time_and_without_an_error_though_a_rank_takes_nothing",
        ),
    ),
    Mutation(
        "group-for-the-collector",
        "A group that has ended is freed with the last reference to it.",
        "            self.bulk.on_lost, self.bulk.on_met = _nobody, _nobody\n",
        "            pass\n",
        ("torch_backend/test_group_ends.py::test_a_group_that_has_ended_is_freed_with_its_last_reference",),
    ),
    Mutation(
        "each-group-waits-for-itself",
        "Groups that end one after the other wait together for ranks that take nothing.",
        "self._left, self._ended = self._left - max(0.0, seconds - _LEAST), now",
        "self._ended = now",
        (
            "torch_backend/test_group_ends.py"
            "::test_groups_that_end_one_after_the_other_wait_together_for_ranks_that_take_nothing",
        ),
    ),
    Mutation(
        "moments-used-up",
        "Groups whose ranks take what was written leave all of the time to those whose ranks do not.",
        "self._left, self._ended = self._left - max(0.0, seconds - _LEAST), now",
        "self._left, self._ended = self._left - seconds, now",
        ("torch_backend/test_group_ends.py::test_groups_whose_ranks_take_everything_use_nothing_up",),
    ),
)
