"""Rounds of whole meshes whose peers die, fall silent, or start again in the middle: what becomes of the attempt."""

from __future__ import annotations

import heapq
import random

import pytest
from msgspec.structs import replace

from ictp2p.sync.messages import Failed
from ictp2p.sync.rounds.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
)
from ictp2p.sync.values import Close, Open, Voters
from tests.sync.rounds.rounds_mesh import (
    A0,
    A1,
    B0,
    B1,
    C0,
    C1,
    DELAY,
    FIRST,
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


@pytest.mark.parametrize(("later", "there"), [(0, False), (1, True)])
def test_who_stands_ready_again_before_the_coordinator_knows_of_the_end_has_shown_that_it_lives(
    later: int, there: bool
) -> None:
    """Regression: that READY was dropped with the ones before the end, and came again after `retry`."""
    m = in_second_round(A=1, B=1, C=1)
    book, slot = m.rounds[A0]._coordinator, m.rounds[A0].agreement.slot
    opened = m.value(A0)
    assert isinstance(opened, Open)
    book.verdict(A0, Failed(slot, 2, 1, "stall", (C0,), True))
    for who, ready in dict(book._readies._by_cluster.values()).items():
        book.ready(who, replace(ready, slot=slot + later if who == C0 else slot))
    close = Close(opened.lineage, opened.voters, opened.state, A0, 2, 1, False, b"", "stall", ())
    book.decided(slot + 1, close, m.now)
    assert ("C" in book._readies.of_round(2)) == there


def test_what_failed_in_a_round_that_is_long_over_keeps_nobody_waiting() -> None:
    """Regression: who missed its end, and coordinates later, waited for the clusters of that attempt alone."""
    m = mesh(A=1, B=1, C=1, D=1)
    m.one_round()
    book, tip = m.rounds[B0]._coordinator, m.value(A0)
    opened = next(n.open for n in m.told(A0, RoundOpened))  # type: ignore[attr-defined]
    failed = replace(opened, round=2, participants=opened.participants[:2])
    book.decided(4, failed, m.now)
    book.decided(5, replace(tip, round=2, committed=False, digest=b"", holders=()), m.now)
    assert book.next_value(replace(tip, round=2, committed=False), m.now).reason.endswith("expecting A, B")
    much_later = Voters(tip.lineage, tip.voters, tip.state, A0, 40)
    book.decided(99, much_later, m.now)
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
