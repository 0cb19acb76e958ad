"""The timeout arithmetic, against the table that hashicorp/memberlist tests its own with."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import Suspicion, limits, needed, timeout

LAN = SwimProfile.lan()


@pytest.mark.parametrize(
    ("confirmations", "elapsed", "remaining"),
    [(0, 0.0, 30.0), (1, 2.0, 14.0), (2, 3.0, 4.81), (3, 4.0, -2.0), (4, 5.0, -3.0), (5, 10.0, -8.0)],
)
def test_remaining_time_of_memberlist(confirmations: int, elapsed: float, remaining: float) -> None:
    assert timeout(confirmations, 3, 2.0, 30.0) - elapsed == pytest.approx(remaining, abs=1e-9)


@pytest.mark.parametrize(("minimum", "maximum"), [(2.0, 30.0), (0.6, 3.0)])
def test_without_confirmations_to_wait_for_the_minimum_holds(minimum: float, maximum: float) -> None:
    assert timeout(0, 0, minimum, maximum) == minimum


@given(st.integers(1, 10), st.floats(0.01, 100), st.floats(1, 10), st.data())
def test_each_confirmation_shortens_within_the_limits(
    wanted: int, minimum: float, factor: float, data: st.DataObject
) -> None:
    maximum = minimum * factor
    count = data.draw(st.integers(0, wanted - 1))
    longer, shorter = (timeout(c, wanted, minimum, maximum) for c in (count, count + 1))
    assert minimum <= shorter <= longer <= maximum + 1e-9
    assert timeout(wanted, wanted, minimum, maximum) == pytest.approx(minimum)


@pytest.mark.parametrize(
    ("profile", "members", "shortest", "longest"),
    [
        (LAN, 1, 4.0, 24.0),
        (LAN, 2, 4.0, 24.0),
        (LAN, 10, 4.0, 24.0),
        (LAN, 100, 8.0, 48.0),
        (SwimProfile.wan(), 4, 8.0, 32.0),
        (SwimProfile.wan(), 16, 8.0 * math.log10(16), 32.0 * math.log10(16)),
        (SwimProfile.local(), 4, 0.6, 3.0),
    ],
)
def test_limits_grow_with_the_logarithm(profile: SwimProfile, members: int, shortest: float, longest: float) -> None:
    assert limits(members, profile) == pytest.approx((shortest, longest))


@pytest.mark.parametrize(("members", "wanted"), [(1, 0), (2, 0), (3, 0), (4, 2), (64, 2)])
def test_a_group_is_asked_only_for_what_it_can_give(members: int, wanted: int) -> None:
    assert needed(members, LAN) == wanted


def test_only_distinct_and_wanted_origins_confirm() -> None:
    suspicion = Suspicion("a", 8, LAN, 100.0)
    assert suspicion.deadline == 124.0
    assert not suspicion.confirm("a", 100.0)
    assert suspicion.confirm("b", 100.0)
    assert not suspicion.confirm("b", 100.0)
    assert suspicion.deadline == pytest.approx(100.0 + timeout(1, 2, 4.0, 24.0))
    assert suspicion.confirm("c", 100.0)
    assert not suspicion.confirm("d", 100.0)
    assert suspicion.deadline == 104.0


def test_a_deadline_never_moves_into_the_past() -> None:
    """A machine that found it in the past would take itself for late."""
    suspicion = Suspicion("a", 4, LAN, 0.0)
    suspicion.confirm("b", 15.0)
    assert suspicion.deadline == 15.0
    other = Suspicion("a", 4, LAN, 0.0)
    other.settle(10.0)
    assert other.deadline == 10.0


def test_settled_evidence_leaves_the_minimum() -> None:
    suspicion = Suspicion("a", 4, LAN, 0.0)
    suspicion.settle(0.5)
    assert suspicion.deadline == 4.0
    assert not suspicion.confirm("b", 1.0)


def test_postponed_time_does_not_count() -> None:
    suspicion = Suspicion("a", 2, LAN, 0.0)
    suspicion.postpone(7.0)
    assert suspicion.deadline == 11.0


def test_postponed_time_does_not_count_once_others_confirm_either() -> None:
    """A process that slept gives who it suspects all of the time that is left, whoever joins in afterwards."""
    slept, awake = Suspicion("a", 64, LAN, 0.0), Suspicion("a", 64, LAN, 60.0)
    slept.postpone(60.0)
    assert slept.confirm("b", 61.0)
    assert awake.confirm("b", 61.0)
    assert slept.deadline == awake.deadline > 61.0
