"""The rules of `ictp2p/bulk/account.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "losses-of-bbr",
        "Losses are counted of a control that takes them for a full line, and not of bbr.",
        "        lost = 0",
        "        pass",
        ("bulk/test_account.py::test_the_kernel_counts_what_was_lost_where_that_closes_a_window",),
    ),
)
