"""Which value may follow which, and which may not be at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ictp2p.sync.validity import fault, follows
from ictp2p.sync.values import (
    StateRef,
    Value,
    genesis,
)
from ictp2p.types import ClusterId
from tests.sync.decided import ABORT, APART, COMMIT, CREDITS, LINEAGE, OPEN, PARTS, STATE, VOTERS, A, B, C, peers


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
