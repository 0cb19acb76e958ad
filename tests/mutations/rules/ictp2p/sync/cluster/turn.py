"""The rules of `ictp2p/sync/cluster/turn.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "off-by-what-nobody-is",
        "Where all of a cluster are equally far off its programs' turns, that is where they are from then on.",
        "self.off = off[rank] if self.again else 0",
        "self.off = off[rank]",
        ("sync/cluster/test_turn.py::test_who_is_left_is_what_others_become_like_however_far_off_it_was",),
    ),
)
