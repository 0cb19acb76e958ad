"""The order of states, as a property over every sequence of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Record,
    Status,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.table import Table
from ictp2p.machine import Effect, Effects

LAN = SwimProfile.lan()
FOLLOWS: dict[type[Effect], set[str | None]] = {
    MemberJoined: {None, "gone"},
    MemberUpdated: {"alive", "suspect"},
    MemberSuspected: {"alive"},
    MemberCleared: {"suspect"},
    MemberFailed: {"alive", "suspect"},
    MemberLeft: {"alive", "suspect", "gone"},
}
BECOMES: dict[type[Effect], str] = {
    MemberJoined: "alive",
    MemberSuspected: "suspect",
    MemberCleared: "alive",
    MemberFailed: "gone",
    MemberLeft: "gone",
}

WORDS = st.tuples(
    st.sampled_from(["record", "goodbye", "suspect", "dead"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from("xyz"),
)


@given(st.lists(WORDS, max_size=30))
def test_notices_tell_the_same_story_as_the_table(words: list[tuple[str, int, int, str]]) -> None:
    table = Table(LAN)
    told: str | None = None
    for now, (word, incarnation, sequence, origin) in enumerate(words):
        before = table.members.get("m")
        effects = apply(table, word, incarnation, sequence, origin, float(now))
        for notice in effects:
            kind = type(notice)
            assert told in FOLLOWS[kind], f"{kind.__name__} while {told}"
            told = BECOMES.get(kind, told)
        after = table.members.get("m")
        assert told == (None if after is None else "gone" if not after.status.present else after.status.name.lower())
        assert ("m" in table.suspicions) == (after is not None and after.status is Status.SUSPECT)
        if before is not None and after is not None:
            assert before.record.version <= after.record.version
            if before.record.incarnation == after.record.incarnation:
                assert before.status <= after.status or after.status is Status.LEFT


def apply(table: Table, word: str, incarnation: int, sequence: int, origin: str, now: float) -> Effects:
    if word in ("record", "goodbye"):
        version = LAST_SEQUENCE if word == "goodbye" else sequence
        record = Record("m", incarnation, version, b"")
        known = "m" in table.members
        return table.accept(record, now) if table.is_newer(record) and (known or word == "record") else []
    if word == "suspect":
        return table.suspect("m", incarnation, origin, now) or []
    return table.bury("m", incarnation, now) or []


def test_nothing_new_is_none_and_a_confirmation_is_empty() -> None:
    table = Table(LAN)
    for name in "abcdm":
        table.accept(Record(name, 1, 0, b""), 0.0)
    assert table.suspect("m", 1, "a", 1.0) == [MemberSuspected("m")]
    assert table.suspect("m", 1, "b", 1.0) == []
    assert table.suspect("m", 1, "b", 1.0) is None
    assert table.suspect("m", 0, "c", 1.0) is None
    assert table.bury("m", 2, 1.0) is None
    assert table.bury("m", 1, 1.0) == [MemberFailed("m")]
    assert table.bury("m", 1, 1.0) is None
    assert table.suspect("stranger", 1, "a", 1.0) is None


def test_status_is_dated_from_its_beginning() -> None:
    table = Table(LAN)
    table.accept(Record("m", 1, 0, b""), 1.0)
    table.accept(Record("m", 1, 1, b""), 2.0)
    assert table.members["m"].since == 1.0
    table.suspect("m", 1, "a", 3.0)
    assert table.members["m"].since == 3.0


@pytest.mark.parametrize("dead", [True, False])
def test_only_the_long_absent_are_forgotten(dead: bool) -> None:
    table = Table(LAN)
    table.accept(Record("m", 1, 0, b""), 0.0)
    if dead:
        table.bury("m", 1, 0.0)
    table.forget(LAN.forget_after)
    assert "m" in table.members
    table.forget(LAN.forget_after + 1.0)
    assert ("m" in table.members) == (not dead)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.integers(1, 4))
def test_of_too_many_absent_the_newest_are_remembered_and_all_who_are_there(
    ends: list[tuple[int, bool]], most: int
) -> None:
    table = Table(SwimProfile.lan(most_absent=most))
    absent = list[tuple[float, str]]()
    now = 0.0
    for number, (pause, dead) in enumerate(ends):
        now += pause
        table.accept(Record(f"m{number:02}", 1, 0, b""), now)
        if dead:
            table.bury(f"m{number:02}", 1, now)
            absent.append((now, f"m{number:02}"))
    present = set(table.present())
    table.forget(now)
    assert table.members.keys() == present.union(name for _, name in absent[-most:])
