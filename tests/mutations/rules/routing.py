"""Routes: feasibility, sequence numbers, metrics, withdrawal."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "feasibility-not-strict",
        "An offer is taken only if it is strictly better than all that was advertised: equals never choose each other.",
        "ictp2p/routing/sources.py",
        "return mine is None or offer.better_than(mine)",
        "return mine is None or not mine.better_than(offer)",
        ("routing/test_sources.py::test_an_equal_distance_is_not_feasible",),
    ),
    Mutation(
        "feasibility-ignored",
        "A route that may lead back through us is not used, however short it looks.",
        "ictp2p/routing/table.py",
        "            if closer and self._sources.feasible(key, offer):",
        "            if closer:",
        ("routing/test_babel.py::test_the_first_request_asks_few_and_its_repeat_asks_all",),
    ),
    Mutation(
        "pure-widest-metric",
        "Extending a path makes it strictly worse; the widest path's metric does not, and never settles.",
        "ictp2p/routing/algebra.py",
        "return min(INFINITY, metric + cost)",
        "return max(metric, cost)",
        ("routing/test_algebra.py::test_extending_a_path_makes_it_strictly_worse",),
    ),
    Mutation(
        "no-seqno-retry",
        "A request for a fresh sequence number is repeated until it is answered: the first may be lost.",
        "ictp2p/routing/requests.py",
        "need.due = now + self._profile.repeat_after(need.asked)",
        "need.due = now + 1e9",
        (
            "routing/test_requests.py::test_a_need_is_repeated_for_as_long_as_it_lasts",
            "routing/test_invariants.py::test_retry_finds_the_way_when_the_first_requests_are_lost",
        ),
    ),
    Mutation(
        "advertised-but-not-noted",
        "What is told to a neighbour binds us: it is in the source table before it leaves.",
        "ictp2p/routing/announcer.py",
        "self._sources.advertise(line.key, distance, now)",
        "pass",
        ("routing/test_announcer.py::test_whatever_leaves_is_in_the_source_table_first",),
    ),
    Mutation(
        "own-route-believed",
        "Nobody else can tell a cluster where it is.",
        "ictp2p/routing/babel.py",
        "            if advert.destination == self.me:\n",
        "            if not advert.destination:\n",
        ("routing/test_babel.py::test_our_own_route_is_never_believed",),
    ),
    Mutation(
        "feasibility-forgotten-while-told",
        "A feasibility distance lives for as long as a neighbour may hold what it was told.",
        "ictp2p/routing/sources.py",
        "            if not stands(key):\n",
        "            if key:\n",
        ("routing/test_sources.py::test_a_distance_lives_until_it_is_taken_back_and_a_lifetime_more",),
    ),
    Mutation(
        "put-off-for-good",
        "An offer that can only make a route better is weighed before the neighbours are told next.",
        "ictp2p/routing/babel.py",
        "        self._waiting[key] = None\n",
        "        pass\n",
        ("routing/test_babel.py::test_many_better_offers_are_weighed_once_and_worse_ones_at_once",),
    ),
    Mutation(
        "gap-unnoticed",
        "An update that was dropped on the way shows as a gap, and everything is asked for again.",
        "ictp2p/routing/neighbours.py",
        "            if number == self._number + 1:\n",
        "            if number >= 0:\n",
        ("routing/test_neighbours.py::test_who_goes_on_counting_is_trusted_longer_and_a_gap_is_asked_about_at_once",),
    ),
    Mutation(
        "whisper-never-set-right",
        "A neighbour that alone was told something else than all others is set right.",
        "ictp2p/routing/announcer.py",
        "sorted(self._dirty | self._drifted | self._whispered)",
        "sorted(self._dirty | self._drifted)",
        ("routing/test_announcer.py::test_who_alone_was_told_something_else_is_set_right",),
    ),
)
