"""What held connections back, by the kernel's account of it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.account import Account
from ictp2p.bulk.headroom import CUBIC, LONG, LOSSES, MOSTLY, QUEUED, RENO, USED, Headroom

FAR = 0.1
"""Seconds of a round trip."""
NONE = Account(0.0, 0.0, 1.0, FAR, 0.0, 0.0)


@dataclass(eq=False)
class Counted:
    """A connection of which this is known."""

    account: Account | None


def moved(connection: Counted, busy: float, held: float, round_trips: float = 1.0) -> None:
    before = connection.account or NONE
    connection.account = before._replace(busy=before.busy + busy, held=before.held + held, round_trips=round_trips)


def lost(connection: Counted, losses: float, rate: float, window: float, *, queue: float = 1.0) -> None:
    """Have it lose so many packets, at such a rate of loss and such a window."""
    before, packets = connection.account or NONE, losses / rate
    connection.account = before._replace(
        busy=before.busy + packets * FAR * queue / window,
        round_trips=queue,
        seconds=FAR * queue,
        packets=before.packets + packets,
        lost=before.lost + losses,
    )


def left_by(rate: float) -> float:
    """Give the window that losses leave at this rate of them."""
    return max(CUBIC * (FAR / rate) ** 0.75, RENO / rate**0.5)


spans = st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.floats(1.0, 3.0))


@given(st.integers(1, 4), st.lists(st.lists(spans, min_size=4, max_size=4), min_size=1, max_size=8))
def test_only_what_has_worked_for_long_since_the_last_judgement_is_judged_and_by_that_alone(
    size: int, story: list[list[tuple[float, float, float]]]
) -> None:
    headroom, connections = Headroom(), [Counted(NONE) for _ in range(size)]
    busy, held = [0.0] * size, 0.0
    for step in story:
        for n, (seconds, part, round_trips) in enumerate(step[:size]):
            moved(connections[n], seconds, part * seconds, round_trips)
            busy[n] += seconds
            held += seconds * part
        lacking = headroom.lacking(connections)
        if abs(min(busy) - LONG) < 1e-6 or abs(held - MOSTLY * sum(busy)) < 1e-6:
            return  # by a rounding error
        queued = any(round_trips >= QUEUED for _, _, round_trips in step[:size])
        assert lacking == (min(busy) > LONG and held > MOSTLY * sum(busy) and not queued)
        if min(busy) > LONG:
            busy, held = [0.0] * size, 0.0


def test_one_that_is_new_is_judged_from_its_beginning_on_and_one_that_nobody_counts_is_left_out() -> None:
    headroom, old, new = Headroom(), Counted(NONE._replace(busy=10.0)), Counted(None)
    assert not headroom.lacking([new]), "nothing is known of it"
    assert not headroom.lacking([old])
    moved(old, 1.0, 0.8)
    moved(new, 1.0, 0.8)
    assert headroom.lacking([old, new, Counted(None)])
    assert not headroom.lacking([old, new]), "that has been judged"


def test_what_was_judged_once_is_not_judged_again_because_one_of_them_ends() -> None:
    headroom, stays, ends = Headroom(), Counted(None), Counted(None)
    for each in (stays, ends):
        moved(each, 100.0, 100.0)
    assert headroom.lacking([stays, ends])
    headroom.forget(ends)
    headroom.forget(ends)
    moved(stays, 1.0, 0.0)
    assert not headroom.lacking([stays])


@given(st.integers(1, 16), st.floats(1e-5, 1e-2), st.floats(0.01, 3.0), st.floats(3.0, 30.0))
def test_losses_are_the_bound_of_windows_as_large_as_they_leave_and_of_no_smaller_ones(
    size: int, rate: float, part: float, losses: float
) -> None:
    headroom, connections = Headroom(), [Counted(None) for _ in range(size)]
    for each in connections:
        lost(each, losses, rate, part * left_by(rate))
    busy = connections[0].account.busy  # type: ignore[union-attr]
    if abs(part - USED) < 1e-6 or abs(busy - LONG) < 1e-6 or abs(losses * size - LOSSES) < 1e-6:
        return  # by a rounding error
    assert headroom.lacking(connections) == (part > USED and busy > LONG)
    assert not headroom.lacking(connections), "that has been judged"


def test_few_losses_are_an_accident_until_there_have_been_more_of_them() -> None:
    headroom, connection = Headroom(), Counted(None)
    for expected in (False, False, True, False, False, True):
        lost(connection, LOSSES / 3 + 1e-9, 1e-4, left_by(1e-4))
        assert headroom.lacking([connection]) == expected


def test_losses_of_a_line_that_has_a_queue_are_of_a_full_one() -> None:
    headroom, connection = Headroom(), Counted(None)
    lost(connection, 100, 1e-3, left_by(1e-3), queue=QUEUED)
    assert not headroom.lacking([connection])
    for expected in (False, False, True):  # what was lost in the queue is no evidence
        lost(connection, LOSSES / 3 + 1e-9, 1e-3, left_by(1e-3))
        assert headroom.lacking([connection]) == expected
