"""What a router asks for, and whose requests it answers or carries on."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY, Link
from ictp2p.routing.messages import HIGHEST, Advert, RouteRequest, SeqnoRequest, Update, Wanted
from tests.routing.one_router import COST, LINK, PROFILE, advert, pass_time, router, sends


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


@given(st.sampled_from([0, 1, HIGHEST - 1, HIGHEST, HIGHEST + 1, 2**63 - 1, 2**64 - 1]))
def test_whatever_number_was_advertised_the_next_higher_one_can_be_asked_for(seqno: int) -> None:
    """The request for one more than MessagePack holds raised in the middle of whatever input it came up in."""
    node = router("m", "n")
    for neighbour, metric in (("m", 5), ("n", 5000)):
        heard = msgspec.msgpack.encode(advert("d", metric, seqno))
        try:
            node.receive(neighbour, msgspec.msgpack.decode(heard, type=Update), 0.0)
        except msgspec.ValidationError:
            return
    pass_time(node, 1.0)
    asked = sends(node.link_down("m", 1.0), SeqnoRequest)["n"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=SeqnoRequest) == asked


@given(st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=50), st.integers(0, 31))
def test_requests_for_what_nobody_offers_leave_nothing_behind(names: set[str], last: int) -> None:
    """Each was remembered, without bound: a message of them took three hundred times its size here."""
    node = router("asker", "m")
    node.receive("m", advert("d", 5), 0.0)
    pass_time(node, 1.0)
    before = node.next_timeout()
    request = SeqnoRequest(tuple(Wanted(name, 0, last, 7, 64) for name in sorted(names | {"d"})))
    asked = sends(node.receive("asker", request, 1.0), SeqnoRequest)
    assert asked == {"m": SeqnoRequest((Wanted("d", 0, 0, 7, 63),))}
    assert node.next_timeout() == before
    answers = [sends(node.receive("m", advert(name, 5, seqno=9), 1.0), Update) for name in sorted(names - {"d"})]
    assert not any("asker" in answer for answer in answers), "it hears of a first way with all others"
    told = sends(pass_time(node, 2.0), Update)
    heard = told["asker"].adverts if "asker" in told else ()  # type: ignore[attr-defined]
    assert {a.destination for a in heard} >= names - {"d"}
