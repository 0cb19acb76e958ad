"""The rules of `ictp2p/bulk/resting.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-rest-forgets-the-window",
        "A connection that has rested goes on with the window that it had.",
        "        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _RATED)\n",
        "",
        ("bulk/test_resting.py::test_another_congestion_control_lends_the_connection_to_bbr_and_gets_it_back",),
    ),
    Mutation(
        "lent-for-good",
        "A connection that was lent to bbr has its own congestion control again.",
        "        loop.call_soon(loop.call_soon, _hand_back, transport, endpoint, control)",
        "        loop.call_soon(loop.call_soon, int)",
        ("bulk/test_resting.py::test_another_congestion_control_lends_the_connection_to_bbr_and_gets_it_back",),
    ),
)
