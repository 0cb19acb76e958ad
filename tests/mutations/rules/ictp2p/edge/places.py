"""The rules of `ictp2p/edge/places.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "flood-keeps-others-out",
        "A host that takes all places for connections in the handshake keeps no other host out.",
        "        gone = self._to_go(network) if len(self._from) >= self._most else None\n",
        "        gone = None\n",
        ("edge/test_reception.py::test_a_flood_from_one_network_keeps_no_other_out",),
    ),
)
