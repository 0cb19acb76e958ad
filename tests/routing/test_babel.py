"""One router, by hand: each rule of the protocol once. What many routers do together is in `test_invariants`."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from ictp2p.errors import LocalProtocolError
from ictp2p.machine import Effects, Message, Send
from ictp2p.routing.algebra import INFINITY, Link, link_cost, seconds
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.messages import Advert, RouteRequest, SeqnoRequest, Update, Wanted
from ictp2p.routing.profile import RoutingProfile

PROFILE = RoutingProfile(trigger_delay=0.05, retries=(0.5, 1.0, 2.0), settle=1.0, classes=3)


LINK = Link(0.02)
COST = link_cost(LINK)


def router(*neighbours: str, me: str = "me", profile: RoutingProfile = PROFILE) -> Babel:
    node = Babel(me, 1 << 32, profile, random.Random(0))
    for neighbour in neighbours:
        node.link_up(neighbour, LINK, 0.0)
    return node


def advert(destination: str, metric: int, seqno: int = 1, classes: tuple[int, int] = (0, 0)) -> Update:
    return Update((Advert(destination, *classes, seqno, metric),))


def sends(effects: Effects, kind: type[Message]) -> dict[str, Message]:
    """What is sent to whom, numbers aside, which `test_announcer` is about."""
    return {
        effect.to: replace_number(effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    }


def pass_time(node: Babel, until: float) -> Effects:
    """Let everything happen that is due by then, each thing at its time."""
    effects: Effects = []
    while (due := node.next_timeout()) is not None and due <= until:
        effects += node.handle_timeout(due)
    return effects


def replace_number(message: Message) -> Message:
    return msgspec.structs.replace(message, number=0) if isinstance(message, Update) else message


def test_a_neighbour_is_greeted_with_everything() -> None:
    node = Babel("me", 7, PROFILE, random.Random(0))
    assert node.link_up("n", LINK, 0.0) == [Send("n", Update((Advert("me", 0, 2, 7, 0),), full=True))]


def test_an_early_greeting_is_asked_for_again() -> None:
    node = router()
    assert node.receive("n", advert("d", 5), 0.0) == []
    assert sends(node.link_up("n", LINK, 1.0), RouteRequest)
    assert not sends(node.link_up("n", LINK, 2.0), RouteRequest)


def test_a_missing_greeting_is_asked_for_until_it_comes() -> None:
    node = router("n")
    times = []
    for _ in range(4):
        due = node.next_timeout()
        assert due is not None
        times += [due] * len(sends(node.handle_timeout(due), RouteRequest))
    assert times == [0.5, 1.0, 2.0, 4.0]
    node.receive("n", Update((), full=True), 4.0)
    assert not sends(node.handle_timeout(8.0), RouteRequest)


def test_a_route_request_is_answered_with_everything() -> None:
    node = router("n", "m")
    node.receive("m", advert("d", 5), 0.0)
    node.handle_timeout(0.1)
    (update,) = sends(node.receive("n", RouteRequest(), 1.0), Update).values()
    assert update == Update((Advert("d", 0, 0, 1, 5 + COST), Advert("me", 0, 2, 1 << 32, 0)), full=True)


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


def test_small_metric_changes_wait_for_the_periodic_update() -> None:
    node = router("n", "m")
    node.receive("m", advert("d", 100), 0.0)
    node.handle_timeout(0.1)
    assert not sends(node.receive("m", advert("d", 99), 0.2), Update)
    assert not sends(node.handle_timeout(0.3), Update)
    due = 16.0
    updates = sends(node.handle_timeout(due), Update)
    assert updates["n"] == Update((Advert("d", 0, 0, 1, 99 + COST), Advert("me", 0, 2, 1 << 32, 0)))
    assert updates["m"] == Update((Advert("me", 0, 2, 1 << 32, 0),))
    updates = sends(node.handle_timeout(2 * due), Update)
    assert updates == {"m": Update(()), "n": Update(())}, "nothing is new, and that is told"


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


def test_one_request_moves_our_number_by_one_however_many_it_carries() -> None:
    node = router("m")
    wanted = tuple(Wanted("me", k, k, (1 << 32) + 1, 9) for k in range(3))
    effects = node.receive("m", SeqnoRequest(wanted), 0.0)
    assert node.seqno == (1 << 32) + 1
    assert sends(effects, Update) == {"m": Update((Advert("me", 0, 2, node.seqno, 0),))}
    node.receive("m", SeqnoRequest((Wanted("me", 0, 0, node.seqno, 9),)), 0.0)
    assert node.seqno == (1 << 32) + 1


def test_a_request_is_answered_from_a_fresh_route_or_carried_on_once() -> None:
    node = router("l", "m", "n", "o")
    node.receive("o", advert("d", 5, seqno=1), 0.0)
    node.handle_timeout(0.1)
    answer = node.receive("m", SeqnoRequest((Wanted("d", 0, 0, 1, 9),)), 1.0)
    assert sends(answer, Update) == {"m": Update((Advert("d", 0, 0, 1, 5 + COST),))}

    stale = SeqnoRequest((Wanted("d", 0, 0, 2, 9),))
    assert sends(node.receive("m", stale, 1.0), SeqnoRequest) == {"o": SeqnoRequest((Wanted("d", 0, 0, 2, 8),))}
    assert not node.receive("n", stale, 1.1), "one on its way is enough"
    assert sends(node.receive("m", stale, 1.2), SeqnoRequest), "a repeat means that it got lost"
    assert not node.receive("l", SeqnoRequest((Wanted("d", 0, 0, 3, 1),)), 1.3), "its hops are used up"

    answers = sends(node.receive("o", advert("d", 5, seqno=2), 1.4), Update)
    assert answers == dict.fromkeys(["m", "n"], Update((Advert("d", 0, 0, 2, 5 + COST),)))


def test_a_request_is_not_carried_back_nor_answered_to_one_who_left() -> None:
    node = router("m", "o")
    node.receive("o", advert("d", 5), 0.0)
    request = SeqnoRequest((Wanted("d", 0, 0, 2, 9),))
    assert not sends(node.receive("o", request, 0.0), SeqnoRequest)
    node.receive("m", request, 0.0)
    node.link_down("m", 0.1)
    node.link_up("m", LINK, 0.2)
    assert not sends(node.receive("o", advert("d", 5, seqno=2), 0.3), Update)


def test_the_first_request_asks_few_and_its_repeat_asks_all() -> None:
    node = router("o", "p", "q", "r", "s")
    node.receive("o", advert("d", 5), 0.0)
    node.handle_timeout(0.1)
    for neighbour in "pqrs":
        node.receive(neighbour, advert("d", 5 + COST), 0.2)
    assert sorted(sends(node.link_down("o", 0.3), SeqnoRequest)) == ["p", "q", "r"]
    assert sorted(sends(node.handle_timeout(0.3 + PROFILE.retries[0]), SeqnoRequest)) == ["p", "q", "r", "s"]


def test_a_better_way_that_needs_freshness_is_asked_for_once_settled() -> None:
    node = router("m", "n")
    node.receive("m", advert("d", 5), 0.0)
    node.handle_timeout(0.1)
    node.link_changed("m", Link(1.0), 1.0)
    assert not sends(node.receive("n", advert("d", 5 + COST), 1.0), SeqnoRequest)
    assert not sends(pass_time(node, 0.9 + PROFILE.settle), SeqnoRequest)
    assert "n" in sends(pass_time(node, 1.1 + PROFILE.settle), SeqnoRequest)
    node.receive("n", advert("d", 5 + COST, seqno=2), 2.5)
    pass_time(node, 2.6)
    assert node.next_hop("d") == "n"


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


def test_a_dump_that_comes_after_later_news_takes_nothing_back() -> None:
    node = router("m")
    late = Update((Advert("d", 0, 0, 1, 5),), full=True, number=0)
    node.receive("m", late, 0.0)
    node.receive("m", Update((Advert("e", 0, 0, 1, 5),), number=1), 0.1)
    assert not node.receive("m", late, 0.2)
    assert (node.next_hop("d"), node.next_hop("e")) == ("m", "m")
    node.receive("m", Update((Advert("e", 0, 0, 1, 5),), full=True, number=2), 0.3)
    assert (node.next_hop("d"), node.next_hop("e")) == (None, "m")


def test_who_can_be_dialed_is_advertised_in_class_0_alone() -> None:
    node = Babel("me", 7, PROFILE, random.Random(0))
    assert not node.set_relayed(False, 0.0)
    assert node.link_up("n", LINK, 0.0) == [Send("n", Update((Advert("me", 0, 0, 7, 0),), full=True))]
    assert not node.receive("n", SeqnoRequest((Wanted("me", 1, 2, 9, 4),)), 1.0)
    assert sends(node.set_relayed(True, 2.0), Update) == {"n": Update((Advert("me", 0, 2, 8, 0),), full=True)}
    assert not node.set_relayed(True, 3.0)
    node.receive("n", advert("d", 5, classes=(0, 2)), 4.0)
    assert [route.traffic_class for route in node.routes()] == [0], "the others are not advertised the less for it"
    assert sends(node.set_relayed(False, 5.0), Update) == {"n": Update((Advert("me", 0, 0, 8, 0),), full=True)}


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
    with pytest.raises(LocalProtocolError, match="Message"):
        node.receive("m", Message(), 0.0)
    assert node.link_changed("stranger", LINK, 0.0) == []
    assert node.link_down("stranger", 0.0) == []


def test_a_request_that_is_carried_goes_on_to_the_next_hop_of_today() -> None:
    """The answer of the former one would not count here: it is no longer the route in use."""
    node = router("asker", "m", "n")
    node.receive("m", advert("d", 5), 1.0)
    node.receive("n", advert("d", 6), 1.0)
    pass_time(node, 2.0)
    asked = sends(node.receive("asker", SeqnoRequest((Wanted("d", 0, 0, 2, 64),)), 2.0), SeqnoRequest)
    assert asked == {"m": SeqnoRequest((Wanted("d", 0, 0, 2, 63),))}
    effects = node.receive("m", advert("d", INFINITY), 2.1)
    assert sends(effects, SeqnoRequest) == {"n": SeqnoRequest((Wanted("d", 0, 0, 2, 63),))}
    effects = node.receive("n", advert("d", 6, seqno=2), 2.2)
    assert sends(effects, Update)["asker"] == advert("d", 6 + COST, seqno=2)


def test_a_lonely_router_wants_no_timer() -> None:
    node = router("m")
    assert node.next_timeout() is not None
    node.link_down("m", 1.0)
    node.handle_timeout(2.0)
    assert node.next_timeout() is None
