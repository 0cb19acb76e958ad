"""Which route a router takes, and when it changes its mind."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Effects, Message, Send
from ictp2p.routing.algebra import INFINITY, Link, seconds
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.messages import Advert, SeqnoRequest, Update, Wanted
from tests.routing.one_router import COST, LINK, PROFILE, advert, pass_time, router, sends


def test_a_slightly_better_route_waits_and_a_far_better_one_does_not() -> None:
    node = router("m", "n", "o")
    node.receive("m", advert("d", 100), 0.0)
    node.receive("n", advert("d", 90), 1.0)
    pass_time(node, 0.9 + PROFILE.settle)
    assert node.next_hop("d") == "m"
    pass_time(node, 1.1 + PROFILE.settle)
    assert node.next_hop("d") == "n"
    node.receive("o", advert("d", 20), 3.0)
    pass_time(node, 3.0 + 2 * PROFILE.trigger_delay)
    assert node.next_hop("d") == "o"


def test_a_challenger_that_fell_back_starts_anew() -> None:
    node = router("m", "n")
    node.receive("m", advert("d", 100), 0.0)
    node.receive("n", advert("d", 90), 1.0)
    pass_time(node, 1.5)
    node.receive("m", advert("d", 90), 1.5)
    pass_time(node, 1.6)
    node.receive("m", advert("d", 95), 1.6)
    pass_time(node, 1.1 + PROFILE.settle)
    assert node.next_hop("d") == "m"
    pass_time(node, 1.8 + PROFILE.settle)
    assert node.next_hop("d") == "n"


def test_the_route_in_use_survives_an_infeasible_update_until_it_is_answered() -> None:
    node = router("m", "n")
    node.receive("m", advert("d", 5), 0.0)
    node.handle_timeout(0.1)
    far = 5 + COST + 1
    effects = node.receive("m", advert("d", far), 1.0)
    assert node.next_hop("d") == "m"
    assert sends(effects, SeqnoRequest) == {"m": SeqnoRequest((Wanted("d", 0, 0, 2, 64),))}
    node.receive("m", advert("d", far, seqno=2), 1.1)
    assert node.table.chosen["d", 0].metric == far + COST
    assert not sends(node.handle_timeout(3.0), SeqnoRequest)


def test_a_feasible_alternative_beats_an_infeasible_update() -> None:
    node = router("m", "n")
    node.receive("m", advert("d", 50), 0.0)
    node.receive("n", advert("d", 60), 0.0)
    node.handle_timeout(0.1)
    node.receive("m", advert("d", 500), 1.0)
    assert node.next_hop("d") == "n"


def test_our_own_route_is_never_believed() -> None:
    node = router("m")
    node.receive("m", advert("me", 5, seqno=1 << 40), 0.0)
    assert node.next_hop("me") is None
    assert node.routes() == ()
    assert node.best("me", 10) is None


def test_many_better_offers_are_weighed_once_and_worse_ones_at_once() -> None:
    node = router("l", "m", "n", "o")
    node.receive("l", advert("d", 900), 0.0)
    pass_time(node, 0.2)
    effects: Effects = []
    for neighbour, metric in (("m", 500), ("n", 300), ("o", 100)):
        effects += node.receive(neighbour, advert("d", metric), 1.0)
    effects += pass_time(node, 1.0 + PROFILE.trigger_delay)
    assert [e.next_hop for e in effects if isinstance(e, RouteChanged)] == ["o"]
    assert [e.next_hop for e in node.receive("o", advert("d", INFINITY), 2.0) if isinstance(e, RouteChanged)] != ["o"]
    assert node.next_hop("d") != "o"


def test_forgotten_distances_free_a_destination_that_lost_its_past() -> None:
    node = router("m")
    node.receive("m", advert("d", 5, seqno=9), 0.0)
    node.handle_timeout(0.1)
    node.receive("m", advert("d", INFINITY), 0.2)
    node.receive("m", advert("d", 5, seqno=1), 0.3)
    assert node.next_hop("d") is None
    for _ in range(1000):
        due = node.next_timeout()
        assert due is not None
        if due > PROFILE.source_lifetime + 2 * PROFILE.update_interval:
            break
        node.handle_timeout(due)
    node.receive("m", advert("d", 6, seqno=1), 250.0)
    assert node.next_hop("d") == "m"


def test_a_link_below_a_class_carries_nothing_of_it() -> None:
    node = router()
    node.link_up("m", Link(0.02, 500e3), 0.0)
    node.receive("m", advert("d", 5, classes=(0, 2)), 0.0)
    assert [route.traffic_class for route in node.routes()] == [0, 1]
    node.link_changed("m", Link(0.02), 1.0)
    assert [route.traffic_class for route in node.routes()] == [0]
    assert node.next_hop("d", 1) is None


def test_who_can_be_dialed_is_advertised_in_class_0_alone() -> None:
    node = Babel("me", 7, PROFILE, random.Random(0))
    assert not node.set_relayed(False, 0.0)
    assert node.link_up("n", LINK, 0.0) == [Send("n", Update((Advert("me", 0, 0, 7, 0),), full=True))]
    assert not node.receive("n", SeqnoRequest((Wanted("me", 1, 2, 9, 4),)), 1.0)
    assert sends(node.set_relayed(True, 2.0), Update) == {"n": Update((Advert("me", 1, 2, 8, 0),))}
    assert not node.set_relayed(True, 3.0)
    node.receive("n", advert("d", 5, classes=(0, 2)), 4.0)
    assert [route.traffic_class for route in node.routes()] == [0], "the others are not advertised the less for it"
    assert sends(node.set_relayed(False, 5.0), Update) == {"n": Update((Advert("me", 1, 2, 0, INFINITY),))}


def test_small_transfers_take_the_short_way_and_large_ones_the_wide_way() -> None:
    node = router()
    node.link_up("short", Link(0.01), 0.0)
    node.link_up("wide", Link(0.2, 1e6), 0.0)
    for neighbour in ("short", "wide"):
        node.receive(neighbour, advert("d", COST, classes=(0, 2)), 0.0)
    ping, model = node.best("d", 0), node.best("d", 10**9)
    assert ping is not None
    assert model is not None
    assert (ping.next_hop, ping.traffic_class, model.next_hop, model.traffic_class) == ("short", 0, "wide", 2)
    assert ping.delay == seconds(node.table.chosen["d", 0].metric)
    assert model.bandwidth == 1e6


def test_the_table_has_a_limit() -> None:
    node = router("m", profile=replace(PROFILE, max_destinations=2))
    for i in range(100):
        node.receive("m", advert(f"d{i}", 5, classes=(0, 2)), 0.0)
    assert {route.destination for route in node.routes()} <= {"d0", "d1"}


def test_nonsense_is_refused() -> None:
    node = router("m")
    with pytest.raises(LocalProtocolError, match="'me'"):
        node.link_up("me", LINK, 0.0)
    with pytest.raises(RemoteProtocolError, match="m sent Message, which is no routing message"):
        node.receive("m", Message(), 0.0)
    assert node.link_changed("stranger", LINK, 0.0) == []
    assert node.link_down("stranger", 0.0) == []
