"""Rounds of whole meshes: what users will see happen."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import pytest
from msgspec import structs

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.sync.agreement import Decided, QuorumLost
from ictp2p.sync.ballot_box import BallotBox
from ictp2p.sync.messages import Failed, Ready, Vote
from ictp2p.sync.notices import (
    Released,
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
    StateAdvanced,
    StateStale,
)
from ictp2p.sync.participant import Part
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds import ClusterView, Contribution, PlanAnswer
from ictp2p.sync.sight import Sight
from ictp2p.sync.values import Close, Grouping, Open, Participant, Spec, StateRef, Voters, genesis
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds_mesh import A0, A1, B0, B1, BARRIER, C0, C1, CALL, DELAY, FIRST, LINEAGE, SYNC, Mesh, mesh, peer


def test_a_mesh_of_one_peer_commits_by_itself() -> None:
    m = mesh(A=1)
    m.ready("A")
    m.run(0.01)
    assert [type(n) for n in m.notices[A0] if not isinstance(n, Decided)] == [
        StateAdvanced,
        RoundOpened,
        RoundCommitted,
        StateAdvanced,
    ]
    assert m.value(A0).state == StateRef(2, b"digest 1", (A0,), ((ClusterId("A"), 2),))


def test_voters_grow_from_the_founder_to_every_cluster() -> None:
    m = mesh(A=2, B=2, C=2)
    for who in m.rounds:
        assert set(m.value(who).voters) == {A0, A1, B0, B1, C0, C1}
    assert m.value(A0).voters[0] == A0
    assert set(m.value(A0).voters[:3]) == {A0, B0, C0}


def test_voters_are_at_most_seven_and_evenly_spread() -> None:
    m = mesh(A=4, B=4, C=4)
    voters = m.value(A0).voters
    assert len(voters) == 7
    assert sorted(sum(v in {peer(c, w) for w in range(4)} for v in voters) for c in "ABC") == [2, 2, 3]


def test_a_round_costs_two_round_trips_once_everybody_is_ready() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    start = m.now
    m.ready("B")
    m.ready("C")
    m.run(2 * DELAY)
    m.ready("A")
    asked = m.now
    while len(m.told(A0, RoundCommitted)) < 2 and m.now < asked + 1:
        m.run(DELAY)
    assert m.now - asked <= 6 * DELAY + 1e-9  # three round trips: OPEN, its news and the vote, CLOSE
    assert m.now - start < 0.1


def test_every_participant_applies_the_same_committed_state() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.one_round()
    for who in (A0, B0, C0):
        commits = m.told(who, RoundCommitted)
        assert [c.close.digest for c in commits] == [b"digest 1", b"digest 2"]  # type: ignore[attr-defined]
        assert all(c.holding for c in commits)  # type: ignore[attr-defined]
    for who in m.rounds:
        assert m.value(who).state.version == 3
        assert m.value(who).state.digest == b"digest 2"
    assert not m.told(A1, RoundOpened)


def test_the_peer_that_coordinates_votes_and_takes_part_dies_in_mid_round() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.1)
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
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.1)
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
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.1)
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
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.1)
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
    m = mesh(A=2, B=2)
    m.one_round()
    m.silent = {A0, B0}
    m.everybody_ready()
    m.run(0.1)
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


def test_a_cluster_that_drains_is_let_go() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.training["A"] = False
    m.view()
    for who in (A0, A1):
        m.do(who, m.rounds[who].drop_out(m.now))
    m.run(0.5)
    assert m.told(A0, Released) == [Released(False)]
    assert m.told(A1, Released) == [Released(False)]
    assert set(m.value(B0).voters) == {B0, B1, C0, C1}
    m.kill(A0)
    m.kill(A1)
    m.failed = {"A"}
    m.view()
    m.one_round()
    assert m.value(B0).state.digest == b"digest 2"


def test_a_joiner_learns_the_tip_by_greeting_and_takes_part_in_the_next_round() -> None:
    m = Mesh({"A": 2, "B": 2, "C": 1})
    m.kill(C0)
    m.failed = {"C"}
    m.found(A0)
    m.one_round()
    assert m.value(B0).state.version == 2
    m.boot(C0)
    m.do(C0, m.rounds[C0].greet(B0, m.now))
    m.run(0.1)
    assert m.value(C0).state.digest == b"digest 1"
    assert len(m.told(C0, StateAdvanced)) == 1
    m.failed = set()
    m.view()
    m.one_round()
    assert len(m.told(A0, RoundCommitted)[-1].open.participants) == 3  # type: ignore[attr-defined]
    assert C0 in m.value(A0).voters


def test_a_stale_contribution_is_named_and_does_not_hold_up_the_others() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.bases["B"] = b"something else"
    m.ready("B")
    assert m.told(B0, StateStale)[-1] == StateStale(m.value(B0).state)
    m.training["B"] = False
    m.view()
    m.ready("A")
    m.run(0.1)
    assert len(m.told(A0, RoundCommitted)) == 2


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


def test_different_specs_reject_the_minority_and_name_both() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    other = Spec("sync", "diloco", "float32", 11, "avg", "none")
    m.ready("A", other)
    m.ready("B")
    m.ready("C")
    m.run(0.5)
    reason = m.told(A0, SpecRejected)[0].reason  # type: ignore[attr-defined]
    assert "elements=11" in reason
    assert "elements=10" in reason
    assert len(m.told(B0, RoundCommitted)) == 2
    assert len(m.told(B0, RoundCommitted)[-1].open.participants) == 2  # type: ignore[attr-defined]


def test_different_digests_abort_and_the_odd_one_out_is_barred_in_the_end() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {C0}
    m.everybody_ready()
    for _ in range(400):
        m.run(0.01)
        value = m.value(C0)
        if isinstance(value, Open):
            m.do(C0, m.rounds[C0].completed(value.round, value.attempt, b"flipped", m.now))
    aborts = m.told(A0, RoundAborted)
    assert len(aborts) == m.profile.tolerance
    assert "digests differ" in aborts[0].close.reason  # type: ignore[attr-defined]
    assert m.value(A0).state.digest == b"digest 2"


def test_a_cluster_that_always_fails_does_not_stop_the_others() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.everybody_ready()
    m.silent = {A0, C0}
    for _ in range(600):
        m.run(0.01)
        for who in (A0, C0):
            value = m.value(who)
            if isinstance(value, Open) and B0 in [p.leader for p in value.participants]:
                m.do(who, m.rounds[who].failed(value.round, value.attempt, "stall", (B0,), m.now))
            elif isinstance(value, Open):
                m.do(who, m.rounds[who].completed(value.round, value.attempt, b"digest 2", m.now))
    assert m.value(A0).state.digest == b"digest 2"
    assert [p.cluster for p in m.told(A0, RoundCommitted)[-1].open.participants] == ["A", "C"]  # type: ignore[attr-defined]
    assert m.plans[-1].failures == ((A0, B0), (C0, B0))


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
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(8.0)
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
    m = mesh(A=2, B=2)
    m.one_round()
    m.silent = {A0, B0}
    m.everybody_ready()
    m.run(0.3)
    m.silent = set()
    m.boot(B0)
    m.view(B0)
    m.run(0.4)
    m.run(1.0)
    reasons = [n.close.reason for n in m.told(A0, RoundAborted) if n.close]  # type: ignore[attr-defined]
    assert reasons == ["failed at B: not ready"]


def test_a_withdrawal_in_mid_round_ends_the_attempt() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.silent = {A0, B0}
    m.everybody_ready()
    m.run(0.1)
    m.do(B0, m.rounds[B0].withdraw(m.now))
    m.silent = set()
    m.training["B"] = False
    m.view()
    m.run(0.1)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("grouping", "given_up"), [("all", True), ("pairs", False), ("modules", False)])
def test_a_slow_attempt_is_given_up_for_another_plan_where_all_average_all(grouping: Grouping, given_up: bool) -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.answer = PlanAnswer(b"plan", "better", 1.0, running=1000.0)
    for cluster in m.clusters:
        m.ready(cluster, structs.replace(SYNC, grouping=grouping))
    m.run(m.profile.replan + 1.0)
    aborted = [notice.close.reason for notice in m.told(A0, RoundAborted)]  # type: ignore[attr-defined]
    assert any(reason.startswith("another plan would take 1 s") for reason in aborted) == given_up


def test_a_plan_that_a_participant_refuses_is_aborted_with_its_reason() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.rounds[B0]._part._validate = lambda plan, participants: "edge 3 is missing"
    m.silent = {A0}
    m.everybody_ready()
    m.run(0.1)
    assert "B: plan refused: edge 3 is missing" in m.told(A0, RoundAborted)[0].close.reason  # type: ignore[attr-defined]


def test_rounds_that_are_not_syncs_leave_the_state_alone() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    for cluster in "AB":
        m.ready(cluster, BARRIER)
    m.run(0.1)
    assert len(m.told(B0, RoundCommitted)) == 2
    assert m.value(B0).state == StateRef(2, b"digest 1", (A0, B0), ((ClusterId("A"), 2), (ClusterId("B"), 2)))


def test_an_offered_state_is_adopted_before_anybody_is_ready() -> None:
    m = mesh(A=1, B=1)
    m.do(B0, m.rounds[B0].offer(b"offered", m.now))
    m.run(0.1)
    assert m.value(A0).state == StateRef(1, b"offered", (B0,))
    assert m.told(A0, StateAdvanced) == [StateAdvanced(StateRef(1, b"offered", (B0,)))]


def test_a_dropped_message_costs_one_retry() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.drop = {(B0, A0)}
    m.everybody_ready()
    m.run(0.1)
    m.drop = set()
    m.run(2 * m.profile.retry)
    assert len(m.told(B0, RoundCommitted)) == 2


def test_what_cannot_be_is_refused() -> None:
    m = mesh(A=1)
    with pytest.raises(LocalProtocolError, match="weight nan"):
        m.ready("A", weight=float("nan"))
    with pytest.raises(LocalProtocolError, match="for leader"):
        m.rounds[A0].ready(Contribution(ClusterId("A"), B0, 1, 1.0, SYNC, None), m.now)
    with pytest.raises(LocalProtocolError, match="0 bytes"):
        m.rounds[A0].completed(1, 1, b"", m.now)
    ready = Ready(0, 1, ClusterId("B"), 1, float("inf"), SYNC, None, b"")
    with pytest.raises(RemoteProtocolError, match="weight inf"):
        m.rounds[A0].receive(B0, ready, m.now)


def test_explain_names_what_is_waited_for() -> None:
    m = Mesh({"A": 1, "B": 1})
    assert "no chain is known" in m.rounds[B0].explain()
    m.found(A0)
    m.one_round()
    assert "nobody is READY for round 2; expecting A, B" in m.rounds[A0].explain()
    m.silent = {B0}
    m.everybody_ready()
    m.run(0.1)
    assert "round 2 attempt 1: reducing" in m.rounds[B0].explain()
    assert "1 of 2 voted, waiting for B" in m.rounds[A0].explain()


def test_votes_given_to_a_coordinator_that_dies_reach_the_next_one_at_once() -> None:
    m = mesh(A=2, B=2, C=2)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.01)
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
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {A0, B0, C0}
    m.everybody_ready()
    m.run(0.01)
    m.do(A0, m.rounds[A0].failed(2, 1, "stall", (C0,), m.now))
    m.silent = set()
    m.run(15 * DELAY)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.attempt, len(commit.open.participants)) == (2, 3)


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


def test_a_stale_ready_on_the_wire_is_neither_used_nor_waited_for() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    stale = Ready(m.rounds[A0].agreement.slot, 2, ClusterId("B"), 1, 1.0, SYNC, StateRef(0, FIRST, ()), b"")
    m.do(A0, m.rounds[A0].receive(B0, stale, m.now))
    m.ready("A")
    m.run(15 * DELAY)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.round, [p.cluster for p in commit.open.participants]) == (2, ["A"])


def test_a_ready_of_an_earlier_round_that_arrives_late_opens_nothing() -> None:
    m = mesh(A=1, B=1)
    for cluster in "AB":
        m.ready(cluster, BARRIER)
    m.run(0.1)
    late = next(message for _, to, message in m.sent if to == A0 and isinstance(message, Ready))
    m.do(A0, m.rounds[A0].receive(B0, late, m.now))
    m.ready("A", BARRIER)
    m.run(0.5)
    assert len(m.told(B0, RoundOpened)) == 1
    assert not m.told(A0, RoundAborted)


def box_and_sight(suspect: bool) -> tuple[BallotBox, Sight, Open]:
    sight = Sight(B0, 1.0)
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


def test_an_attempt_of_another_term_is_not_served() -> None:
    part = Part(A0, lambda plan, participants: None)
    part.stand(Contribution(ClusterId("a"), A0, 2, 1.0, SYNC, StateRef(1, FIRST, ())), None)
    opened = box_and_sight(suspect=False)[2]
    assert not any(isinstance(notice, RoundOpened) for notice in part.decided(opened))
    assert part.progress.startswith("failed (ready as a in term 2")


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


MOST = structs.replace(SYNC, quorum=0.6, spread=3.0)


def quorum_mesh() -> Mesh:
    """Five clusters that have come 0, 0, 1, 2 and 3 s after one another in two rounds: the median deviation is 1 s."""
    m = mesh(A=1, B=1, C=1, D=1, E=1)
    for _ in range(2):
        for cluster, wait in zip("ABCDE", (0.0, 1.0, 1.0, 1.0, 0.2), strict=True):
            m.ready(cluster, MOST)
            m.run(wait)
        m.bases = dict.fromkeys(m.clusters, m.value(A0).state.digest)
    assert len(m.told(A0, RoundCommitted)) == 2
    return m


def test_a_round_with_its_quorum_waits_for_the_others_as_the_arrivals_scatter() -> None:
    m = quorum_mesh()
    for cluster in "ABC":
        m.ready(cluster, MOST)
    m.run(2.9)  # the median comes at 0, and three deviations are 3 s
    assert len(m.told(A0, RoundCommitted)) == 2
    m.run(0.3)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]  # type: ignore[attr-defined]
    assert m.profile.straggler_floor > 3.2


def test_who_comes_within_the_scatter_is_in() -> None:
    m = quorum_mesh()
    for cluster in "ABC":
        m.ready(cluster, MOST)
    m.run(2.0)
    m.ready("D", MOST)
    m.run(1.2)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C", "D"]  # type: ignore[attr-defined]


def test_without_its_quorum_a_round_is_opened_at_the_straggler_timeout_and_no_sooner() -> None:
    m = quorum_mesh()
    m.ready("A", MOST)
    m.ready("B", MOST)
    m.run(m.profile.straggler_floor - 0.1)
    assert len(m.told(A0, RoundCommitted)) == 2
    m.run(10.0)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B"]  # type: ignore[attr-defined]


def test_who_asks_for_all_waits_for_all() -> None:
    m = quorum_mesh()
    whole = structs.replace(MOST, quorum=1.0)
    for cluster in "ABCD":
        m.ready(cluster, whole)
    m.run(m.profile.straggler_floor - 0.1)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_a_coordinator_that_saw_no_arrivals_takes_the_straggler_timeout() -> None:
    m = quorum_mesh()
    m.kill(A0)
    m.failed.add("A")
    m.view()
    for cluster in "BCD":
        m.ready(cluster, MOST)
    m.run(5.0)
    assert len(m.told(B0, RoundCommitted)) == 2
    m.run(m.profile.straggler_floor + 1.0)
    assert len(m.told(B0, RoundCommitted)) == 3


def test_the_dead_are_no_part_of_a_quorum() -> None:
    m = quorum_mesh()
    m.failed.update("DE")
    m.kill(peer("D", 0))
    m.kill(peer("E", 0))
    m.view()
    for cluster in "AB":
        m.ready(cluster, MOST)
    m.run(3.2)  # two of three
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B"]  # type: ignore[attr-defined]


def test_where_one_is_enough_nobody_is_waited_for_but_a_moment() -> None:
    m = quorum_mesh()
    m.ready("B", structs.replace(SYNC, quorum=1e-9))
    m.run(m.profile.retry + 0.1)
    commit = m.told(B0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["B"]  # type: ignore[attr-defined]
