"""Whose contributions a state says are in it, whatever became of it."""

from __future__ import annotations

from msgspec.structs import replace

from ictp2p.sync.credits import advanced, contributed, restored
from ictp2p.sync.values import (
    MAX_PARTICIPANTS,
    REMEMBERED,
    Participant,
    StateRef,
)
from ictp2p.types import ClusterId, PeerId
from tests.sync.decided import CREDITS, OPEN, SPEC, STATE, A


def test_only_a_sync_advances_the_state() -> None:
    assert advanced(OPEN, b"next", (A,)) == StateRef(5, b"next", (A,), CREDITS, (0, 0))
    assert advanced(replace(OPEN, spec=replace(SPEC, kind="barrier")), b"x", (A,)) == STATE


def rounds(state: StateRef, *rounds: str) -> StateRef:
    """The state after rounds of clusters with names of one letter each."""
    for names in rounds:
        parts = tuple(Participant(ClusterId(n), PeerId(f"{ord(n):032x}"), 1, 1.0) for n in names)
        state = advanced(replace(OPEN, state=state, participants=parts), b"next", (A,))
    return state


def test_a_state_says_whose_contributions_are_in_it() -> None:
    state = rounds(STATE, "ab", "a", "bc")
    assert dict(state.credits) == {"a": 6, "b": 7, "c": 7}
    assert [contributed(state, ClusterId("a"), base) for base in (4, 5, 6, 7)] == [0b110, 0b010, 0, 0]
    assert [contributed(state, ClusterId("b"), base) for base in (3, 4, 5, 6)] == [0b101, 0b101, 0b001, 0b001]
    assert contributed(state, ClusterId("d"), 4) == 0


def test_what_an_heir_brought_to_a_later_round_is_not_brought_again() -> None:
    """A leader that fell asleep with its contribution from version 4 finds that its cluster missed the next round."""
    assert contributed(rounds(STATE, "b", "b", "ab", "b"), ClusterId("a"), 4)


def test_what_nobody_can_know_any_more_counts_as_contributed() -> None:
    state = rounds(STATE, "a", *["b"] * REMEMBERED)
    assert not contributed(state, ClusterId("a"), 5)
    assert contributed(state, ClusterId("a"), 4)
    assert dict(rounds(state, "b").credits) == {"b": 5 + REMEMBERED + 1}


def test_of_what_a_state_does_not_say_all_counts_as_contributed() -> None:
    """As one does not that was decided before states said so."""
    state = replace(rounds(STATE, "b", "b", "a"), earlier=())
    assert contributed(state, ClusterId("a"), 4) == 0b111
    assert contributed(rounds(state, "b"), ClusterId("a"), 4) == 0b1110


def test_no_state_names_more_clusters_than_a_message_may_hold() -> None:
    many = tuple((ClusterId(f"c{n:04}"), 4) for n in range(MAX_PARTICIPANTS))
    state = rounds(replace(STATE, credits=many), "ab")
    assert len(state.credits) == MAX_PARTICIPANTS
    assert {("a", 5), ("b", 5)} < set(state.credits)


def test_what_was_in_a_version_that_died_is_in_none() -> None:
    lost = rounds(STATE, "ab", "a", "ac")
    back = restored(lost, 5, b"five", (A,))
    assert (back.version, dict(back.credits)) == (8, {"a": 5, "b": 5, "c": 5})
    assert [contributed(back, ClusterId("a"), base) for base in (4, 5, 6, 7)] == [0b1000, 0, 0, 0]
    assert not contributed(rounds(back, "b"), ClusterId("a"), 5)
    assert contributed(rounds(back, "b"), ClusterId("b"), 5)
    assert restored(lost, 0, b"brought along", (A,)).credits == ()
