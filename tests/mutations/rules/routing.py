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
    Mutation(
        "bad-news-waits-like-good",
        "A lost route is told at once, and in a burst within a quarter of the wait for good news.",
        "ictp2p/routing/pace.py",
        "return max(now, self._told_at + self._profile.trigger_delay / 4)",
        "return self.due(now)",
        ("routing/test_pace.py::test_bad_news_is_told_at_once_but_for_what_was_told_this_very_moment",),
    ),
    Mutation(
        "routes-over-what-nobody-keeps",
        "In a large mesh routes lead over a connection only once one of its ends is known to keep it.",
        "ictp2p/core/thrift.py",
        "(peer not in self._surplus or self._heard.get(peer, False))",
        "bool(peer)",
        ("core/test_thrift.py::test_what_one_end_needs_the_other_hears_at_once",),
    ),
    Mutation(
        "routes-before-picks-stand",
        "While picks change no new route leads anywhere: nobody knows yet which connections will stay.",
        "ictp2p/core/thrift.py",
        "            self._calm_at = self._context.now + _CALM\n",
        "            self._calm_at = None\n",
        ("core/test_thrift.py::test_no_route_leads_anywhere_while_picks_change",),
    ),
    Mutation(
        "the-silent-spare-us",
        "Who says nothing of its needs from one look to the next needs the connection.",
        "ictp2p/core/thrift.py",
        "                self._heard[peer] = True\n",
        "                self._heard[peer] = False\n",
        ("core/test_thrift.py::test_who_says_nothing_from_one_look_to_the_next_needs_the_connection",),
    ),
    Mutation(
        "held-for-good",
        "A link over which no route led yet carries them as soon as it turns out to be needed.",
        "ictp2p/core/neighbourhood.py",
        "if self._serves(self._leaders[c])):",
        "if not c):",
        ("core/test_stack.py::test_a_large_mesh_is_sparse_and_yet_everybody_knows_and_reaches_everybody",),
    ),
)
