"""What a member proves to a relay holds for that hello, at every relay of a way, and once at each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.frames import MAX_HOPS, Hello, Purpose
from ictp2p.bulk.membership import REMEMBERED, Membership
from ictp2p.types import PeerId

IDS = st.binary(min_size=16, max_size=16).map(lambda each: PeerId(each.hex()))
HELLOS = st.builds(
    Hello,
    st.just(Purpose.RELAY),
    IDS,
    IDS,
    st.binary(min_size=32, max_size=32),
    sealed=st.booleans(),
    hops=st.integers(1, MAX_HOPS),
)
KEYS = st.binary(min_size=1, max_size=64)


@given(HELLOS, HELLOS, KEYS, KEYS)
def test_a_proof_is_good_for_one_hello_under_one_key_however_often_it_was_relayed(
    one: Hello, two: Hello, key: bytes, other: bytes
) -> None:
    member = Membership(key)
    proven = member.proven(one)
    assert Membership(key).admits(proven)
    assert Membership(key).admits(proven.relayed())
    assert Membership(other).admits(proven) == (key == other)
    forged = replace(two, ticket=proven.ticket)
    same = (one.source, one.target, one.nonce, one.sealed) == (two.source, two.target, two.nonce, two.sealed)
    assert Membership(key).admits(forged) == same
    assert not Membership(b"").admits(Membership(b"").proven(one))


@given(st.lists(HELLOS, max_size=5), KEYS)
def test_each_is_admitted_once(hellos: list[Hello], key: bytes) -> None:
    relay, seen = Membership(key), set[bytes]()
    for hello in [each for each in hellos for _ in range(2)]:
        proven = Membership(key).proven(hello)
        assert relay.admits(proven) == (proven.ticket not in seen)
        seen.add(proven.ticket)


def test_what_is_remembered_is_bounded() -> None:
    relay = Membership(b"key")
    for number in range(REMEMBERED + 10):
        assert relay.admits(
            relay.proven(Hello(Purpose.RELAY, PeerId("1" * 32), PeerId("2" * 32), number.to_bytes(32, "big")))
        )
    assert len(relay._seen) == REMEMBERED
