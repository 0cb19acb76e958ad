"""What held connections back, by the kernel's account of it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.headroom import LONG, MOSTLY, QUEUED, Headroom
from ictp2p.bulk.tuning import Account


@dataclass(eq=False)
class Counted:
    """A connection of which this is known."""

    account: Account | None


def moved(connection: Counted, busy: float, held: float, round_trips: float = 1.0) -> None:
    before = connection.account or Account(0.0, 0.0, 1.0)
    connection.account = Account(before.busy + busy, before.held + held, round_trips)


spans = st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.floats(1.0, 3.0))


@given(st.integers(1, 4), st.lists(st.lists(spans, min_size=4, max_size=4), min_size=1, max_size=8))
def test_only_what_has_worked_for_long_since_the_last_judgement_is_judged_and_by_that_alone(
    size: int, story: list[list[tuple[float, float, float]]]
) -> None:
    headroom, connections = Headroom(), [Counted(Account(0.0, 0.0, 1.0)) for _ in range(size)]
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
    headroom, old, new = Headroom(), Counted(Account(10.0, 0.0, 1.0)), Counted(None)
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
