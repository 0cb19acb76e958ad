"""The rules of `ictp2p/collectives/group/rendezvous.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

_TESTS: Final = "collectives/group/test_rendezvous.py::"

MUTATIONS: Final = (
    Mutation(
        "room-for-every-stranger",
        "What strangers have a leader keep for its cluster's members has a limit.",
        "            if kept > MAX_KEPT:\n",
        "            if False:\n",
        (f"{_TESTS}test_what_is_kept_has_a_limit_and_who_would_pass_it_is_hung_up_on",),
    ),
    Mutation(
        "patient-with-strangers",
        "Who connects to a cluster's rendezvous and asks for nothing is hung up on.",
        "        until: float | None = time.monotonic() + PATIENCE\n",
        "        until: float | None = None\n",
        (f"{_TESTS}test_a_trickle_is_no_request",),
    ),
)
