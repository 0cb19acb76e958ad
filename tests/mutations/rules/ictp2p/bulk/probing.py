"""The rules of `ictp2p/bulk/probing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "probed-and-silent",
        "Who is probed says that it is there while what kernels hold of the probe is on its way.",
        "        for each in self._pool.among(connection.peer):\n            each.speak(tag)",
        "        pass",
        (
            "bulk/test_probing.py::test_what_kernels_hold_of_a_probe_may_take_longer_than_a_peer_may_be_silent",
            "bulk/test_probing.py::test_who_is_probed_speaks_wherever_it_may_be_sent_to_until_that_is_over",
            "bulk/test_probing.py::test_a_probe_may_take_longer_than_a_peer_may_be_silent",
        ),
    ),
    Mutation(
        "probed-and-silent-on-a-later-connection",
        "It does so too on a connection that is ready a moment after it was asked.",
        "            if asked.peer == connection.peer:",
        "            if False:",
        ("bulk/test_probing.py::test_who_is_probed_speaks_wherever_it_may_be_sent_to_until_that_is_over",),
    ),
    Mutation(
        "speaks-for-ever",
        "Once a probe is over its connections are idle again.",
        "        if tag in (None, self._receiving.get(connection)):",
        "        if False:",
        ("bulk/test_probing.py::test_who_is_probed_speaks_wherever_it_may_be_sent_to_until_that_is_over",),
    ),
    Mutation(
        "turn-that-nobody-takes",
        "Who gives up a probe gives its turn back, so that nobody waits for one that does not come.",
        "if not first.closed:",
        "if first.closed:",
        ("bulk/test_probing.py::test_who_gives_up_a_probe_gives_its_turn_back",),
    ),
    Mutation(
        "probe-cut-short-taken-in-full",
        "What a probe that was cut short has measured is a lower bound.",
        "limited or bool(header.first)",
        "limited",
        ("bulk/test_probing.py::test_a_probe_that_is_cut_short_is_a_lower_bound_for_both_ends",),
    ),
    Mutation(
        "probe-begun-after-its-stop",
        "Of probes that are stopped one that was just granted, or whose connections are being made, does not begin.",
        " or stops != self._stops:",
        ":",
        (
            "bulk/test_probing.py::test_a_probe_that_is_granted_and_stopped_at_once_sends_nothing",
            "bulk/test_stripes.py::test_several_are_not_probed_where_probes_were_stopped_as_they_were_made",
        ),
    ),
    Mutation(
        "lost-probe-in-a-cycle",
        "A probe whose connection is lost lets go of it.",
        "            del user, turn, probe  # they",
        "            # they",
        ("bulk/test_probing.py::test_a_probe_whose_connection_is_lost_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "probe-counted-after-its-end",
        "What has overtaken the end of a probe counts for nothing.",
        "        if tag in self._ended:\n            return None\n",
        "",
        ("bulk/test_stripes.py::test_what_comes_after_the_end_of_a_probe_counts_for_nothing",),
    ),
)
