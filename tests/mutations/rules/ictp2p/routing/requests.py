"""The rules of `ictp2p/routing/requests.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "no-seqno-retry",
        "A request for a fresh sequence number is repeated until it is answered: the first may be lost.",
        "need.due = now + self._profile.repeat_after(need.asked)",
        "need.due = now + 1e9",
        (
            "routing/test_requests.py::test_a_need_is_repeated_for_as_long_as_it_lasts",
            "routing/test_invariants.py::test_retry_finds_the_way_when_the_first_requests_are_lost",
        ),
    ),
)
