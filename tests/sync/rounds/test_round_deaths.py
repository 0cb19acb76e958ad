"""Rounds of whole meshes whose peers die, fall silent, or start again: who goes on, with whom, and with which votes."""

from __future__ import annotations

import heapq
import random

import pytest
from msgspec.structs import replace

from ictp2p.sync.agreement.quorum_watch import QuorumLost
from ictp2p.sync.rounds.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    StateStale,
)
from ictp2p.sync.values import Close, Open, Spec, Voters, genesis
from ictp2p.types import PeerId
from tests.sync.rounds.rounds_mesh import (
    A0,
    A1,
    B0,
    B1,
    C0,
    C1,
    CALL,
    DELAY,
    FIRST,
    LINEAGE,
    SYNC,
    Mesh,
    in_second_round,
    mesh,
    peer,
)


def test_the_peer_that_coordinates_votes_and_takes_part_dies_in_mid_round() -> None:
    m = in_second_round(A=2, B=2, C=2)
    assert m.told(B0, RoundOpened)[-1].open.round == 2  # type: ignore[attr-defined]
    m.kill(A0)
    m.run(0.2)
    m.silent.clear()
    m.suspected = {"A"}
    m.view()
    started = m.now
    for who in (B0, C0):
        m.do(who, m.rounds[who].failed(2, 1, "connection lost", (A0,), m.now))
    m.run(m.profile.suspect_grace + 0.05)
    for who in (B0, C0):
        commit = m.told(who, RoundCommitted)[-1]
        assert isinstance(commit, RoundCommitted)
        assert (commit.open.round, commit.open.attempt) == (2, 2)
        assert [p.cluster for p in commit.open.participants] == ["B", "C"]
    assert m.now - started < m.profile.suspect_grace + 0.1
    m.suspected, m.terms["A"], m.leaders["A"] = set(), 2, A1
    m.view()
    m.run(1.0)
    assert A0 not in m.value(B0).voters
    assert len(m.value(B0).voters) == 5
    assert m.value(A1).state.digest == b"digest 2"


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


def test_the_workers_of_a_cluster_between_two_leaders_keep_their_votes() -> None:
    m = mesh(A=3, B=2)
    m.one_round()
    m.kill(A0)
    m.suspected = {"A"}
    m.view()
    m.run(0.6)
    m.suspected, m.failed = set(), {"A"}
    m.view()
    m.run(0.1)
    assert {A1, peer("A", 2), B1} <= set(m.value(B0).voters)
    m.kill(B0)
    m.failed, m.terms["A"], m.leaders["A"] = set(), 2, A1
    m.suspected = {"B"}
    m.view()
    m.run(0.6)
    m.ready("A")
    m.run(m.profile.straggler(0.0))
    commit = m.told(A1, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.round, [p.cluster for p in commit.open.participants]) == (2, ["A"])


def test_voters_of_a_cluster_without_an_heir_are_dropped_in_the_end() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.kill(C0)
    m.kill(C1)
    m.failed = {"C"}
    m.view()
    m.run(m.profile.voter_grace / 2)
    assert set(m.value(A0).voters) >= {A0, A1, B0, B1}
    m.run(m.profile.voter_grace)
    assert set(m.value(A0).voters) == {A0, A1, B0, B1}


def test_suspicion_alone_ends_an_attempt_that_nobody_reports_on() -> None:
    m = in_second_round(A=2, B=2, C=2)
    m.kill(C0)
    m.silent.clear()
    m.suspected = {"C"}
    m.view()
    m.run(2 * m.profile.suspect_grace + 0.1)
    assert [type(n) for n in m.notices[A0] if isinstance(n, RoundAborted | RoundCommitted)][-2:] == [
        RoundAborted,
        RoundCommitted,
    ]


def test_a_participant_that_died_after_everybody_had_the_result_does_not_undo_it() -> None:
    m = in_second_round(A=2, B=2, C=2)
    m.kill(A0)
    m.suspected = {"A"}
    m.view()
    for who in (B0, C0):
        m.do(who, m.rounds[who].completed(2, 1, b"digest 2", m.now))
    m.run(0.1)
    close = m.told(B0, RoundCommitted)[-1].close  # type: ignore[attr-defined]
    assert (close.round, close.attempt, close.holders) == (2, 1, (B0, C0))


@pytest.mark.parametrize("told", [(), ("B0",), ("C0",), ("B0", "C0")])
def test_a_coordinator_that_dies_after_deciding_to_open_leaves_a_round_that_ends(told: tuple[str, ...]) -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    deaf = {who for name, who in (("B0", B0), ("C0", C0)) if name not in told} | {A1, B1, C1}
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(3 * DELAY)
    m.queue = [item for item in m.queue if not (item[2] == A0 and item[3] in deaf and "Decision" in repr(item[4]))]
    heapq.heapify(m.queue)
    m.run(DELAY)
    m.kill(A0)
    m.silent.clear()
    m.suspected = {"A"}
    m.view()
    for who in (B0, C0):
        m.do(who, m.rounds[who].failed(2, 1, "lost", (A0,), m.now))
    m.run(1.0)
    for who in (B0, C0):
        assert m.value(who).state.digest == b"digest 2", m.rounds[who].explain()


def test_a_coordinator_that_tells_its_last_decision_to_one_only_is_not_contradicted() -> None:
    for survivor in (B0, C0, B1):
        m = mesh(A=2, B=2, C=2)
        m.one_round()
        m.everybody_ready()
        while not isinstance(m.value(A0), Close) or m.value(A0).round != 2:
            m.run(DELAY / 2)
        m.queue = [item for item in m.queue if item[2] != A0 or item[3] == survivor]
        heapq.heapify(m.queue)
        m.kill(A0)
        m.run(2 * DELAY)
        m.suspected = {"A"}
        m.view()
        m.run(1.0)
        for who in (A1, B0, B1, C0, C1):
            if who != A1:
                assert m.value(who).state.digest == b"digest 2"
        assert len({m.rounds[w].agreement.slot for w in (B0, C0, B1, C1)}) == 1
        assert [type(n) for n in m.notices[B0] if isinstance(n, RoundCommitted | RoundAborted)] == [RoundCommitted] * 2


@pytest.mark.parametrize("victim", ["A0", "A1", "B0", "B1"])
def test_two_clusters_of_two_survive_any_one_death(victim: str) -> None:
    m = mesh(A=2, B=2)
    m.one_round()
    cluster, who = victim[0], peer(victim[0], int(victim[1]))
    m.kill(who)
    if who == m.leaders[cluster]:
        m.suspected = {cluster}
        m.view()
        m.run(0.5)
        m.suspected = set()
        m.leaders[cluster], m.terms[cluster] = peer(cluster, 1), 2
    m.view()
    m.run(0.5)
    m.one_round()
    for leader in m.leaders.values():
        commits = m.told(leader, RoundCommitted)
        assert commits, m.rounds[leader].explain()
        assert len(commits[-1].open.participants) == 2  # type: ignore[attr-defined]
        assert who not in m.value(leader).voters
        assert len(m.value(leader).voters) == 3


def test_voters_that_die_one_after_the_other_are_dropped_while_a_quorum_lives() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    for cluster in "CB":
        for worker in (1, 0):
            m.kill(peer(cluster, worker))
            if worker == 0:
                m.failed.add(cluster)
            m.view()
            m.run(0.5)
    assert m.value(A0).voters == (A0, A1)
    m.one_round()
    assert m.value(A0).state.version == 3


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


def test_rounds_go_on_while_suspicion_flaps() -> None:
    m = mesh(A=2, B=2, C=2)
    rng = random.Random(5)
    for _ in range(400):
        m.suspected = {c for c in "ABC" if rng.random() < 0.2}
        for who in sorted(m.rounds):
            if rng.random() < 0.5:
                m.view(who)
        for c in "ABC":
            who = m.leaders[c]
            state = m.value(who).state
            m.bases[c] = state.digest or FIRST
            if m.rounds[who]._part.standing is None and m.rounds[who]._part.bound is None:
                m.ready(c)
        m.run(0.05)
    assert m.value(A0).state.version > 20


def test_a_minority_waits_says_so_and_applies_nothing() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.drop = {(a, b) for a in (A0, A1) for b in (B0, B1, C0, C1)} | {(b, a) for a in (A0, A1) for b in (B0, B1, C0, C1)}
    for who in (A0, A1):
        m.suspected = {"B", "C"}
        m.view(who)
    for who in (B0, B1, C0, C1):
        m.suspected = {"A"}
        m.view(who)
    m.suspected = set()
    m.everybody_ready()
    m.run(6.0)
    assert len(m.told(A0, RoundCommitted)) == 1
    assert m.told(A0, QuorumLost)
    assert "no quorum" in m.rounds[A0].explain()
    assert m.value(B0).state.digest == b"digest 2"
    m.drop = set()
    m.view()
    m.run(6.0)
    assert m.value(A0).state.digest == b"digest 2"
    assert m.told(A0, RoundPassed) or m.told(A0, StateStale)


def test_a_process_that_restarts_in_mid_round_says_that_it_cannot_finish_it() -> None:
    m = in_second_round(0.3, A=2, B=2)
    m.silent = set()
    m.boot(B0)
    m.view(B0)
    m.run(0.4)
    m.run(1.0)
    reasons = [n.close.reason for n in m.told(A0, RoundAborted) if n.close]  # type: ignore[attr-defined]
    assert reasons == ["failed at B: not ready"]


def test_votes_given_to_a_coordinator_that_dies_reach_the_next_one_at_once() -> None:
    m = in_second_round(0.01, A=2, B=2, C=2)
    m.kill(A0)
    for who in (B0, C0):
        m.do(who, m.rounds[who].completed(2, 1, b"digest 2", m.now))
    m.run(0.01)
    m.suspected = {"A"}
    m.view()
    m.run(10 * DELAY)
    assert m.value(B0).state.digest == b"digest 2"


def test_an_accused_participant_is_not_retried_before_it_shows_that_it_lives() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0}
    m.everybody_ready()
    m.kill(C0)
    m.run(0.01)
    for who in (A0, B0):
        m.do(who, m.rounds[who].failed(2, 1, "connection lost", (C0,), m.now))
    m.run(0.1)
    assert "waiting for READY of C" in m.rounds[A0].explain()
    m.silent = set()
    m.suspected = {"C"}
    m.view()
    m.run(m.profile.suspect_grace + 10 * DELAY)
    assert len(m.told(A0, RoundAborted)) == 1
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.attempt, [p.cluster for p in commit.open.participants]) == (2, ["A", "B"])


def test_an_accused_participant_that_lives_is_in_the_next_attempt() -> None:
    m = in_second_round(0.01, A=1, B=1, C=1)
    m.do(A0, m.rounds[A0].failed(2, 1, "stall", (C0,), m.now))
    m.silent = set()
    m.run(15 * DELAY)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.attempt, len(commit.open.participants)) == (2, 3)


def test_a_voter_that_no_view_ever_named_is_replaced_after_a_while() -> None:
    m = Mesh({"A": 1, "B": 1})
    m.do(A0, m.rounds[A0].bootstrap(genesis(LINEAGE, A0), m.now))
    tip = m.value(A0)
    m.do(A0, m.rounds[A0].agreement.propose(Voters(LINEAGE, (A0, C0), tip.state, A0), m.now))
    m.view()
    m.run(m.profile.voter_grace / 2)
    assert C0 in m.value(A0).voters
    m.run(m.profile.voter_grace)
    assert m.value(A0).voters == (A0, B0)


def test_what_failed_in_a_round_that_is_long_over_keeps_nobody_waiting() -> None:
    """Regression: who missed its end, and coordinates later, waited for the clusters of that attempt alone."""
    m = mesh(A=1, B=1, C=1, D=1)
    m.one_round()
    book, tip = m.rounds[B0]._coordinator, m.value(A0)
    opened = next(n.open for n in m.told(A0, RoundOpened))  # type: ignore[attr-defined]
    failed = replace(opened, round=2, participants=opened.participants[:2])
    book.decided(failed, m.now)
    book.decided(replace(tip, round=2, committed=False, digest=b"", holders=()), m.now)
    assert book.next_value(replace(tip, round=2, committed=False), m.now).reason.endswith("expecting A, B")
    much_later = Voters(tip.lineage, tip.voters, tip.state, A0, 40)
    book.decided(much_later, m.now)
    assert book.next_value(much_later, m.now).reason.endswith("expecting A, B, C, D")


def test_who_is_back_while_its_former_life_is_in_a_round_waits_for_what_becomes_of_that() -> None:
    """Regression: it trained a phase from the state before, of which it then seemed to be a part already."""
    m = in_second_round(A=1, B=1, C=1)
    m.drop = {(C0, A0)}  # it has nothing to say of that round, as far as the coordinator knows
    m.boot(C0)
    m.view()
    for other in (A0, B0):
        m.do(other, m.rounds[other].greet(C0, m.now))
    m.run(0.5)
    assert m.rounds[C0].agreement.informed
    assert isinstance(m.value(C0), Open)
    assert not m.rounds[C0].informed
    m.drop = set()
    soon = m.now + 60.0
    while isinstance(m.value(C0), Open):
        assert m.now < soon
        m.run(0.1)
    assert m.rounds[C0].informed
