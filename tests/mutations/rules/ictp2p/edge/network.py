"""The rules of `ictp2p/edge/network.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "small-for-good",
        "Small packets are tried for an hour; a way may be mended.",
        "if until > now}",
        "if until > 0.0}",
        ("edge/test_network.py::test_a_host_whose_large_packets_may_be_lost_is_dialed_with_small_ones_for_an_hour",),
    ),
    Mutation(
        "small-one-way",
        "A host whose large packets may be lost is dialed with small ones.",
        "if small or host in self._shrunk():",
        "if small:",
        ("edge/test_network.py::test_a_host_whose_large_packets_may_be_lost_is_dialed_with_small_ones_for_an_hour",),
    ),
    Mutation(
        "nobody-let-in-in-silence",
        "A peer that can accept no connections says so.",
        "                self._begin_to_be_stuck(error)\n",
        "",
        ("edge/test_ports.py::test_out_of_descriptors_the_port_pauses_and_goes_on",),
    ),
    Mutation(
        "nowhere-without-ipv6",
        "A peer that is to listen everywhere does so also where the kernel has no IPv6.",
        "        if error.errno not in _NO_IPV6:\n",
        "        if True:\n",
        ("edge/test_network.py::test_everywhere_is_at_those_of_ipv4_alone_where_a_kernel_has_no_other",),
    ),
)
