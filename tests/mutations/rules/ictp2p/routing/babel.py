"""The rules of `ictp2p/routing/babel.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "request-stays-behind",
        "A request that is carried for another follows the route: its answer is passed on only from the route in use.",
        "self._requests.follow(key, now)",
        "pass",
        (
            "routing/test_babel_requests.py::test_a_request_that_is_carried_goes_on_to_the_next_hop_of_today",
            "routing/test_invariants.py::test_where_nothing_is_lost_a_failure_needs_no_repeat_of_a_request",
        ),
    ),
    Mutation(
        "own-route-believed",
        "Nobody else can tell a cluster where it is.",
        "            if advert.destination == self.me:\n",
        "            if not advert.destination:\n",
        ("routing/test_babel_choice.py::test_our_own_route_is_never_believed",),
    ),
    Mutation(
        "put-off-for-good",
        "An offer that can only make a route better is weighed before the neighbours are told next.",
        "        self._waiting[key] = None\n",
        "        pass\n",
        ("routing/test_babel_choice.py::test_many_better_offers_are_weighed_once_and_worse_ones_at_once",),
    ),
    Mutation(
        "checksum-not-compared",
        "Who holds other routes of a neighbour than that has told asks for all of them.",
        "if update.held is not None and not self.table.agrees(sender, update.held):",
        "if update.held is not None and update.held < 0:",
        ("routing/test_self_check.py::test_what_is_held_wrongly_is_set_right",),
    ),
    Mutation(
        "stale-for-good",
        "A choice whose neighbour's offer is not feasible any more stands for a hold time at most.",
        "        for key in self.table.outlived(now):\n            self._settle(key, now)\n",
        "",
        ("routing/test_self_check.py::test_a_route_that_nobody_has_does_not_circle_for_ever",),
    ),
    Mutation(
        "stale-dump-believed",
        "A dump that is older than what came since takes nothing back.",
        "        if update.full and state.is_past(update.number):\n            return\n",
        "",
        ("routing/test_babel.py::test_a_dump_that_comes_after_later_news_takes_nothing_back",),
    ),
)
