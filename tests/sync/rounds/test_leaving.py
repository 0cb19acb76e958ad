"""Voters that leave for good: nobody may count on them, and nobody be left who cannot go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ictp2p.sync.messages import Decision, Excused, Holding
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.notices import Released
from ictp2p.types import PeerId
from tests.sync.rounds.rounds_mesh import A0, A1, B0, C0, D0, FIRST, Mesh, mesh, peer


def cut_off_after_its_answer(m: Mesh, heir: PeerId) -> None:
    """A0 asked whether that one lives, as somebody means to leave; the answer was the last that came through."""
    m.do(A0, m.rounds[A0].receive(heir, Holding(m.rounds[A0].agreement.slot, 1, FIRST), m.now))


def test_a_leaver_that_was_away_is_let_go_only_once_nobody_will_count_on_it_again() -> None:
    """Regression: it learnt that it had been dropped as a voter, went, and was made a voter at the same moment."""
    m = mesh(A=2, B=2, C=1)
    m.one_round()
    m.silent, m.failed = {C0}, {"C"}
    m.view()
    m.run(1.0)
    assert C0 not in m.value(A0).voters
    m.do(C0, m.rounds[C0].drop_out(m.now))
    assert not m.told(C0, Released)
    m.silent, m.failed = set(), set()
    m.view()
    m.run(2.0)
    assert m.told(C0, Released) == [Released(False)]
    assert C0 not in m.value(A0).voters


def test_a_leaver_stays_until_the_one_to_whom_it_left_the_vote_knows_it() -> None:
    """Regression: it went when that one was suspected. Both had been needed, and the one who stayed never learnt."""
    m = mesh(A=2)
    m.drop = {(A0, A1)}
    m.do(A0, m.rounds[A0].drop_out(m.now))
    cut_off_after_its_answer(m, A1)
    m.do(A0, m.rounds[A0].suspects({A1}, m.now))
    m.run(1.0)
    assert m.value(A0).voters == (A1,), "a half that has the first voter is a quorum"
    assert not m.told(A0, Released)
    m.drop = set()
    m.do(A0, m.rounds[A0].suspects(set(), m.now))
    m.run(2.0)
    assert m.value(A1).voters == (A1,)
    assert m.told(A0, Released) == [Released(False)]


@pytest.mark.parametrize("again", [False, True], ids=["one life", "started again"])
def test_a_leaver_that_decided_alone_stays_for_who_needs_its_vote_whatever_became_of_it(again: bool) -> None:
    """Regression: started again it had forgotten that it had voted, and went; the other, cut off, halted for good."""
    m = mesh(A=1, B=1)
    m.drop = {(A0, B0), (B0, A0)}
    m.do(A0, m.rounds[A0].drop_out(m.now))
    cut_off_after_its_answer(m, B0)
    m.run(2.0)
    assert m.value(A0).voters == (B0,), "a half that has the first voter is a quorum"
    m.failed = {"B"}
    m.view(A0)
    m.run(10.0)
    if again:
        m.boot(A0)
        m.view(A0)
        m.do(A0, m.rounds[A0].drop_out(m.now))
        m.run(10.0)
    assert not m.told(A0, Released)
    m.drop, m.failed = set(), set()
    m.view()
    soon = m.now + 60.0
    while not m.told(A0, Released):
        assert m.now < soon
        m.run(0.1)
    m.kill(A0)
    m.failed = {"A"}
    m.view(B0)
    m.run(10.0)
    assert m.value(B0).voters == (B0,)


def test_who_has_no_vote_may_go_when_all_who_have_are_gone_and_not_when_they_are_suspected() -> None:
    m = Mesh({"A": 2}, replace(RoundProfile.local(), max_voters=1))
    m.found(A0)
    assert m.value(A1).voters == (A0,)
    m.drop = {(A0, A1)}
    m.do(A1, m.rounds[A1].drop_out(m.now))
    m.do(A1, m.rounds[A1].suspects({A0}, m.now))
    m.run(1.0)
    assert not m.told(A1, Released)
    m.kill(A0)
    m.leaders["A"], m.terms["A"] = A1, 2
    m.view()
    m.run(1.0)
    assert m.told(A1, Released) == [Released(False)]


def test_the_only_voter_stays_until_another_votes() -> None:
    """Regression: it went at once, for all who voted meant to leave; the others had no quorum for good."""
    m = Mesh({"A": 1, "B": 1}, replace(RoundProfile.local(), max_voters=1))
    m.found(A0)
    assert m.value(B0).voters == (A0,)
    m.drop = {(A0, B0)}
    m.do(A0, m.rounds[A0].drop_out(m.now))
    m.run(1.0)
    assert not m.told(A0, Released)
    m.drop = set()
    m.run(1.0)
    assert m.told(A0, Released) == [Released(False)]
    assert m.value(B0).voters == (B0,)


def test_the_last_voter_waits_for_a_newcomer_that_no_view_names_yet() -> None:
    """Regression: until its cluster had a leader nobody counted on it. It found a mesh whose last voter had gone."""
    m = mesh(A=1)
    m.do(A0, m.rounds[A0].met({B0}, m.now))
    m.do(A0, m.rounds[A0].drop_out(m.now))
    m.run(5.0)
    assert not m.told(A0, Released)
    m.do(A0, m.rounds[A0].met(set(), m.now))  # it said goodbye, or its connection ended
    m.run(2.0)
    assert m.told(A0, Released) == [Released(True)]


def test_the_last_voter_waits_for_those_who_are_thought_dead() -> None:
    m = mesh(A=1, B=1)
    m.drop = {(A0, B0), (B0, A0)}
    m.failed = {"B"}
    m.view(A0)
    m.do(A0, m.rounds[A0].drop_out(m.now))
    m.run(3.0)
    assert not m.told(A0, Released)
    m.drop, m.failed = set(), set()
    m.view()
    m.run(3.0)
    assert m.told(A0, Released) == [Released(False)]
    assert m.value(B0).voters == (B0,)


_PEERS = {"A": 2, "B": 1, "C": 1}
_EVERYBODY = [peer(cluster, worker) for cluster, size in _PEERS.items() for worker in range(size)]


def say_goodbye(m: Mesh, who: PeerId) -> None:
    """`who` ends; all others hear of it."""
    m.kill(who)
    cluster = chr(int(who[:2], 16))
    rest = [peer(cluster, worker) for worker in range(m.clusters[cluster]) if peer(cluster, worker) not in m.dead]
    if not rest:
        del m.clusters[cluster]
    elif m.leaders[cluster] == who:
        m.leaders[cluster], m.terms[cluster] = rest[0], m.terms[cluster] + 1
    m.view()


@given(
    clusters=st.dictionaries(st.sampled_from("ABC"), st.integers(1, 2), min_size=1).map(lambda d: {"A": 1} | d),
    moments=st.lists(st.integers(0, 20), min_size=6, max_size=6),
    noticed=st.booleans(),
    training=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(clusters={"A": 2, "B": 2, "C": 2}, moments=[0] * 6, noticed=False, training=True, seed=0)
@settings(deadline=None)
def test_all_may_go_at_once(
    clusters: dict[str, int], moments: list[int], noticed: bool, training: bool, seed: int
) -> None:
    """Regression: the first voter went, and the others waited for its word in vain, and kept their disks."""
    m = Mesh(dict(clusters), seed=seed)
    m.found(A0)
    everybody = sorted(m.rounds)
    if training:  # they leave from the middle of a round
        m.silent = set(everybody)
        m.everybody_ready()
    when = dict(zip(everybody, moments, strict=False))
    for moment in range(1000):
        for who in [each for each in everybody if when[each] == moment]:
            m.do(who, m.rounds[who].drop_out(m.now))
        m.run(0.001)
        for who in [each for each in everybody if each not in m.dead and m.told(each, Released)]:
            say_goodbye(m, who) if noticed else m.kill(who)
    assert {who: len(m.told(who, Released)) for who in everybody} == dict.fromkeys(everybody, 1)
    assert [m.told(who, Released) for who in everybody].count([Released(True)]) == 1, "somebody goes last"


def test_a_leaver_is_let_go_once_whoever_may_coordinate_next_has_heard_it() -> None:
    """Regression: all left but A1, which had not heard C0; it made C0 a voter again, and waited for it for good."""
    m = Mesh(dict(_PEERS))
    m.found(A0)
    m.drop = {(C0, A1)}
    m.do(C0, m.rounds[C0].drop_out(m.now))
    m.run(3.0)
    assert not m.told(C0, Released)
    m.drop = set()
    m.run(3.0)
    assert m.told(C0, Released) == [Released(False)]


@given(
    leavers=st.sets(st.sampled_from(["A0", "A1", "B0", "C0"]), min_size=1, max_size=3),
    moments=st.lists(st.integers(0, 20), min_size=4, max_size=4),
    deaf=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_whoever_stays_goes_on_without_those_who_were_let_go_whatever_it_forgets(
    leavers: set[str], moments: list[int], deaf: set[tuple[int, int]], seed: int
) -> None:
    m = Mesh(dict(_PEERS), seed=seed)
    m.found(A0)
    leaving = sorted(peer(name[0], int(name[1])) for name in leavers)
    m.drop = {(_EVERYBODY[a], _EVERYBODY[b]) for a, b in deaf if a != b}
    when = dict(zip(leaving, moments, strict=False))
    for moment in range(400):
        for who in [each for each in leaving if when[each] == moment]:
            m.do(who, m.rounds[who].drop_out(m.now))
        m.run(0.001 if moment < 100 else 0.05)
        if moment == 200:
            m.drop = set()
        for who in [each for each in leaving if each not in m.dead and m.told(each, Released)]:
            say_goodbye(m, who)
    assert set(leaving) <= m.dead
    staying = sorted(set(_EVERYBODY) - set(leaving))
    for other in staying:
        m.boot(other)  # all lose at once what they have not saved
    m.view()
    m.run(20.0)
    assert {m.value(other) for other in staying} == {m.value(staying[0])}
    assert set(m.value(staying[0]).voters) <= set(staying)


@given(
    clusters=st.integers(1, 3),
    who=st.sampled_from(_EVERYBODY),
    deaf=st.lists(st.sampled_from(_EVERYBODY), max_size=2, unique=True),
    suspected=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_who_voted_goes_only_when_the_others_can_go_on_without_it_whatever_they_forget(
    clusters: int, who: PeerId, deaf: list[PeerId], suspected: bool, seed: int
) -> None:
    """Regression: a voter had learnt that the leaver votes no longer, excused it, and crashed before it saved that."""
    m = Mesh(dict(list(_PEERS.items())[:clusters]), seed=seed)
    m.found(A0)
    assume(who in m.rounds and set(m.rounds) - {who})
    m.drop = {(a, b) for a in m.rounds for b in m.rounds if b in deaf and b != who and a != b}
    m.do(who, m.rounds[who].drop_out(m.now))
    if suspected:
        m.do(who, m.rounds[who].suspects(set(deaf) - {who}, m.now))
    for _ in range(400):
        if m.told(who, Released):
            break
        m.run(0.01)
        if m.now > 102:
            m.drop = set()
            m.do(who, m.rounds[who].suspects(set(), m.now))
    assert m.told(who, Released) == [Released(False)]
    m.kill(who)
    m.drop = set()
    if who == A0:
        m.leaders["A"], m.terms["A"] = A1, 2
    elif who != A1:
        m.failed = {chr(int(who[:2], 16))}
    for other in sorted(set(m.rounds) - {who}):
        m.boot(other)  # all lose at once what they have not saved
    m.view()
    m.run(20.0)
    living = sorted(set(m.rounds) - {who})
    assert {m.value(other) for other in living} == {m.value(living[0])}
    assert who not in m.value(living[0]).voters


def test_an_excuse_from_before_it_voted_again_does_not_count() -> None:
    m = mesh(A=2)
    slot = m.rounds[A1].agreement.slot
    m.drop = {(A0, A1)}
    m.do(A1, m.rounds[A1].receive(A0, Excused(slot - 1), m.now))
    m.do(A1, m.rounds[A1].drop_out(m.now))
    m.run(0.5)
    assert A1 not in m.value(A0).voters
    m.drop = set()
    m.deliver(A0, A1, Decision(slot + 1, m.value(A0), 0))
    assert m.value(A1) == m.value(A0)
    assert not m.told(A1, Released)
    m.run(1.0)
    assert m.told(A1, Released) == [Released(False)]


def test_who_voted_stays_until_the_others_could_lose_one_more() -> None:
    m = mesh(A=1, B=1, C=1, D=1)
    far = {C0, D0}
    m.drop = {(near, other) for near in (A0, B0) for other in far}
    m.do(B0, m.rounds[B0].suspects(far, m.now))
    m.do(B0, m.rounds[B0].drop_out(m.now))
    m.run(0.1)
    assert m.value(A0).voters == (A0, B0, C0, D0), "nobody has said that it is there"
    cut_off_after_its_answer(m, C0)
    m.run(0.9)
    assert m.value(A0).voters == (A0, C0, D0), "a half that has the first voter is a quorum"
    assert not m.told(B0, Released), "if the first voter died now, the two others would ask for the leaver in vain"
    m.drop = set()
    m.do(B0, m.rounds[B0].suspects(set(), m.now))
    m.run(2.0)
    assert m.told(B0, Released) == [Released(False)]
    m.kill(B0)
    m.kill(A0)
    m.failed = {"A", "B"}
    for other in sorted(far):
        m.boot(other)
    m.view()
    m.run(10.0)
    assert m.value(C0) == m.value(D0)
    assert set(m.value(C0).voters) == far


@pytest.mark.parametrize("heirs", ["B", "BC", "BCD"])
def test_no_vote_is_left_to_those_who_have_died_without_anybodys_notice(heirs: str) -> None:
    """Regression: a leaver that could decide alone made the dead the only voters: nothing could be decided any more."""
    m = mesh(A=1, **dict.fromkeys(heirs, 1))
    before = m.value(A0).voters
    m.dead = {peer(heir, 0) for heir in heirs}
    m.do(A0, m.rounds[A0].drop_out(m.now))
    m.run(5.0)
    assert m.value(A0).voters == before
    assert not m.told(A0, Released)
    last = peer(heirs[-1], 0)
    m.dead.clear()
    m.boot(last)
    m.view()
    m.dead = {peer(heir, 0) for heir in heirs} - {last}
    m.failed = set(heirs[:-1])
    m.view()
    soon = m.now + 10.0
    while not m.told(A0, Released):
        assert m.now < soon
        m.run(0.1)
    assert m.value(last).voters == (last,)


@pytest.mark.parametrize(("leaver", "stays", "dead"), [(B0, C0, "A"), (C0, B0, "A"), (D0, A0, "BC")])
def test_nobody_goes_as_long_as_those_who_stay_are_no_quorum_of_the_living(
    leaver: PeerId, stays: PeerId, dead: str
) -> None:
    """Regression: it went, most of those who stayed had died unnoticed, and nothing could be decided any more."""
    m = mesh(**dict.fromkeys(["A", "B", "C", "D"][: len(dead) + 2], 1))
    m.dead = {peer(name, 0) for name in dead}
    for each in (leaver, stays):
        m.do(each, m.rounds[each].suspects({A0} & m.dead, m.now))  # or nobody coordinates
    m.do(leaver, m.rounds[leaver].drop_out(m.now))
    m.run(3.0)
    assert leaver in m.value(stays).voters
    assert not m.told(leaver, Released)
    m.failed = set(dead)
    m.view()
    m.run(2.0)
    assert m.told(leaver, Released) == [Released(False)]
    assert m.value(stays).voters == (stays,)


def test_who_voted_waits_for_those_who_are_thought_dead() -> None:
    """Regression: it went, they had only been cut off, had not learnt that they decide alone, and never could."""
    m = mesh(A=1, B=1)
    m.drop = {(A0, B0), (B0, A0)}
    m.do(A0, m.rounds[A0].drop_out(m.now))
    cut_off_after_its_answer(m, B0)
    m.failed = {"B"}
    m.view(A0)
    m.run(3.0)
    assert m.value(A0).voters == (B0,), "a half that has the first voter is a quorum"
    assert not m.told(A0, Released)
    m.drop, m.failed = set(), set()
    m.view()
    m.run(3.0)
    assert m.told(A0, Released) == [Released(False)]
    assert m.value(B0).voters == (B0,)


def test_a_cluster_that_left_and_is_back_on_other_disks_takes_part_though_its_terms_begin_anew() -> None:
    """Regression: its READYs were taken for older ones than that of its former life, for ever."""
    it = mesh(A=1, B=1, C=1)
    it.terms["C"] = 7
    it.view()
    it.one_round()
    assert "C" in [p.cluster for p in it.plans[-1].participants]
    it.do(C0, it.rounds[C0].drop_out(it.now))
    it.run(2.0)
    it.kill(C0)
    del it.clusters["C"]
    it.view()
    it.run(1.0)
    it.one_round()
    anew = peer("C", 9)
    it.clusters["C"], it.leaders["C"], it.terms["C"] = 1, anew, 1
    it.boot(anew)
    it.do(anew, it.rounds[anew].greet(A0, it.now))
    it.view()
    it.run(1.0)
    it.bases = dict.fromkeys(it.clusters, it.value(A0).state.digest)
    it.everybody_ready()
    it.run(12.0)
    assert [p.cluster for p in it.plans[-1].participants] == ["A", "B", "C"]


def test_who_asked_to_leave_and_is_back_before_anybody_noticed_votes_again() -> None:
    """Regression: what it had said in its former life counted for ever: it was no voter, and nobody waited for it."""
    it = mesh(A=1, B=1, C=1)
    it.one_round()
    it.do(C0, it.rounds[C0].drop_out(it.now))
    it.run(0.002)
    it.boot(C0)
    it.view()
    it.do(C0, it.rounds[C0].greet(A0, it.now))
    it.run(it.profile.voter_grace)
    it.one_round()
    it.run(1.0)
    assert C0 in it.value(A0).voters
    assert not it.rounds[A0]._coordinator.electorate.leaving
