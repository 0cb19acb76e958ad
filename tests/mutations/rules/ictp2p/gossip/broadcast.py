"""The rules of `ictp2p/gossip/broadcast.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "news-slowed-by-a-detail",
        "Pressing news that a later detail takes the place of spreads no slower for it.",
        "        if not isinstance(news, Record) or not news.detail:\n            self._pressing.add(which)\n",
        "        self._pressing.discard(which)\n        if not isinstance(news, Record) or not news.detail:\n"
        "            self._pressing.add(which)\n",
        ("gossip/test_broadcast.py::test_whether_more_than_details_waits",),
    ),
    Mutation(
        "told-for-ever",
        "Each piece of news is told so often, and no more: a group at rest has nothing to tell.",
        "            waiting.transmits += 1\n",
        "            waiting.transmits += 0\n",
        (
            "properties/test_swim_exhaustive.py::test_nobody_goes_back_and_from_every_state_all_who_are_there_see_each_other",
        ),
    ),
)
