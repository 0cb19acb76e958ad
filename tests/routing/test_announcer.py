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
        for neighbour in ("m", "n", "o"):
            self.announcer.greet(neighbour, [], 0.0)

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
    routes.announcer.refresh(["n"], 0.0)
    assert routes.sources.distance(KEY) == Distance(1, 70)
    routes.now[KEY] = Told(Distance(1, 10), "m")
    routes.announcer.note(KEY)
    routes.changes()
    assert routes.sources.distance(KEY) == Distance(1, 10)


def numbers(sends: Iterable[Send]) -> dict[str, tuple[int, bool]]:
    updates = {send.to: send.message for send in sends}
    return {to: (u.number, u.full) for to, u in updates.items() if isinstance(u, Update)}


def test_updates_are_numbered_for_each_neighbour_whether_full_or_not() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    began = {name: number for name, (number, _) in numbers(routes.announcer.refresh(["m", "n"], 0.0)).items()}
    assert numbers(routes.announcer.greet("n", [KEY], 0.0)) == {"n": (began["n"] + 1, True)}
    routes.announcer.note(KEY)
    assert numbers(routes.announcer.changes(["n", "o"], 0.0)) == {"n": (began["n"] + 2, False), "o": (1, False)}
    assert numbers(routes.announcer.answer("n", [KEY], 0.0)) == {"n": (began["n"] + 3, False)}
    assert numbers(routes.announcer.greet("m", [KEY], 0.0)) == {"m": (began["m"] + 1, True)}


def test_a_refresh_tells_what_was_too_little_to_tell_and_else_nothing() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    routes.changes()
    routes.now[KEY] = Told(Distance(1, 101), "m")
    assert routes.announcer.note(KEY) is Urgency.LATER
    assert metrics(routes.announcer.refresh(["m", "n"], 0.0)) == {"m": [], "n": [101]}
    assert metrics(routes.announcer.refresh(["m", "n"], 0.0)) == {"m": [], "n": []}


def test_a_fresher_number_is_told_to_whoever_asks_and_to_nobody_else() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    routes.changes()
    routes.now[KEY] = Told(Distance(HERE.distance.seqno + 1, HERE.distance.metric), HERE.next_hop)
    assert routes.announcer.note(KEY) is Urgency.LATER
    assert metrics(routes.announcer.answer("n", [KEY], 0.0)) == {"n": [HERE.distance.metric]}
    assert metrics(routes.announcer.refresh(["n", "o"], 0.0)) == {"n": [], "o": []}
    del routes.now[KEY]
    assert routes.announcer.note(KEY) is Urgency.NOW
    assert routes.changes()["n"] == [INFINITY]


def test_who_alone_was_told_something_else_is_set_right() -> None:
    routes = Routes()
    routes.now[KEY] = HERE
    routes.announcer.note(KEY)
    routes.changes()
    routes.now[KEY] = Told(Distance(1, 110), "m")
    routes.announcer.note(KEY)
    assert metrics(routes.announcer.answer("n", [KEY], 0.0)) == {"n": [110]}
    routes.now[KEY] = HERE  # as all but one were told
    routes.announcer.note(KEY)
    assert metrics(routes.announcer.refresh(["n", "o"], 0.0)) == {"n": [100], "o": [100]}


def test_what_somebody_was_told_and_not_of_its_end_stands() -> None:
    routes = Routes()
    assert not routes.announcer.stands(KEY)
    routes.now[KEY] = HERE
    routes.announcer.answer("n", [KEY], 0.0)
    assert routes.announcer.stands(KEY)
    routes.announcer.refresh(["n", "o"], 0.0)
    assert routes.announcer.stands(KEY)
    del routes.now[KEY]
    routes.announcer.note(KEY)
    routes.changes()
    assert not routes.announcer.stands(KEY)
