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
)
