"""Which verdicts count: those of the attempt in question, the first of each, from whom it binds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.sync.messages import Failed, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.ballot_box import BallotBox
from ictp2p.sync.rounds.machine import ClusterView, Contribution
from ictp2p.sync.rounds.notices import (
    RoundOpened,
)
from ictp2p.sync.rounds.participant import Part
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Open, Participant, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, FIRST, LINEAGE, SYNC


def box_and_sight(suspect: bool) -> tuple[BallotBox, Sight, Open]:
    sight = Sight(B0, 1.0, 0.0)
    sight.update({ClusterId("a"): ClusterView(A0, 1, True, suspect, True, (A0,))}, 0.0)
    parts = (Participant(ClusterId("a"), A0, 1, 1.0), Participant(ClusterId("b"), B0, 1, 1.0))
    opened = Open(LINEAGE, (A0, B0), StateRef(1, FIRST, ()), A0, 3, 2, SYNC, parts, b"plan", "", 30.0)
    return BallotBox(), sight, opened


def test_a_doubt_from_an_earlier_time_in_office_does_not_end_an_attempt_at_once() -> None:
    box, sight, opened = box_and_sight(suspect=True)
    profile = RoundProfile.local()
    assert box.count(opened, sight, profile, 0.0, 0.0, 0.1).committed is None
    assert box.count(opened, sight, profile, 0.0, 5.0, 5.1).committed is None
    assert box.count(opened, sight, profile, 0.0, 5.0, 5.0 + profile.suspect_grace).committed is False


def test_the_newest_attempts_first_verdict_counts() -> None:
    box, sight, opened = box_and_sight(suspect=False)
    box.put(A0, Vote(0, 3, 2, b"this"))
    box.put(A0, Vote(0, 3, 1, b"older"))
    box.put(A0, Failed(0, 3, 2, "second thoughts", (), True))
    assert box.on(opened) == {A0: Vote(0, 3, 2, b"this")}
    assert "1 of 2 voted" in box.count(opened, sight, RoundProfile.local(), 0.0, 0.0, 1.0).reason


def test_a_vote_on_an_earlier_attempt_does_not_count() -> None:
    box, sight, opened = box_and_sight(suspect=False)
    for who in (A0, B0):
        box.put(who, Vote(0, 3, 1, b"this"))
    assert box.on(opened) == {}
    assert box.count(opened, sight, RoundProfile.local(), 0.0, 0.0, 1.0).committed is None


def test_digests_that_differ_end_an_attempt_once_one_is_that_of_most_or_nobody_else_may_vote() -> None:
    """Of the first two votes nobody can tell which is wrong."""
    box, sight, two = box_and_sight(suspect=False)
    opened = replace(two, participants=(*two.participants, Participant(ClusterId("c"), C0, 1, 1.0)))
    profile = RoundProfile.local()
    box.put(A0, Vote(0, 3, 2, b"this"))
    box.put(B0, Vote(0, 3, 2, b"that"))
    waits = box.count(opened, sight, profile, 0.0, 0.0, 0.1)
    assert (waits.committed, waits.camps) == (None, ())
    assert "digests differ, waiting until the soft deadline for c" in waits.reason
    assert waits.wake == profile.soft_deadline
    over = box.count(opened, sight, profile, 0.0, 0.0, profile.soft_deadline)
    assert (over.committed, over.camps) == (False, (("a",), ("b",)))
    box.put(C0, Vote(0, 3, 2, b"that"))
    settled = box.count(opened, sight, profile, 0.0, 0.0, 0.1)
    assert (settled.committed, settled.camps) == (False, (("b", "c"), ("a",)))
    assert box_and_sight(suspect=False)[0].count(two, sight, profile, 0.0, 0.0, 0.1).camps == ()


def test_of_two_that_differ_nobody_else_is_waited_for() -> None:
    box, sight, opened = box_and_sight(suspect=False)
    box.put(A0, Vote(0, 3, 2, b"this"))
    box.put(B0, Vote(0, 3, 2, b"that"))
    assert box.count(opened, sight, RoundProfile.local(), 0.0, 0.0, 0.1).camps == (("a",), ("b",))


def test_an_attempt_of_another_term_is_not_served() -> None:
    part = Part(A0, lambda plan, participants: None)
    part.stand(Contribution(ClusterId("a"), A0, 2, 1.0, SYNC, StateRef(1, FIRST, ())), None)
    opened = box_and_sight(suspect=False)[2]
    assert not any(isinstance(notice, RoundOpened) for notice in part.decided(opened))
    assert part.progress.startswith("failed (ready as a in term 2")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 4)), max_size=60))
def test_nothing_is_kept_of_attempts_before_the_present_one_and_nothing_that_counts_is_lost(
    said: list[tuple[int, int, int]],
) -> None:
    """A leader that never comes back voted once: its vote would be kept for as long as this peer lives."""
    kept, whole = BallotBox(), BallotBox()
    _, sight, opened = box_and_sight(suspect=False)
    profile = RoundProfile.local()
    for time, (number, round, attempt) in enumerate(said):
        voter = (A0, B0, *(PeerId(f"gone{n}") for n in range(29)))[number]
        for box in (kept, whole):
            box.put(voter, Vote(0, round, attempt, b"this"))
        present = replace(opened, round=max(r for _, r, _ in said[: time + 1]), attempt=1)
        kept.count(present, sight, profile, 0.0, 0.0, 0.0)
        assert all(verdict.round >= present.round for verdict in kept.verdicts.values())
        assert kept.on(present) == whole.on(present)
