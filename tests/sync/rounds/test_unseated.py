"""Attempts whose participant another has replaced as its cluster's leader: what ends them, how soon, and how often."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.machine import Effects
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.machine import ClusterView, Contribution
from ictp2p.sync.rounds.notices import ParticipantUnseated, RoundAborted, RoundCommitted
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Open, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, A1, B0, B1, C0, C1, DELAY, SYNC, Mesh, in_second_round

C = ClusterId("C")
PATIENT = replace(RoundProfile.local(), suspect_grace=1e6, hard_deadline=2e6, soft_deadline=1e6)
"""No doubt and no deadline ends an attempt: what does is what this is about."""


def succeed(m: Mesh) -> None:
    """C's other worker leads it, and all know."""
    m.leaders["C"], m.terms["C"] = C1, 2
    m.view()


def test_who_is_in_an_attempt_hears_once_that_another_leads_a_cluster_of_it() -> None:
    m = in_second_round(A=2, B=2, C=2)
    m.kill(C0)
    m.suspected = {"C"}
    m.view()
    assert not m.told(A0, ParticipantUnseated), "a suspicion is refuted more often than confirmed"
    m.suspected = set()
    succeed(m)
    m.suspected = {"B"}
    m.view()
    assert [m.told(who, ParticipantUnseated) for who in (A0, B0)] == [[ParticipantUnseated(C0)]] * 2
    assert not any(m.told(who, ParticipantUnseated) for who in (A1, B1, C1)), "they are in no attempt"
    assert isinstance(m.value(A0), Open), "it may be done without any more of it"


def test_of_each_attempt_that_is_told_anew() -> None:
    m = in_second_round(A=2, B=2, C=2)
    part, opened = m.rounds[B0]._part, m.value(B0)
    assert isinstance(opened, Open)
    succeed(m)
    part.decided(msgspec.structs.replace(opened, attempt=2))
    assert part.look(m.rounds[B0]._sight) == [ParticipantUnseated(C0)]
    assert part.look(m.rounds[B0]._sight) == []


def test_once_all_others_have_spoken_nobody_waits_for_whom_another_has_replaced() -> None:
    """Regression: of two clusters, over wide areas, the other waited for ten seconds after the suspicion."""
    m = in_second_round(A=2, C=2)
    m.kill(C0)
    m.silent.clear()
    m.do(A0, m.rounds[A0].completed(2, 1, b"digest 2", m.now))
    m.suspected = {"C"}
    m.view()
    m.run(m.profile.suspect_grace / 2)
    assert isinstance(m.value(A0), Open), "it may vote yet"
    m.suspected = set()
    succeed(m)
    m.ready("C")
    m.run(20 * DELAY)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert [(p.leader, p.term) for p in commit.open.participants] == [(A0, 1), (C1, 2)]
    assert (commit.open.round, commit.open.attempt) == (2, 2)


def test_whoever_else_has_not_spoken_is_waited_for_all_the_same() -> None:
    """Its bytes may all have come: then the others are done soon, and what they have is not thrown away."""
    m = in_second_round(A=2, B=2, C=2)
    m.kill(C0)
    succeed(m)
    m.do(A0, m.rounds[A0].completed(2, 1, b"digest 2", m.now))
    m.run(m.profile.suspect_grace / 2)
    assert isinstance(m.value(A0), Open)
    m.do(B0, m.rounds[B0].completed(2, 1, b"digest 2", m.now))
    m.run(20 * DELAY)
    commit = m.told(A0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert (commit.open.attempt, commit.close.holders) == (1, (A0, B0))


@given(st.integers(1, 3), st.sampled_from([C0, C1]), st.integers(1, 3), st.sampled_from([C0, C1]))
def test_a_leader_is_replaced_by_another_with_a_higher_claim_and_by_nothing_else(
    term: int, leader: PeerId, known: int, named: PeerId
) -> None:
    sight = Sight(A0, 1.0, 0.0)
    view = ClusterView(named, known, True, False, True, (C0, C1))
    sight.update({C: view}, 0.0)
    higher = named != leader and (known, named) > (term, leader)
    assert sight.unseated(C, leader, term) == higher
    if higher:
        assert sight.doubt(C, leader, term) is not None
    sight.update({C: replace(view, alive=False)}, 1.0)
    assert not sight.unseated(C, leader, term), "a cluster that died has no leader"
    own = Sight(leader, 1.0, 0.0)
    own.update({C: view}, 0.0)
    assert not own.unseated(C, leader, term), "who leads, for all that it knows, does not doubt itself"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 1)),
        st.tuples(st.just("tell"), st.integers(0, 1)),
        st.tuples(st.just("vote"), st.integers(0, 2)),
        st.tuples(st.just("run"), st.integers(1, 9)),
    ),
    max_size=40,
)


class Rivals:
    """Clusters A and C. C's two workers cannot hear each other, both lead, and claim when they like."""

    def __init__(self) -> None:
        self.m = in_second_round(A=2, C=2)
        self.m.rounds[A0]._coordinator._profile = PATIENT
        self.m.drop = {(C0, C1), (C1, C0)}
        self.m.silent = {A0, C0, C1}
        self.claim = (1, C0)
        self.news = 0
        """How often A0 heard of a higher claim than it knew."""
        self.heard = self.claim
        self.ended = 0
        """Attempts, since another leads than was bound."""

    def step(self, what: str, number: int) -> None:
        match what:
            case "claim":
                self.claim = (self.claim[0] + 1, (C0, C1)[number])
                self.tell(self.claim[1])
                self.stand(self.claim[1], "C", self.claim[0])
            case "tell":
                self.tell((A0, A1)[number])
            case "vote":
                self.vote((A0, C0, C1)[number])
            case "run":
                self.run(number * DELAY)

    def run(self, seconds: float) -> None:
        """Let time pass; whoever leads, for all that it knows, brings something to the next round."""
        self.m.run(seconds)
        for who, of, term in ((A0, "A", 1), (self.claim[1], "C", self.claim[0])):
            part = self.m.rounds[who]._part
            if part.bound is None and part.standing is None:
                self.stand(who, of, term)

    def tell(self, who: PeerId) -> None:
        """Show one of them the newest claim."""
        term, leader = self.claim
        if who == A0 and self.heard != self.claim:
            self.news, self.heard = self.news + 1, self.claim
        rest = {ClusterId("A"): ClusterView(A0, 1, True, False, True, (A0, A1))}
        rest[C] = ClusterView(leader, term, True, False, True, (C0, C1))
        self.do(who, self.m.rounds[who].view(rest, self.m.now))

    def stand(self, who: PeerId, of: str, term: int) -> None:
        state = self.m.value(who).state
        brought = Contribution(ClusterId(of), who, term, 1.0, SYNC, StateRef(state.version, state.digest, ()))
        self.do(who, self.m.rounds[who].ready(brought, self.m.now))

    def vote(self, who: PeerId) -> None:
        bound = self.m.rounds[who]._part.bound
        if bound is not None:
            digest = b"digest %d" % bound.round
            self.do(who, self.m.rounds[who].completed(bound.round, bound.attempt, digest, self.m.now))

    def do(self, who: PeerId, effects: Effects) -> None:
        self.m.do(who, effects)

    def check(self) -> None:
        """Each round has one result, for all, and each claim that is heard of ends one attempt at most."""
        results: dict[int, set[bytes]] = {}
        for who in self.m.rounds:
            for told in self.m.told(who, RoundCommitted):
                assert isinstance(told, RoundCommitted)
                results.setdefault(told.open.round, set()).add(told.close.digest)
        assert all(len(digests) == 1 for digests in results.values())
        closes = [told.close for told in self.m.told(A0, RoundAborted)]  # type: ignore[attr-defined]
        self.ended = sum("'s leader is" in close.reason for close in closes)
        assert self.ended <= self.news


@given(STEPS)
def test_two_leaders_side_by_side_end_no_more_attempts_than_they_make_claims(steps: list[tuple[str, int]]) -> None:
    """Whoever of them is heard of: the next attempt binds the higher claim, and nothing lower ends that."""
    rivals = Rivals()
    for what, number in steps:
        rivals.step(what, number)
        rivals.check()
    for who in (A0, A1):
        rivals.tell(who)
    before = len(rivals.m.told(A0, RoundCommitted))
    for _ in range(3):
        rivals.run(rivals.m.profile.pause_max + 30 * DELAY)
        for who in (A0, C0, C1):
            rivals.vote(who)
    rivals.run(30 * DELAY)
    rivals.check()
    assert len(rivals.m.told(A0, RoundCommitted)) > before, rivals.m.rounds[A0].explain()
