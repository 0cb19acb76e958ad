"""Places for strangers: bounded, shared fairly among networks, and free again once somebody has left."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.edge.places import Places, network_of

steps = st.lists(
    st.one_of(st.tuples(st.just("come"), st.sampled_from("abcd")), st.tuples(st.just("go"), st.integers(0)))
)


@given(st.integers(0, 6), steps)
def test_who_has_most_makes_room_for_who_has_less_and_nobody_else_does(
    most: int, script: list[tuple[str, object]]
) -> None:
    places: Places[int] = Places(most)
    inside: dict[int, str] = {}  # the oldest first
    for number, (what, which) in enumerate(script):
        if what == "go":
            for holder in [list(inside)[which % len(inside)]] if inside else [number]:
                places.leave(holder)
                inside.pop(holder, None)
            continue
        network, shares = str(which), Counter(inside.values())
        gone = places.enter(number, network)
        if len(inside) < most:
            assert gone is None
        elif max(shares.values(), default=0) > shares[network] + 1:
            assert gone is not None
            assert shares[inside[gone]] == max(shares.values())
            assert gone == next(holder for holder in inside if inside[holder] == inside[gone]), "the oldest of them"
            del inside[gone]
        else:
            assert gone == number
        if gone != number:
            inside[number] = network
        assert len(places) == len(inside) <= most


@given(st.integers(2, 50), st.integers(0, 300))
def test_a_flood_leaves_others_their_share(most: int, flood: int) -> None:
    places: Places[object] = Places(most)
    for number in range(flood):
        places.enter(("flood", number), "flood")
    turned_away = [places.enter(("member", n), "home") for n in range(most // 2)]
    assert all(gone is None or gone[0] == "flood" for gone in turned_away)  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "network"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("a-name", 5), "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_network_is_an_address_or_the_half_of_one_that_a_host_is_given(name: object, network: str) -> None:
    assert network_of(asyncio.Transport({"peername": name})) == network
