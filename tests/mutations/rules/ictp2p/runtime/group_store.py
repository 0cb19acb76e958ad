"""The rules of `ictp2p/runtime/group_store.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "replaced-renewal-unheard",
        "Of a renewal that another one replaced nobody hears that it failed.",
        "            self._renewal.add_done_callback(_seen)\n",
        "",
        ("runtime/test_group_store.py::test_of_a_renewal_that_another_one_replaced_nobody_hears_that_it_failed",),
    ),
    Mutation(
        "store-opened-twice",
        "The store that a roster names stays open, though its leader asked for it again while it was being opened.",
        "self._renewal.done() or host",
        "self._renewal or host",
        ("runtime/test_group_store.py::test_who_asks_again_while_a_store_is_opened_does_not_have_it_closed",),
    ),
)
