"""The rules of `ictp2p/core/delivery.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "log-flooded",
        "Of what one peer brings that is malformed little is told, however much of it there is.",
        "if violated.bearer not in self._told:",
        "if True:",
        ("core/test_stack.py::test_of_what_one_peer_brings_little_is_told_however_much_of_it_is_malformed",),
    ),
    Mutation(
        "own-error-is-a-violation",
        "What a machine of ours gets wrong over a packet is not told as the fault of whoever sent it.",
        "self._tell(Violated(me, me, ",
        "self._tell(Violated(bearer, packet.source, ",
        ("core/test_stack.py::test_nobody_is_hung_up_on_for_what_this_peer_gets_wrong_over_its_packet",),
    ),
)
