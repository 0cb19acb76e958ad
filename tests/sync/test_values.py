"""Which value may follow which, and which sets decide."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from msgspec.structs import replace

from ictp2p.sync.values import (
    MAX_PARTICIPANTS,
    REMEMBERED,
    Close,
    Open,
    Participant,
    Spec,
    StateRef,
    Value,
    Voters,
    advanced,
    contributed,
    fault,
    follows,
    genesis,
    quorum,
    restored,
    upcoming,
)
from ictp2p.types import ClusterId, PeerId

A, B, C = (PeerId(f"{i:032x}") for i in range(1, 4))
LINEAGE = b"lineage!"
SPEC = Spec("sync", "diloco", "float32", 10, "avg", "none")
STATE = StateRef(4, b"digest", (A,))
VOTERS = Voters(LINEAGE, (A, B), STATE, A, 7, 2)
PARTS = (Participant(ClusterId("a"), A, 1, 1.0), Participant(ClusterId("b"), B, 3, 2.5))
OPEN = Open(LINEAGE, (A, B), STATE, A, 7, 2, SPEC, PARTS, b"plan", "star", 30.0)
CREDITS = ((ClusterId("a"), 5), (ClusterId("b"), 5))
COMMIT = Close(LINEAGE, (A, B), StateRef(5, b"next", (A, B), CREDITS, (0, 0)), A, 7, 2, True, b"next", "2 of 2", (A, B))
ABORT = Close(LINEAGE, (A, B), STATE, A, 7, 2, False, b"", "b failed", ())
APART = replace(ABORT, camps=((ClusterId("a"),), (ClusterId("b"),)))


def peers(count: int) -> tuple[PeerId, ...]:
    return tuple(PeerId(f"{i:032x}") for i in range(count))


@pytest.mark.parametrize("size", range(1, 8))
def test_any_two_quorums_intersect(size: int) -> None:
    voters = peers(size)
    subsets = [frozenset(s) for n in range(size + 1) for s in combinations(voters, n)]
    quorums = [s for s in subsets if quorum(voters, s)]
    assert all(a & b for a in quorums for b in quorums)
    assert all(quorum(voters, s) for s in subsets if 2 * len(s) > size)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_exactly_half_decides_with_the_first_voter_and_not_without(size: int) -> None:
    voters = peers(size)
    assert quorum(voters, voters[: size // 2])
    assert not quorum(voters, voters[size // 2 :])


def test_strangers_do_not_count_towards_a_quorum() -> None:
    assert not quorum((A,), (B, C))
    assert not quorum((), (A,))


@pytest.mark.parametrize("value", [VOTERS, OPEN, COMMIT, ABORT, APART, genesis(LINEAGE, A)])
def test_values_survive_the_wire_and_keep_their_kind(value: Value) -> None:
    assert fault(value) is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=Value) == value


def test_the_chain_counts_rounds_and_attempts() -> None:
    assert upcoming(genesis(LINEAGE, A)) == (1, 1)
    assert upcoming(OPEN) == (7, 2)
    assert upcoming(ABORT) == (7, 3)
    assert upcoming(COMMIT) == (8, 1)


@pytest.mark.parametrize(
    ("before", "value"),
    [
        (VOTERS, OPEN),
        (OPEN, COMMIT),
        (OPEN, ABORT),
        (OPEN, APART),
        (ABORT, replace(OPEN, attempt=3)),
        (COMMIT, replace(OPEN, state=COMMIT.state, round=8, attempt=1)),
        (VOTERS, replace(VOTERS, voters=(B, C))),
        (genesis(LINEAGE, A), replace(genesis(LINEAGE, A), state=StateRef(1, b"first", (A,)))),
        (OPEN, replace(ABORT, voters=(C,))),
    ],
)
def test_what_may_follow(before: Value, value: Value) -> None:
    assert follows(before, value) is None


@pytest.mark.parametrize(
    ("before", "value", "why"),
    [
        (VOTERS, replace(OPEN, lineage=b"another!"), "lineage"),
        (VOTERS, replace(OPEN, round=8), "round 8 attempt 2 where"),
        (VOTERS, replace(OPEN, attempt=3), "attempt 3"),
        (OPEN, OPEN, "Open after Open"),
        (OPEN, VOTERS, "Voters after Open"),
        (VOTERS, COMMIT, "Close after Voters"),
        (VOTERS, replace(OPEN, state=StateRef(4, b"other", (A,))), "state"),
        (VOTERS, replace(VOTERS, state=StateRef(5, b"other", (A,))), "state"),
        (OPEN, replace(COMMIT, state=StateRef(6, b"next", (A, B))), "follows"),
        (OPEN, replace(COMMIT, state=STATE), "follows"),
        (OPEN, replace(ABORT, state=COMMIT.state), "follows"),
        (OPEN, replace(APART, camps=(("a",), ("c",))), "camps"),
        (OPEN, replace(APART, camps=(("a", "b"), ("a",))), "camps"),
        (OPEN, replace(COMMIT, holders=(A, C), state=StateRef(5, b"next", (A, C), CREDITS, (0, 0))), "holders"),
    ],
)
def test_what_may_not_follow(before: Value, value: Value, why: str) -> None:
    assert why in (follows(before, value) or "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (replace(VOTERS, lineage=b"short"), "5 bytes"),
        (replace(VOTERS, voters=()), "voters"),
        (replace(VOTERS, voters=(A, A)), "voters"),
        (replace(VOTERS, voters=peers(8)), "voters"),
        (replace(VOTERS, state=StateRef(0, b"x", ())), "version 0"),
        (replace(OPEN, participants=()), "0 participants"),
        (replace(OPEN, participants=(PARTS[0], replace(PARTS[1], cluster="a"))), "cluster takes part twice"),
        (replace(OPEN, participants=(PARTS[0], replace(PARTS[1], leader=A))), "leader takes part twice"),
        (replace(OPEN, participants=(replace(PARTS[0], weight=float("nan")),)), "weight nan"),
        (replace(OPEN, participants=(replace(PARTS[0], weight=0.0),)), "weight 0.0"),
        (replace(OPEN, deadline=float("inf")), "deadline inf"),
        (replace(OPEN, plan=b"x" * 300_000), "300000 bytes"),
        (replace(OPEN, state=StateRef(0, b"", ())), "before any state"),
        (replace(VOTERS, state=replace(STATE, credits=CREDITS)), "credits"),
        (replace(COMMIT, state=replace(COMMIT.state, earlier=(0,))), "1 words on what was before 2 credits"),
        (replace(VOTERS, state=replace(STATE, credits=((ClusterId("b"), 4), (ClusterId("a"), 4)))), "credits"),
        (replace(COMMIT, holders=()), "holders"),
        (replace(ABORT, holders=(A,)), "holders"),
        (replace(COMMIT, camps=APART.camps), "camps"),
        (replace(ABORT, camps=APART.camps[:1]), "camps"),
    ],
)
def test_values_that_cannot_be(value: Value, why: str) -> None:
    assert why in (fault(value) or "")


@pytest.mark.parametrize("field", [b"\x93\x01\x02\x03", msgspec.msgpack.encode([9, LINEAGE]), b"\xc1", b""])
def test_garbage_does_not_decode(field: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(field, type=Value)


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
