"""The door by hand, and a whole mesh of round machines that closes it; time is an argument in both."""

from __future__ import annotations

from statistics import median, median_high

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.rounds.arrivals import Arrivals
from ictp2p.sync.values import Spec
from ictp2p.types import ClusterId

NAMES = tuple(ClusterId(name) for name in "abcdefg")


def spec(quorum: float, spread: float = 3.0) -> Spec:
    return Spec("sync", "diloco", "float32", 10, "avg", "none", b"", quorum, spread)


def after(*rounds: list[float]) -> Arrivals:
    """A book of rounds whose clusters came at these times."""
    book = Arrivals()
    for at in rounds:
        for name, when in zip(NAMES, at, strict=False):
            book.came([name], when)
        book.committed(NAMES[: len(at)], max(at) + 1.0)
    return book


def test_the_door_by_hand() -> None:
    book = after([10.0, 11.0, 12.0, 16.0, 30.0], [100.0, 100.0, 101.0, 105.0, 108.0])
    # From the medians 12 and 101: 2 1 0 4 18 and 1 1 0 4 7; of these ten the middle two are 1 and 2.
    assert book.deviation == 1.5
    book.came(NAMES[:1], 200.0)
    book.came(NAMES[1:2], 202.0)
    assert book.door(spec(0.6), 5, NAMES[:2], 0.0) is None, "three are the quorum"
    book.came(NAMES[2:3], 203.0)
    assert book.door(spec(0.6), 5, NAMES[:3], 0.0) == 203.0 + 3 * 1.5
    assert book.door(spec(0.6, 0.0), 5, NAMES[:3], 0.0) == 203.0
    assert book.door(spec(0.6), 5, NAMES[:3], 10.0) == 213.0, "in any case so long"
    assert book.door(spec(0.4), 5, NAMES[:3], 0.0) == 202.0 + 4.5, "two are enough, and the second came at 202"
    assert book.door(spec(1.0), 5, NAMES[:3], 0.0) is None, "all are to come"


@pytest.mark.parametrize(
    ("share", "of", "needed"), [(0.28, 25, 7), (0.56, 25, 14), (0.07, 100, 7), (0.5, 5, 3), (1e-10, 5, 1)]
)
def test_a_share_that_is_a_whole_number_of_clusters_asks_for_no_more(share: float, of: int, needed: int) -> None:
    names = [ClusterId(f"c{n}") for n in range(of)]
    book = Arrivals()
    for _ in range(2):
        for name in names:
            book.came([name], 1.0)
        book.committed(names, 2.0)
    for name in names[:needed]:
        assert book.door(spec(share), of, names[: names.index(name)], 0.0) is None
        book.came([name], 5.0)
    assert book.door(spec(share), of, names[:needed], 0.0) is not None


def test_the_door_is_not_closed_before_the_quorum_is_there() -> None:
    book = after([0.0, 0.0, 1.0, 1.0, 1.0])
    for number, name in enumerate(NAMES[:4]):
        book.came([name], 50.0 + 20.0 * number)
    assert book.door(spec(0.8), 5, NAMES[:4], 0.0) == 110.0


def test_nothing_is_said_before_a_round_was_seen() -> None:
    book = Arrivals()
    book.came(NAMES, 1.0)
    assert book.deviation is None
    assert book.door(spec(0.5), 7, NAMES, 0.0) is None
    book.committed((), 2.0)
    book.committed(NAMES[:1], 3.0)
    assert book.deviation is None, "one alone does not scatter"


def test_who_did_not_come_at_all_counts_as_coming_with_the_commit() -> None:
    book = Arrivals()
    book.came(NAMES[:2], 5.0)
    book.committed(NAMES[:3], 9.0)
    assert book.deviation == 0.0  # 0, 0 and 4
    assert after([5.0, 5.0, 9.0]).deviation == 0.0


@given(
    st.lists(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=7), min_size=1, max_size=12),
    st.floats(-1000.0, 1000.0),
)
def test_only_the_scatter_of_the_last_rounds_counts(rounds: list[list[float]], shift: float) -> None:
    wanted = median([abs(t - median_high(at)) for at in rounds[-8:] for t in at])
    assert after(*rounds).deviation == wanted
    moved = after(*([t + shift * n for t in at] for n, at in enumerate(rounds))).deviation
    assert moved == pytest.approx(wanted, abs=1e-9), "a phase may be of any length"


@given(st.lists(st.floats(0.0, 50.0), min_size=7, max_size=7), st.floats(60.0, 1e6))
def test_less_than_half_of_the_arrivals_cannot_move_the_measure_beyond_that_of_the_others(
    at: list[float], late: float
) -> None:
    wild = [*sorted(at)[:4], late, 2 * late, 3 * late]
    deviation = after(wild).deviation
    assert deviation is not None
    assert deviation <= max(at) - min(at)


@given(
    st.lists(st.floats(0.0, 100.0), min_size=7, max_size=7),
    st.integers(1, 7),
    st.floats(0.01, 0.99),
    st.floats(0.0, 10.0),
)
def test_a_door_follows_the_quorum_and_never_comes_before_it(
    at: list[float], came: int, quorum: float, least: float
) -> None:
    book = after([0.0, 1.0, 2.0, 4.0])
    for name, when in zip(NAMES[:came], at, strict=False):
        book.came([name], when)
    door = book.door(spec(quorum), 7, NAMES[:came], least)
    held = sorted(at[:came])
    needed = next(n for n in range(1, 8) if n >= quorum * 7)
    assert (door is None) == (came < needed)
    if door is not None:
        assert door >= held[needed - 1]
        assert door >= held[min(needed, 4) - 1] + max(least, 3.0 * 1.5)  # 2 1 0 2 from the upper median 2
