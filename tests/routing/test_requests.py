from __future__ import annotations

from ictp2p.machine import Send
from ictp2p.routing.algebra import Distance
from ictp2p.routing.messages import SeqnoRequest, Wanted
from ictp2p.routing.profile import RoutingProfile
from ictp2p.routing.requests import Requests
from ictp2p.routing.sources import SourceTable
from ictp2p.routing.table import Choice, RouteTable

KEY = ("d", 0)
PROFILE = RoutingProfile(classes=1)


def starved(*neighbours: str) -> tuple[Requests, RouteTable]:
    """A router that once advertised 10, to which its neighbours now offer 20."""
    sources = SourceTable(180.0)
    table = RouteTable(sources, PROFILE)
    sources.advertise(KEY, Distance(5, 10), 0.0)
    for neighbour in neighbours:
        table.costs[neighbour] = [1]
        table.learn(KEY, neighbour, Distance(5, 20))
    return Requests(table, sources, PROFILE), table


def test_a_need_is_repeated_for_as_long_as_it_lasts() -> None:
    requests, table = starved("m")
    requests.review(KEY, 0.0)
    times = []
    for _ in range(6):
        due = requests.next_timeout()
        assert due is not None
        requests.ask(due)
        assert requests.collect() == [Send("m", SeqnoRequest((Wanted("d", 0, 0, 6, 64),)))]
        times.append(due)
    assert times == [0.0, 1.0, 3.0, 7.0, 23.0, 39.0]
    table.learn(KEY, "m", Distance(6, 20))
    requests.ask(60.0)
    assert requests.collect() == []
    assert requests.next_timeout() is None


def test_a_need_that_is_met_is_dropped_at_once() -> None:
    requests, table = starved("m")
    requests.review(KEY, 0.0)
    table.learn(KEY, "m", Distance(6, 20))
    requests.review(KEY, 0.1)
    assert requests.next_timeout() is None


def test_a_repeat_is_handed_to_the_next_helper() -> None:
    requests, _ = starved("m", "n", "o")
    helpers = []
    for now in range(4):
        requests.carry("m", KEY, 6, 9, float(now))
        helpers += [effect.to for effect in requests.collect()]
    assert helpers == ["n", "o", "n", "o"]


def test_a_fresher_request_is_not_covered_by_an_older_one() -> None:
    requests, _ = starved("m", "n", "o")
    for sender, seqno in (("m", 6), ("n", 7)):
        requests.carry(sender, KEY, seqno, 9, 0.0)
        assert requests.collect()
    assert requests.answered(KEY, 6) == ["m"]
    assert requests.answered(KEY, 7) == ["n"]
    assert requests.answered(KEY, 7) == []


def test_one_who_stopped_asking_is_forgotten_and_covers_nobody() -> None:
    requests, _ = starved("m", "n", "o")
    requests.carry("m", KEY, 6, 9, 0.0)
    requests.collect()
    requests.carry("n", KEY, 6, 9, 100.0)
    assert requests.collect(), "the request of long ago is on its way no more"
    requests.expire(105.0)
    assert requests.answered(KEY, 6) == ["n"]
    requests.carry("m", KEY, 6, 9, 200.0)
    requests.expire(300.0)
    assert requests.answered(KEY, 6) == []


def test_a_request_follows_the_route_while_somebody_waits_for_its_answer() -> None:
    requests, table = starved("m", "n", "o", "p")
    requests.carry("m", KEY, 6, 9, 0.0)
    requests.collect()
    for neighbour in ("o", "p", "m"):
        table.chosen[KEY] = Choice(neighbour, Distance(5, 9), 10)
        requests.follow(KEY, 0.1)
        expected = [Send(neighbour, SeqnoRequest((Wanted("d", 0, 0, 6, 8),)))]
        assert requests.collect() == (expected if neighbour != "m" else []), "who waits is not asked"
    requests.answered(KEY, 6)
    table.chosen[KEY] = Choice("n", Distance(6, 9), 10)
    requests.follow(KEY, 0.2)
    assert requests.collect() == [], "nobody waits"


def test_a_request_is_not_carried_on_for_one_who_stopped_asking() -> None:
    requests, table = starved("m", "n")
    requests.carry("m", KEY, 6, 9, 0.0)
    requests.collect()
    table.chosen[KEY] = Choice("n", Distance(5, 9), 10)
    requests.follow(KEY, 100.0)
    assert requests.collect() == []
