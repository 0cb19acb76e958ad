"""Who keeps its vote, and who is replaced, as voters die."""

from __future__ import annotations

from ictp2p.sync.agreement.quorum_watch import QuorumLost
from ictp2p.sync.rounds.notices import (
    RoundCommitted,
    RoundPassed,
    StateStale,
)
from ictp2p.sync.values import Voters, genesis
from tests.sync.rounds.rounds_mesh import (
    A0,
    A1,
    B0,
    B1,
    C0,
    C1,
    LINEAGE,
    Mesh,
    mesh,
    peer,
)


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
