"""Until when rounds wait: for who is not READY, for who has not voted, and between one attempt and the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
)
from ictp2p.sync.values import Spec
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, DELAY, SYNC, Mesh, in_second_round, mesh


def test_a_straggler_is_waited_for_and_then_no_longer() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.ready("A")
    m.run(m.profile.straggler_floor - 0.1)
    assert len(m.told(A0, RoundCommitted)) == 1
    assert "waiting for READY of B" in m.rounds[A0].explain()
    m.run(1.0)
    assert len(m.told(A0, RoundCommitted)) == 2
    m.bases["A"] = b"digest 2"
    assert m.value(B0).state.digest == b"digest 2"


@pytest.mark.parametrize(("late", "told"), [(0.5, ""), (2.5, "; B was ready last, 2.5 s after the first")])
def test_an_attempt_says_for_whom_the_others_stood(late: float, told: str) -> None:
    """Which cluster slows the training is in no other record of what was."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.ready("A")
    m.run(0.3)
    m.ready("C")
    m.run(late - 0.3)
    m.ready("B")
    m.run(0.5)
    *_, opened = m.told(A0, RoundOpened)
    assert isinstance(opened, RoundOpened)
    assert opened.open.reason == f"the only one{told}"


@pytest.mark.parametrize("spec", [CALL, SYNC])
def test_calls_wait_for_stragglers_as_long_at_least_as_a_way_around_a_cut_line_takes(spec: Spec) -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    patient = m.profile.straggler_floor * (2 if spec is CALL else 1)
    for machine in m.rounds.values():
        machine._coordinator._waiting._profile = replace(m.profile, detour=2 * m.profile.straggler_floor)
    m.ready("A", spec)
    m.run(patient - 0.1)
    assert len(m.told(A0, RoundCommitted)) == 1
    m.run(1.0)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_a_call_waits_a_while_for_who_has_just_ended_its_training() -> None:
    """Regression: a figure that was reduced after a policy was that of the cluster that came first."""
    m = mesh(A=1, B=1)
    m.one_round()
    m.training |= {"A": False, "B": False}
    m.view()
    m.ready("A", CALL)
    m.run(0.9 * m.profile.straggler_floor)
    m.ready("B", CALL)
    m.run(0.5)
    assert [p.cluster for p in m.told(A0, RoundCommitted)[-1].open.participants] == ["A", "B"]  # type: ignore[attr-defined]
    m.run(m.profile.straggler_floor)
    m.ready("A", CALL)
    m.run(0.1)
    assert [p.cluster for p in m.told(A0, RoundCommitted)[-1].open.participants] == ["A"], "B called no more"  # type: ignore[attr-defined]


def test_nor_does_it_wait_for_who_ended_its_training_and_does_not_call_for_longer() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.training |= {"A": False, "B": False}
    m.view()
    ended = m.now
    m.run(3.0)
    m.ready("A", CALL)
    m.run(m.profile.straggler_floor - 3.1)
    assert len(m.told(A0, RoundCommitted)) == 1
    assert m.rounds[A0].next_timeout() <= ended + m.profile.straggler_floor
    m.run(0.2)
    assert len(m.told(A0, RoundCommitted)) == 2


@pytest.mark.parametrize("spec", [SYNC, CALL])
def test_a_round_of_the_state_waits_for_nobody_who_has_ended_its_training(spec: Spec) -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.training["B"] = False
    m.view()
    m.ready("A", spec)
    m.run(0.5)
    assert len(m.told(A0, RoundCommitted)) == (2 if spec == SYNC else 1)


def test_nor_does_it_wait_because_somebody_else_calls() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.training |= {"A": False, "C": False}
    m.view()
    m.ready("A", CALL)
    m.ready("B")
    m.run(0.5)
    assert [p.cluster for p in m.told(B0, RoundCommitted)[-1].open.participants] == ["B"]  # type: ignore[attr-defined]


def test_a_call_stands_while_another_cluster_trains_and_has_no_part_in_that() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    for cluster in ("A", "C"):
        m.ready(cluster, CALL)
    for number in range(2, 5):
        m.ready("B")
        m.run(0.5)
        commits = m.told(B0, RoundCommitted)
        assert len(commits) == number
        assert [p.cluster for p in commits[-1].open.participants] == ["B"]  # type: ignore[attr-defined]
        m.bases["B"] = m.value(B0).state.digest
    assert len(m.told(A0, RoundCommitted)) == 1
    m.ready("B", CALL)
    m.run(0.5)
    assert [p.cluster for p in m.told(A0, RoundCommitted)[-1].open.participants] == ["A", "B", "C"]  # type: ignore[attr-defined]
    assert not m.told(A0, SpecRejected)


@pytest.mark.parametrize("name", ["local", "lan", "wan"])
def test_a_detour_takes_as_long_as_a_link_is_thought_to_be_heard_by_both_ends(name: str) -> None:
    links, rounds = getattr(LinkProfile, name)(), getattr(RoundProfile, name)()
    assert rounds.detour >= (links.hold + 1.0) * links.hello_interval + rounds.retry


def test_who_needs_longer_than_that_for_the_state_is_waited_for_as_long_but_not_without_end() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    needs = 20 * m.profile.straggler_floor
    assert needs < m.profile.fetch_grace
    for said, waited in ((needs, needs), (1e9, m.profile.fetch_grace), (0.0, m.profile.straggler_floor)):
        m.behind["B"] = said
        m.view()
        before = len(m.told(A0, RoundCommitted))
        m.ready("A")
        m.run(0.9 * waited)
        assert len(m.told(A0, RoundCommitted)) == before
        m.run(0.2 * waited)
        assert len(m.told(A0, RoundCommitted)) == before + 1
        m.bases["A"] = m.value(A0).state.digest


def test_one_that_is_ready_early_does_not_make_stragglers_of_the_others() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    usual = 6 * m.profile.straggler_floor
    m.run(usual)
    m.one_round()
    assert len(m.told(A0, RoundCommitted)) == 2

    m.ready("A")  # it missed a round, say, and stands READY at once with what it carried over
    m.run(2 * m.profile.straggler_floor)
    assert len(m.told(A0, RoundCommitted)) == 2
    m.ready("B")  # these are most
    m.run(m.profile.straggler_floor - 1.0)
    assert len(m.told(A0, RoundCommitted)) == 2
    m.ready("C")
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert (commit.open.round, len(commit.open.participants)) == (3, 3)

    m.bases["A"] = m.value(A0).state.digest
    m.ready("A")  # and now the others are late
    m.run(m.profile.straggler_floor * 1.1)
    assert len(m.told(A0, RoundCommitted)) == 3
    m.run(usual)
    assert len(m.told(A0, RoundCommitted)) == 4, "they are not waited for without end"


def test_a_contribution_that_came_too_late_is_told_so() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.ready("A")
    m.silent = {A0}
    m.run(m.profile.straggler_floor + 1.0)
    m.ready("B")
    m.run(0.1)
    m.do(A0, m.rounds[A0].completed(2, 1, b"digest 2", m.now))
    m.run(0.1)
    assert [n.round for n in m.told(B0, RoundPassed)] == [2]  # type: ignore[attr-defined]


def test_a_slow_voter_is_not_waited_for_past_the_soft_deadline() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {C0}
    m.everybody_ready()
    m.run(m.profile.soft_deadline - 0.5)
    assert len(m.told(A0, RoundCommitted)) == 1
    assert "waiting until the soft deadline for C" in m.rounds[A0].explain()
    m.run(1.0)
    commit = m.told(C0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert not commit.holding
    assert commit.close.holders == (A0, B0)


@pytest.mark.parametrize(("late", "waited"), [(0.0, 10.0), (4.0, 10.0), (8.0, 18.0), (16.0, 30.0), (29.0, 30.0)])
def test_the_rest_gets_a_share_of_what_the_majority_needed(late: float, waited: float) -> None:
    m = mesh(A=1, B=1, C=1)
    assert (m.profile.soft_deadline, m.profile.hard_deadline, m.profile.patience) == (10.0, 30.0, 1.25)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.05 + late)
    opened = m.told(A0, RoundOpened)[-1].open  # type: ignore[attr-defined]
    for who in (A0, B0):
        m.do(who, m.rounds[who].completed(opened.round, opened.attempt, b"digest 2", m.now))
    m.run(waited - late - 0.3)
    assert len(m.told(A0, RoundCommitted)) == 1, "C is still waited for"
    m.run(0.5)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_who_votes_within_that_share_is_in() -> None:
    m = in_second_round(8.0, A=1, B=1, C=1)
    opened = m.told(A0, RoundOpened)[-1].open  # type: ignore[attr-defined]
    for who in (A0, B0):
        m.do(who, m.rounds[who].completed(opened.round, opened.attempt, b"digest 2", m.now))
    m.run(7.9)
    m.do(C0, m.rounds[C0].completed(opened.round, opened.attempt, b"digest 2", m.now))
    m.run(0.1)
    commit = m.told(C0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert commit.holding


def test_an_attempt_without_a_majority_ends_at_the_hard_deadline() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {B0, C0}
    m.everybody_ready()
    m.run(m.profile.hard_deadline + 0.1)
    assert [n.close.reason for n in m.told(A0, RoundAborted)] == ["1 of 3 voted: the deadline"]  # type: ignore[attr-defined]


def test_a_straggler_that_was_not_waited_for_does_not_delay_the_retry() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.ready("A")
    m.ready("B")
    m.silent = {A0, B0}
    m.run(m.profile.straggler_floor + 1.0)
    m.do(A0, m.rounds[A0].failed(2, 1, "hiccup", (), m.now))
    m.silent = set()
    m.run(15 * DELAY)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_the_pause_between_attempts_grows_and_does_not_depend_on_the_patience_with_stragglers() -> None:
    patient = replace(RoundProfile.local(), straggler_floor=1000.0)
    m = Mesh({"A": 1, "B": 1}, patient)
    m.found(A0)
    m.one_round()
    m.breaks = {A0, B0}
    m.everybody_ready()
    m.run(20.0)
    opened = [n.open.attempt for n in m.told(A0, RoundOpened) if n.open.round == 2]  # type: ignore[attr-defined]
    assert opened == list(range(1, len(opened) + 1))
    assert 20.0 / patient.pause_max < len(opened) < 20
