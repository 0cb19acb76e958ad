"""The rules of `ictp2p/collectives/planning/levelling.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "links-of-the-weak-taken",
        "What a participant has to receive later is kept free on its links: others price it as if it were there.",
        "self._inverse + left * self._into",
        "self._inverse",
        (
            "collectives/planning/test_levelling.py::test_who_can_hardly_send_or_receive_what_it_must_is_spared_the_rest",
        ),
    ),
    Mutation(
        "trees-over-missing-links",
        "No tree is laid over a link that is not there.",
        "return None if missing.any() else Tree(",
        "return Tree(",
        ("collectives/planning/test_levelling.py::test_where_two_hops_do_not_lead_everywhere_there_are_none",),
    ),
)
