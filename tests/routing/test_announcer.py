from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

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


def test_who_is_a_neighbour_again_or_is_a_new_one_is_told_higher_numbers_than_all_who_are_none_any_more() -> None:
    """One may not have noticed that it was none for a while: what is numbered as before would be old to it."""
    routes = Routes()
    routes.now[KEY] = HERE
    last, _ = numbers(routes.announcer.refresh(["n"], 0.0))["n"]
    routes.announcer.part("n")
    assert numbers(routes.announcer.greet("n", [KEY], 0.0)) == {"n": (last + 1, True)}
    assert numbers(routes.announcer.greet("newcomer", [KEY], 0.0)) == {"newcomer": (last + 1, True)}
    routes.announcer.part("newcomer")
    assert numbers(routes.announcer.refresh(["n"], 0.0)) == {"n": (last + 2, False)}
    assert numbers(routes.announcer.greet("newcomer", [KEY], 0.0)) == {"newcomer": (last + 2, True)}


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


NEIGHBOURS = ("m", "n", "o")
STEPS = st.one_of(
    st.tuples(st.just("found"), st.sampled_from((100, 101, 110, 200)), st.sampled_from(NEIGHBOURS)),
    st.tuples(st.just("lost")),
    st.tuples(st.just("changes")),
    st.tuples(st.just("refresh")),
    st.tuples(st.sampled_from(("answer", "greet")), st.sampled_from(NEIGHBOURS)),
)


class Heard(Routes):
    """What each neighbour holds of the route, by all that was told it."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, int] = {}

    def step(self, kind: str, *values: object) -> None:
        match kind, *values:
            case "found", int(metric), str(hop):
                self.now[KEY] = Told(Distance(1, metric), hop)
                self.announcer.note(KEY)
            case ("lost",):
                self.now.pop(KEY, None)
                self.announcer.note(KEY)
            case ("changes",):
                self.told(self.announcer.changes(NEIGHBOURS, 0.0))
            case ("refresh",):
                self.told(self.announcer.refresh(NEIGHBOURS, 0.0))
            case "answer", str(neighbour):
                self.told(self.announcer.answer(neighbour, [KEY], 0.0))
            case "greet", str(neighbour):
                self.told(self.announcer.greet(neighbour, [*self.now], 0.0))

    def told(self, sends: Iterable[Send]) -> None:
        for send in sends:
            assert isinstance(send.message, Update)
            if send.message.full:
                self.held.pop(send.to, None)
            for advert in send.message.adverts:
                self.held[send.to] = advert.metric
                if advert.metric >= INFINITY:
                    del self.held[send.to]


@given(st.lists(STEPS, max_size=12))
@example([("found", 100, "m"), ("changes",), ("found", 101, "n"), ("answer", "m")])  # so it was in a mesh of 64
@example([("found", 100, "m"), ("changes",), ("found", 100, "n"), ("answer", "m")])
def test_whoever_was_told_of_a_route_hears_of_its_end(steps: list[tuple[object, ...]]) -> None:
    heard = Heard()
    for kind, *values in [*steps, ("lost",), ("changes",)]:
        heard.step(str(kind), *values)
    assert not heard.held
    assert not heard.announcer.stands(KEY)


@given(st.lists(STEPS, max_size=12), st.sampled_from(NEIGHBOURS))
@example([("found", 105, "m"), ("changes",), ("found", 105, "n"), ("answer", "m")], "m")
def test_after_a_refresh_all_but_the_next_hop_hold_the_route_as_it_is(
    steps: list[tuple[object, ...]], hop: str
) -> None:
    heard = Heard()
    for kind, *values in [*steps, ("found", 105, hop), ("refresh",)]:
        heard.step(str(kind), *values)
    assert heard.held == dict.fromkeys(set(NEIGHBOURS) - {hop}, 105)
