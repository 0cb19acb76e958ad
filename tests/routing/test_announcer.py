from __future__ import annotations

from collections.abc import Iterable

from ictp2p.machine import Send
from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.announcer import Announcer, Told, Urgency
from ictp2p.routing.messages import Key, Update
from ictp2p.routing.sources import SourceTable

KEY = ("d", 0)
HERE = Told(Distance(1, 100), "m")


class Routes:
    """The routes to announce, to be changed by the test, and the announcer that watches them."""

    def __init__(self) -> None:
        self.now: dict[Key, Told] = {}
        self.sources = SourceTable(180.0)
        self.announcer = Announcer(self.now.get, self.sources, 0.25)

    def changes(self) -> dict[str, list[int]]:
        return metrics(self.announcer.changes(["m", "n", "o"], 0.0))


def metrics(sends: Iterable[Send]) -> dict[str, list[int]]:
    heard = {}
    for send in sends:
        assert isinstance(send.message, Update)
        heard[send.to] = [advert.metric for advert in send.message.adverts]
    return heard


def test_how_urgent_a_change_is() -> None:
    routes = Routes()
    assert routes.announcer.note(KEY) is Urgency.LATER
    routes.now[KEY] = HERE
    assert routes.announcer.note(KEY) is Urgency.SOON
    assert routes.changes() == {"n": [100], "o": [100]}
    assert routes.announcer.note(KEY) is Urgency.LATER
    routes.now[KEY] = Told(Distance(2, 120), "m")
    assert routes.announcer.note(KEY) is Urgency.LATER
    routes.now[KEY] = Told(Distance(2, 130), "m")
    assert routes.announcer.note(KEY) is Urgency.SOON
    del routes.now[KEY]
    assert routes.announcer.note(KEY) is Urgency.NOW
    assert routes.changes() == {"n": [INFINITY], "o": [INFINITY]}
    assert routes.announcer.note(KEY) is Urgency.LATER


def test_a_new_next_hop_concerns_only_the_two() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    routes.changes()
    routes.now[KEY] = Told(Distance(1, 101), "n")
    assert routes.announcer.note(KEY) is Urgency.SOON
    assert routes.changes() == {"m": [101], "n": [INFINITY]}


def test_a_change_that_was_undone_is_not_told() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    routes.changes()
    routes.now[KEY] = Told(Distance(1, 500), "m")
    routes.announcer.note(KEY)
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    assert routes.changes() == {}


def test_whatever_leaves_is_in_the_source_table_first() -> None:
    routes = Routes()
    routes.now[KEY] = Told(Distance(1, 90), "m")
    routes.announcer.answer("m", [KEY], 0.0)
    routes.now[KEY] = Told(Distance(1, 80), "m")
    routes.announcer.greet("n", [KEY], 0.0)
    assert routes.sources.distance(KEY) == Distance(1, 80)
    routes.now[KEY] = Told(Distance(1, 70), "m")
    routes.announcer.dump([KEY], ["n"], 0.0)
    assert routes.sources.distance(KEY) == Distance(1, 70)
    routes.now[KEY] = Told(Distance(1, 10), "m")
    routes.announcer.note(KEY)
    routes.changes()
    assert routes.sources.distance(KEY) == Distance(1, 10)
