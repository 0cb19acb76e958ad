"""The rules of `ictp2p/runtime/whereabouts.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "told-where-it-was",
        "An address that a peer's machine has lost is told only until its connections show another.",
        "        return gains or is_local(known) or not self._ours(known)\n",
        "        return gains or is_local(known)\n",
        (
            "runtime/test_whereabouts.py::test_an_address_that_this_machine_has_lost_is_told_no_longer_than_until_there_is_another",
        ),
    ),
    Mutation(
        "told-where-nobody-listens",
        "Who listens for IPv4 alone never tells others to dial an IPv6 address.",
        """        return self.listening.host != "0.0.0.0" or ":" not in host\n""",
        "        return True\n",
        ("runtime/test_whereabouts.py::test_who_listens_for_ipv4_alone_tells_no_ipv6_address",),
    ),
    Mutation(
        "meets-where-nobody-listens",
        "The workers of a cluster meet at an address of its machine, wherever people say that others dial it.",
        "given if _is_numeric(given) and ours(given) else listening.host",
        "given or listening.host",
        (
            "runtime/test_whereabouts.py::"
            "test_a_cluster_meets_at_an_address_of_its_machines_wherever_people_say_that_others_dial_them",
        ),
    ),
)
