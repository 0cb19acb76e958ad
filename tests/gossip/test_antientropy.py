from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.antientropy import batches, compare, digest, interval
from ictp2p.gossip.messages import LAST_SEQUENCE, Entry, Record, Status
from ictp2p.gossip.table import Member

View = dict[str, Member]


def view(*lines: tuple[str, int, int, Status]) -> View:
    return {name: Member(Record(name, inc, seq, b""), status, 0.0) for name, inc, seq, status in lines}


A, S, D, L = Status


def test_equal_views_owe_each_other_nothing() -> None:
    mine = view(("a", 1, 0, A), ("b", 2, 3, S), ("c", 1, 1, D), ("d", 1, LAST_SEQUENCE, L))
    difference = compare(mine, digest(mine))
    assert (difference.records, difference.verdicts, difference.wanted) == ((), (), ())


def test_newer_records_flow_both_ways() -> None:
    mine = view(("a", 2, 0, A), ("b", 1, 0, A), ("c", 1, 5, A), ("mine", 1, 0, A))
    theirs = view(("a", 1, 9, A), ("b", 1, 1, A), ("c", 1, 5, A), ("theirs", 1, 0, A))
    difference = compare(mine, digest(theirs))
    assert [r.member for r in difference.records] == ["a", "mine"]
    assert difference.wanted == ("b", "theirs")


def test_the_absent_are_not_spread_to_whoever_never_knew_them() -> None:
    gone = view(("dead", 1, 0, D), ("left", 1, LAST_SEQUENCE, L))
    assert compare(gone, ()).records == ()
    assert compare({}, digest(gone)).wanted == ()


def test_verdicts_flow_within_an_incarnation_only() -> None:
    mine = view(("a", 1, 0, S), ("b", 1, 0, D), ("c", 2, 0, A), ("d", 1, 0, S))
    theirs = view(("a", 1, 0, A), ("b", 1, 0, S), ("c", 1, 0, D), ("d", 2, 0, A))
    difference = compare(mine, digest(theirs))
    assert [(e.member, e.status) for e in difference.verdicts] == [("a", S), ("b", D)]
    assert difference.accused == ()
    assert [e.member for e in compare(theirs, digest(mine)).accused] == ["a", "b"]


def test_a_record_that_is_owed_comes_with_its_verdict() -> None:
    difference = compare(view(("a", 3, 0, S)), (Entry("a", 1, 0, A),))
    assert [e.status for e in difference.verdicts] == [S]


def test_a_goodbye_is_a_record_and_no_verdict() -> None:
    difference = compare(view(("a", 1, LAST_SEQUENCE, L)), (Entry("a", 1, 4, S),))
    assert [r.member for r in difference.records] == ["a"]
    assert difference.verdicts == difference.accused == ()


VIEWS = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(list(Status)))
).map(lambda lines: view(*((name, *rest) for name, rest in lines.items())))


@given(VIEWS, VIEWS)
def test_what_one_side_owes_the_other_wants(mine: View, theirs: View) -> None:
    here, there = compare(mine, digest(theirs)), compare(theirs, digest(mine))
    assert {r.member for r in here.records} == set(there.wanted)
    assert {r.member for r in there.records} == set(here.wanted)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100))
def test_batches_hold_everything_in_order_and_fit(sizes: list[int], limit: int) -> None:
    records = [Record("a", i, 0, b"x" * size) for i, size in enumerate(sizes)]
    parts = list(batches(records, limit))
    assert [r for part in parts for r in part] == records
    assert all(part for part in parts)
    assert all(len(part) == 1 or sum(len(r.payload) for r in part) <= limit for part in parts)


@pytest.mark.parametrize(("members", "factor"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (128, 3)])
def test_large_groups_exchange_less_often(members: int, factor: int) -> None:
    assert interval(30.0, members) == 30.0 * factor
