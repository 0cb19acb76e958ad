"""The rules of `ictp2p/routing/announcer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "advertised-but-not-noted",
        "What is told to a neighbour binds us: it is in the source table before it leaves.",
        "self._sources.advertise(line.key, distance, now)",
        "pass",
        ("routing/test_announcer.py::test_whatever_leaves_is_in_the_source_table_first",),
    ),
    Mutation(
        "whisper-never-set-right",
        "A neighbour that alone was told something else than all others is set right.",
        "sorted(self._dirty | self._drifted | self._whispered.keys())",
        "sorted(self._dirty | self._drifted)",
        ("routing/test_announcer.py::test_who_alone_was_told_something_else_is_set_right",),
    ),
    Mutation(
        "end-untold-to-whom-was-whispered",
        "Whoever was told of a route hears of its end, also if it was told by itself, and not with all others.",
        "if told is None or told.next_hop in apart else",
        "if told is None else",
        ("routing/test_announcer.py::test_whoever_was_told_of_a_route_hears_of_its_end",),
    ),
    Mutation(
        "next-hop-unpoisoned",
        "The next hop of today hears that we have no way for it, if it was ever told of one.",
        "current.next_hop in apart or ",
        "",
        ("routing/test_announcer.py::test_after_a_refresh_all_but_the_next_hop_hold_the_route_as_it_is",),
    ),
    Mutation(
        "checksum-of-what-is-not-told",
        "Nobody is asked to hold the ways through itself, or doubts its neighbour without cause.",
        'for neighbour in {key[0], told.next_hop or ""}:',
        "for neighbour in {key[0]}:",
        ("routing/test_self_check.py::test_nobody_doubts_without_cause",),
    ),
    Mutation(
        "fresher-number-is-news",
        "A sequence number that grew, of a route that is as far as before, is told to nobody who does not ask.",
        "told.distance.metric != current.distance.metric:",
        "told.distance != current.distance:",
        ("routing/test_announcer.py::test_a_fresher_number_is_told_to_whoever_asks_and_to_nobody_else",),
    ),
)
