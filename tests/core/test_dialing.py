"""The dialer: prompt at first, patient later, never twice at once."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.dialing import Dialer
from ictp2p.types import Address, PeerId

A, B = PeerId("a"), PeerId("b")
AT = {A: Address("127.0.0.1", 1), B: Address("127.0.0.1", 2)}


def dialer() -> Dialer:
    return Dialer(random.Random(1), first_pause=0.1, longest_pause=5.0)


def test_a_wanted_peer_is_dialed_at_once_and_only_once() -> None:
    d = dialer()
    d.want(AT, now=10.0)
    assert d.next_timeout() == 10.0
    assert d.dial(10.0) == [(A, AT[A]), (B, AT[B])]
    assert d.dial(10.0) == []
    assert d.next_timeout() is None


def test_a_lost_connection_is_redialed_at_once() -> None:
    d = dialer()
    d.want(AT, now=0.0)
    d.dial(0.0)
    d.opened(A, now=0.0)
    d.opened(B, now=0.0)
    d.lost(A, now=7.0)
    assert d.dial(7.0) == [(A, AT[A])]


@given(lives=st.lists(st.floats(0.0, 4.9), min_size=1, max_size=40))
def test_who_hangs_up_soon_after_each_redial_is_redialed_at_once_only_after_the_first(lives: list[float]) -> None:
    """Every dial of it succeeds, so no failure was ever counted: it was dialed as fast as handshakes go."""
    d = dialer()
    d.want({A: AT[A]}, now=10.0)
    now = 10.0
    for n, life in enumerate(lives):
        assert d.dial(now) == [(A, AT[A])]
        d.opened(A, now)
        now += life
        d.lost(A, now)
        due = d.next_timeout()
        assert due is not None
        pause = 0.0 if n == 0 else min(5.0, 0.1 * 2.0 ** min(n - 1, 16))
        assert 0.75 * pause - 1e-9 <= due - now <= 1.25 * pause + 1e-9
        now = due


@given(failures=st.integers(0, 30), brief=st.integers(0, 10))
def test_a_connection_that_lasted_is_redialed_at_once_whatever_was_before(failures: int, brief: int) -> None:
    """A redial that is refused is the quickest proof of a death."""
    d = dialer()
    d.want({A: AT[A]}, now=0.0)
    now = 0.0
    for n in range(brief + failures):
        d.dial(now)
        if n < brief:
            d.opened(A, now)
            d.lost(A, now)
        else:
            d.failed(A, now)
        now = d.next_timeout() or now
    d.dial(now)
    d.opened(A, now)
    d.lost(A, now + 5.1)
    assert d.dial(now + 5.1) == [(A, AT[A])]


def test_an_open_connection_is_not_dialed_whoever_opened_it() -> None:
    d = dialer()
    d.opened(A, now=0.0)
    d.want(AT, now=0.0)
    assert d.dial(0.0) == [(B, AT[B])]


def test_a_new_address_is_tried_at_once() -> None:
    d = dialer()
    d.want({A: AT[A]}, now=0.0)
    d.dial(0.0)
    for _ in range(10):
        d.failed(A, now=0.0)
    d.want({A: AT[B]}, now=0.0)
    assert d.dial(0.0) == [(A, AT[B])]


def test_nobody_unwanted_is_dialed() -> None:
    d = dialer()
    d.want(AT, now=0.0)
    d.want({}, now=0.0)
    d.failed(A, now=0.0)
    d.lost(B, now=0.0)
    assert d.dial(100.0) == []


@given(failures=st.integers(1, 200))
def test_the_pause_doubles_up_to_its_longest(failures: int) -> None:
    d = dialer()
    d.want({A: AT[A]}, now=0.0)
    now = 0.0
    for n in range(failures):
        assert d.dial(now) == [(A, AT[A])]
        d.failed(A, now)
        due = d.next_timeout()
        assert due is not None
        expected = min(5.0, 0.1 * 2.0 ** min(n, 16))
        assert 0.75 * expected - 1e-9 <= due - now <= 1.25 * expected + 1e-9 or due - now <= 6.25 + 1e-9
        assert due - now >= 0.075 - 1e-9
        now = due
