"""What one router tells its neighbours: greetings, dumps, updates and retractions, when and to whom."""

from __future__ import annotations

import random

from ictp2p.machine import Send
from ictp2p.routing.algebra import INFINITY
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.messages import Advert, RouteRequest, SeqnoRequest, Update, checksum
from tests.routing.one_router import COST, LINK, PROFILE, advert, pass_time, router, sends


def test_a_neighbour_is_greeted_with_everything() -> None:
    node = Babel("me", 7, PROFILE, random.Random(0))
    assert node.link_up("n", LINK, 0.0) == [Send("n", Update((Advert("me", 0, 2, 7, 0),), full=True))]


def test_found_routes_are_told_soon_and_lost_ones_at_once() -> None:
    node = router("n", "m")
    assert not sends(node.receive("m", advert("d", 5), 0.0), Update)
    due = node.next_timeout()
    assert due is not None
    assert due <= PROFILE.trigger_delay
    assert sends(node.handle_timeout(due), Update) == {"n": Update((Advert("d", 0, 0, 1, 5 + COST),))}
    assert sends(node.receive("m", advert("d", INFINITY), 1.0), Update) == {
        "n": Update((Advert("d", 0, 0, 0, INFINITY),))
    }


def test_what_only_some_were_told_is_retracted_too() -> None:
    node = router("m")
    node.receive("m", advert("d", 5), 0.0)
    node.link_up("n", LINK, 0.0)  # hears of d in its greeting, before d is announced to all
    assert "n" in sends(node.receive("m", advert("d", INFINITY), 0.01), Update)


def test_a_new_next_hop_is_poisoned_and_the_old_one_told() -> None:
    node = router("m", "n", "o")
    node.receive("m", advert("d", 100), 0.0)
    node.handle_timeout(1.0)
    node.receive("n", advert("d", 90), 1.0)  # better by less than a quarter: taken once it has settled
    updates = sends(pass_time(node, 1.2 + PROFILE.settle), Update)
    assert updates == {
        "m": Update((Advert("d", 0, 0, 1, 90 + COST),)),
        "n": Update((Advert("d", 0, 0, 0, INFINITY),)),
    }


def test_small_metric_changes_wait_for_the_periodic_update() -> None:
    node = router("n", "m")
    node.receive("m", advert("d", 100), 0.0)
    node.handle_timeout(0.1)
    assert not sends(node.receive("m", advert("d", 99), 0.2), Update)
    assert not sends(node.handle_timeout(0.3), Update)
    due = 16.0
    updates = sends(node.handle_timeout(due), Update)
    of_all, of_own = checksum([("d", 0), *(own := [("me", k) for k in range(3)])]), checksum(own)
    adverts = Advert("d", 0, 0, 1, 99 + COST), Advert("me", 0, 2, 1 << 32, 0)
    assert updates == {"m": Update(adverts[1:], held=of_own), "n": Update(adverts, held=of_all)}
    updates = sends(node.handle_timeout(2 * due), Update)
    assert updates == {"m": Update((), held=of_own), "n": Update((), held=of_all)}, "nothing is new, and that is told"


def test_large_metric_changes_do_not_wait() -> None:
    node = router("n", "m")
    node.receive("m", advert("d", 100), 0.0)
    node.handle_timeout(0.1)
    node.receive("m", advert("d", 50), 0.2)
    due = node.next_timeout()
    assert due is not None
    assert due <= 0.2 + PROFILE.trigger_delay
    assert sends(node.handle_timeout(due), Update) == {"n": Update((Advert("d", 0, 0, 1, 50 + COST),))}


def test_a_lost_route_is_retracted_before_a_way_around_is_asked_for() -> None:
    node = router("m", "n")
    node.receive("m", advert("d", 5), 0.0)
    node.handle_timeout(0.1)
    node.receive("n", advert("d", 5 + COST), 0.2)
    effects = [effect for effect in node.link_down("m", 0.3) if isinstance(effect, Send)]
    assert [type(effect.message) for effect in effects] == [Update, SeqnoRequest]


def test_nothing_is_kept_of_a_link_that_is_gone() -> None:
    node = router("m")
    node.receive("m", advert("d", 5), 0.0)
    node.link_down("m", 0.1)
    assert (node.table.costs, node.table.offered_by("m"), node.routes()) == ({}, [], ())


def test_a_dump_retracts_what_it_does_not_list() -> None:
    node = router("m")
    node.receive("m", advert("d", 5), 0.0)
    node.receive("m", Update((Advert("e", 0, 0, 1, 5),), full=True, number=1), 1.0)
    assert (node.next_hop("d"), node.next_hop("e")) == (None, "m")


def test_a_silent_neighbour_is_forgotten_but_asked() -> None:
    node = router("m")
    node.receive("m", Update((Advert("d", 0, 0, 1, 5),), full=True), 0.0)
    node.handle_timeout(PROFILE.hold - 0.1)
    assert node.next_hop("d") == "m"
    effects = node.handle_timeout(PROFILE.hold)
    assert node.next_hop("d") is None
    assert RouteChanged("d", 0, None, INFINITY) in effects
    assert sends(effects, RouteRequest)


def test_a_dump_that_comes_after_later_news_takes_nothing_back() -> None:
    node = router("m")
    late = Update((Advert("d", 0, 0, 1, 5),), full=True, number=0)
    node.receive("m", late, 0.0)
    node.receive("m", Update((Advert("e", 0, 0, 1, 5),), number=1), 0.1)
    assert not node.receive("m", late, 0.2)
    assert (node.next_hop("d"), node.next_hop("e")) == ("m", "m")
    node.receive("m", Update((Advert("e", 0, 0, 1, 5),), full=True, number=2), 0.3)
    assert (node.next_hop("d"), node.next_hop("e")) == (None, "m")


def test_a_lonely_router_wants_no_timer() -> None:
    node = router("m")
    assert node.next_timeout() is not None
    node.link_down("m", 1.0)
    node.handle_timeout(2.0)
    assert node.next_timeout() is None


def test_of_those_who_are_neighbours_no_more_nothing_is_kept() -> None:
    """Each job of a scheduler may be a cluster of its own, for months: what stays of each is too much."""
    node = router("m")
    for number in range(20):
        node.link_up(name := f"job{number}", LINK, float(number))
        node.receive(name, advert(name, 0), number + 0.1)
        node.link_down(name, number + 0.2)
    assert node._announcer._numbers.keys() == node.table._offered_by.keys() | {"m"} == {"m"}
