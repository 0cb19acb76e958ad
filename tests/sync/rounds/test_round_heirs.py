"""A round waits for the heir of a leader that died, as long as there may be one."""

from __future__ import annotations

import pytest

from ictp2p.sync.rounds.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
)
from ictp2p.sync.values import Spec
from ictp2p.types import PeerId
from tests.sync.rounds.rounds_mesh import (
    A0,
    B0,
    B1,
    C0,
    C1,
    CALL,
    SYNC,
    Mesh,
    in_second_round,
    mesh,
)


def test_a_cluster_whose_leader_died_is_in_the_next_attempt_by_its_heir() -> None:
    m = in_second_round(A=2, B=2, C=2)
    m.kill(C0)
    m.run(0.1)
    m.silent.clear()
    m.suspected = {"C"}
    m.view()
    for who in (A0, B0):
        m.do(who, m.rounds[who].failed(2, 1, "connection lost", (C0,), m.now))
    m.run(m.profile.suspect_grace / 2)
    assert "waiting for an heir in C" in m.rounds[A0].explain()
    m.suspected, m.terms["C"], m.leaders["C"] = set(), 2, C1
    m.view()
    m.ready("C")
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.round, commit.open.attempt) == (2, 2)
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]


def after_its_death(m: Mesh, cluster: str, leader: PeerId) -> None:
    """What the others believe of a cluster whose leader died: suspected, then dead, and nothing of an heir yet."""
    m.kill(leader)
    m.suspected = {cluster}
    m.view()
    m.run(2 * m.profile.suspect_grace)
    m.suspected, m.failed = set(), {cluster}
    m.view()
    m.run(m.profile.heir_grace / 2)


@pytest.mark.parametrize("before_ready", [True, False])
def test_a_call_waits_for_the_heir_of_a_leader_that_died(before_ready: bool) -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.ready("A", CALL)
    m.ready("B", CALL)
    if not before_ready:
        m.ready("C", CALL)
        m.run(0.1)
    m.silent.clear()
    after_its_death(m, "C", C0)
    m.failed, m.terms["C"], m.leaders["C"] = set(), 2, C1
    m.view()
    m.run(1.1 * m.profile.straggler(0.0))
    m.ready("C", CALL)
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.round, commit.open.attempt) == (2, 1 if before_ready else 2)
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]


@pytest.mark.parametrize(("spec", "refuted"), [(CALL, True), (CALL, False), (SYNC, False)])
def test_a_call_waits_for_who_is_suspected_until_that_is_over(spec: Spec, refuted: bool) -> None:
    """Regression: a leader that was suspected for 50 ms, when its connection to one other ended, missed its call."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.suspected = {"C"}
    m.view()
    m.ready("A", spec)
    m.ready("B", spec)
    m.run(m.profile.suspect_grace / 2)
    assert len(m.told(A0, RoundOpened)) == (1 if spec is CALL else 2)
    if refuted:
        m.suspected = set()
        m.view()
        m.ready("C", spec)
    m.run(m.profile.suspect_grace)
    opened = m.told(A0, RoundOpened)[-1]
    assert isinstance(opened, RoundOpened)
    assert [p.cluster for p in opened.open.participants] == (["A", "B", "C"] if refuted else ["A", "B"])


def test_a_suspicion_that_is_half_taken_back_is_one() -> None:
    """Regression: of a cluster and its leader the one was cleared first, and in between an attempt began without it."""
    m = in_second_round(A=1, B=1, C=1)
    m.silent.clear()
    m.suspected = {"C"}
    m.view()
    for who in (A0, B0):
        m.do(who, m.rounds[who].suspects({C0}, m.now))
        m.do(who, m.rounds[who].failed(2, 1, "connection lost", (C0,), m.now))
    m.run(m.profile.suspect_grace / 2)
    m.suspected = set()
    m.view()
    assert len(m.told(A0, RoundOpened)) == 2
    for who in (A0, B0):
        m.do(who, m.rounds[who].suspects(set(), m.now))
    m.ready("C")
    m.run(0.5)
    opened = m.told(A0, RoundOpened)[-1]
    assert isinstance(opened, RoundOpened)
    assert (opened.open.attempt, [p.cluster for p in opened.open.participants]) == (2, ["A", "B", "C"])


@pytest.mark.parametrize(("workers", "patient"), [(2, True), (1, False)])
def test_a_call_waits_for_an_heir_only_so_long_and_only_where_there_may_be_one(workers: int, patient: bool) -> None:
    m = mesh(A=2, B=2, C=workers)
    m.one_round()
    m.ready("A", CALL)
    m.ready("B", CALL)
    after_its_death(m, "C", C0)
    assert len(m.told(A0, RoundCommitted)) == (1 if patient else 2)
    m.run(m.profile.heir_grace)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.round, [p.cluster for p in commit.open.participants]) == (2, ["A", "B"])
    m.ready("A", CALL)
    m.ready("B", CALL)
    m.run(0.5)
    assert len(m.told(A0, RoundCommitted)) == 3, "the next round does not wait for who is long gone"


def test_a_new_leader_takes_the_old_ones_place_in_the_next_attempt() -> None:
    m = in_second_round(A=2, B=2)
    m.silent = set()
    m.leaders["B"], m.terms["B"] = B1, 2
    m.view()
    m.ready("B")
    m.run(1.0)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert [(p.leader, p.term) for p in commit.open.participants] == [(A0, 1), (B1, 2)]
    assert commit.open.attempt == 2
    assert any("term 2" in n.close.reason for n in m.told(A0, RoundAborted) if n.close)  # type: ignore[attr-defined]
