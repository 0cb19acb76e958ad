"""A vote is given to nobody who has not said that it is there, whatever others believe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ictp2p.sync.messages import Holding
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.values import Close, quorum
from tests.sync.rounds.rounds_mesh import A0, A1, B0, B1, C0, D0, FIRST, Mesh, in_second_round, mesh, peer

A2, E0, F0 = peer("A", 2), peer("E", 0), peer("F", 0)


def voters(m: Mesh) -> set[str]:
    return set(m.value(A0).voters)


def mesh_with_the_dead() -> Mesh:
    """C0 and D0 are in everybody's sight, as who was stopped for long brings old news of them."""
    m = Mesh(dict.fromkeys("ABCD", 1))
    del m.rounds[C0], m.rounds[D0]
    m.found(A0)
    return m


def test_who_does_not_answer_becomes_no_voter() -> None:
    """Regression: the dead that somebody believed in were most of the voters: nothing could be decided any more."""
    m = mesh_with_the_dead()
    m.run(10.0)
    assert voters(m) == {A0, B0}


def test_who_answers_later_votes_then() -> None:
    m = mesh_with_the_dead()
    m.run(10.0)
    m.boot(C0)
    m.do(C0, m.rounds[C0].greet(A0, m.now))
    m.view(C0)
    m.run(2 * m.profile.retry)
    assert voters(m) == {A0, B0, C0}


def test_an_answer_of_before_it_was_to_vote_does_not_count() -> None:
    """It may have died since."""
    m = Mesh(dict.fromkeys("ABC", 1), replace(RoundProfile.local(), max_voters=2))
    m.found(A0)
    assert voters(m) == {A0, B0}
    m.do(A0, m.rounds[A0].receive(C0, Holding(m.rounds[A0].agreement.slot, 1, FIRST), m.now))
    del m.rounds[C0]
    m.run(m.profile.retry)
    m.failed = {"B"}
    m.kill(B0)
    m.view()
    m.run(10.0)
    assert voters(m) == {A0}


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_who_answered_at_the_beginning_of_a_long_round_may_be_dead_at_its_end(late: float) -> None:
    """Regression: two of three heirs had died since with their disks, and those who were dropped for them were back."""
    m = in_second_round(A=3, B=1, C=1)
    before = voters(m)
    for voter in (A1, A2):
        m.kill(voter)
    m.view()
    m.run(2 * m.profile.retry)
    for heir in (B0, C0):
        m.kill(heir)
    m.run(late)
    m.do(A0, m.rounds[A0].failed(2, 1, "connection lost", (B0, C0), m.now))
    for voter in (A1, A2):
        m.boot(voter)
    m.run(1.0)
    assert isinstance(m.value(A0), Close)
    assert voters(m) == (before if late else {A0, B0, C0})


def test_all_who_are_there_vote_at_once() -> None:
    m = mesh(A=2, B=2)
    assert voters(m) == {A0, A1, B0, B1}


def test_what_waited_long_for_a_quorum_is_proposed_as_things_are_by_then() -> None:
    """Regression: an heir died while promises were missing, and voted all the same: nothing could be decided any more.

    Another one was dead all the time, which nobody knew.
    """
    m = Mesh(dict.fromkeys("ABCDEF", 1), replace(RoundProfile.local(), max_voters=4))
    m.found(A0)
    m.run(5.0)
    assert voters(m) == {A0, B0, C0, D0}
    for voter in (A0, C0, D0):
        m.kill(voter)
    m.failed = {"A", "C"}  # of D nobody knows
    m.view()
    m.run(m.profile.retry / 2)
    for heir in (E0, F0):
        m.kill(heir)
    m.run(10 * m.profile.retry)
    for voter in (A0, C0):
        m.boot(voter)
    m.run(2 * m.profile.retry)
    m.failed = set("DEF")
    m.view()
    m.run(10.0)
    assert quorum(m.value(B0).voters, {A0, B0, C0})
