"""Until when rounds wait: for who is not READY, for who has not voted, and between one attempt and the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
)
from ictp2p.sync.values import ATTENDS, LOOKS_ON, Spec
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, DELAY, SYNC, Mesh, in_second_round, mesh, peer


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


@pytest.mark.parametrize("spec", [SYNC, structs.replace(SYNC, quorum=0.3, spread=0.0)], ids=["all", "quorum"])
def test_who_looks_on_does_not_make_stragglers_of_those_who_train(spec: Spec) -> None:
    """However many they are, and however often: a round of theirs alone is for nothing, and would be missed."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    usual = 6 * m.profile.straggler_floor
    m.run(usual)
    m.one_round()
    for _ in range(3):
        m.run(0.2 * usual)
        m.ready("A", spec, LOOKS_ON)
        m.ready("B", spec, LOOKS_ON)
        m.run(0.8 * usual)
        m.ready("C", spec)
        m.run(0.5)
        assert len(m.told(A0, RoundCommitted)[-1].open.participants) == 3  # type: ignore[attr-defined]
        m.bases = dict.fromkeys("ABC", m.value(A0).state.digest)
    assert len(m.told(A0, RoundCommitted)) == 5


def test_who_looks_on_is_none_of_most_who_are_ready() -> None:
    m = mesh(A=1, B=1, C=1, D=1, E=1)
    m.one_round()
    usual = 6 * m.profile.straggler_floor
    m.run(usual)
    m.one_round()
    m.ready("A", weight=LOOKS_ON)
    m.ready("B", weight=LOOKS_ON)
    m.ready("C")  # it missed a round, say, and is the only one yet that brings something
    m.run(usual)
    m.ready("D")
    m.ready("E")
    m.run(0.5)
    assert len(m.told(A0, RoundCommitted)[-1].open.participants) == 5  # type: ignore[attr-defined]


def test_who_looks_on_does_not_wait_without_end_either() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.ready("A", weight=LOOKS_ON)
    m.run(m.profile.fetch_grace)
    assert len(m.told(A0, RoundCommitted)) == 1, "nothing is known of phases"
    m.run(m.profile.straggler_floor + m.profile.straggler_fraction * m.profile.fetch_grace)
    assert len(m.told(A0, RoundCommitted)) == 2
    assert m.value(A0).state.digest == b"digest 2"


def test_who_looks_on_alone_waits_for_the_longest_phase_that_was_seen() -> None:
    m = mesh(A=1, B=1)
    for phase in (0.0, 30.0, 90.0, 30.0, 30.0):
        m.run(phase)
        m.one_round()
    m.ready("A", weight=LOOKS_ON)
    m.run(89.0)
    assert len(m.told(A0, RoundCommitted)) == 5
    m.run(3.0 + m.profile.straggler_floor)
    assert len(m.told(A0, RoundCommitted)) == 6


def test_who_looks_on_alone_waits_twice_as_long_after_each_round_of_nothing() -> None:
    """Regression: until somebody had trained for a round it waited for ten seconds each time.

    Who drops what was late then looked on as well, had begun no phase that was known of, and was overtaken in the next.
    """
    m = mesh(A=1, B=1)
    waits = [0.9 * m.profile.straggler_floor, 2 * m.profile.fetch_grace, 4 * m.profile.fetch_grace]
    for rounds, wait in enumerate(waits):
        m.ready("A", weight=LOOKS_ON)
        m.run(wait)
        assert len(m.told(A0, RoundCommitted)) == rounds
        m.run(2 * m.profile.straggler_floor)
        assert len(m.told(A0, RoundCommitted)) == rounds + 1
        m.bases = dict.fromkeys("AB", m.value(A0).state.digest)
    m.one_round()
    m.ready("A", weight=LOOKS_ON)
    m.run((1.0 + m.profile.straggler_fraction) * m.profile.fetch_grace + 2 * m.profile.straggler_floor)
    assert len(m.told(A0, RoundCommitted)) == len(waits) + 2, "somebody has trained since"


def test_who_dropped_what_was_late_has_a_phase_from_the_round_at_which_it_looked_on() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    usual = 6 * m.profile.straggler_floor
    m.run(usual)
    m.one_round()
    m.run(2 * usual)
    for cluster in "AB":
        m.ready(cluster, weight=LOOKS_ON)
    m.run(0.5)
    m.bases = dict.fromkeys("AB", m.value(A0).state.digest)
    m.ready("A", weight=LOOKS_ON)
    m.run(usual)
    m.ready("B")
    m.run(0.5)
    assert [len(commit.open.participants) for commit in m.told(A0, RoundCommitted)] == [2] * 4  # type: ignore[attr-defined]


def test_who_looks_on_early_does_not_take_from_the_wait_for_stragglers() -> None:
    """Regression: where nothing was known of phases yet the wait began with it, and was over when the first came."""
    m = mesh(A=1, B=1, C=1)
    m.ready("C", weight=LOOKS_ON)
    m.run(0.9 * m.profile.straggler_floor)
    m.ready("A")
    m.run(0.9 * m.profile.straggler_floor)
    m.ready("B")
    m.run(0.5)
    assert [len(commit.open.participants) for commit in m.told(A0, RoundCommitted)] == [3]  # type: ignore[attr-defined]


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


def test_who_looks_on_does_not_close_the_door_on_those_who_train() -> None:
    """Regression: with them a round had its quorum as the first one came, and who was later by little brought nothing.

    Where late training is dropped it was so for good: it looked on at the next round, and was late for the one after.
    """
    m = quorum_mesh()
    for cluster in "CDE":
        m.ready(cluster, MOST, LOOKS_ON)
    m.run(10.0)
    m.ready("A", MOST)
    m.run(0.5)
    m.ready("B", MOST)
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C", "D", "E"]  # type: ignore[attr-defined]


def test_when_somebody_looks_on_is_no_measure_of_how_arrivals_scatter() -> None:
    m = mesh(A=1, B=1, C=1, D=1)
    m.one_round()
    for _ in range(8):
        for cluster in "CD":
            m.ready(cluster, MOST, LOOKS_ON)
        m.run(10.0)
        for cluster in "AB":
            m.ready(cluster, MOST)
        m.run(0.5)
        m.bases = dict.fromkeys(m.clusters, m.value(A0).state.digest)
    assert len(m.told(A0, RoundCommitted)) == 9
    for cluster in "ABC":
        m.ready(cluster, MOST)
    m.run(m.profile.retry + 0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]  # type: ignore[attr-defined]


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


@pytest.mark.parametrize(("quorum", "spread"), [(1e-9, 0.0), (0.4, 0.0), (0.6, 3.0)])
def test_who_looks_on_does_not_say_when_those_who_train_should_come(quorum: float, spread: float) -> None:
    """Regression: of clusters in step the first to come went alone, for the door was past: those who look on made it.

    The others found the state further on, fetched it, and were as far from their fellows for good.
    """
    m, spec = quorum_mesh(), structs.replace(SYNC, quorum=quorum, spread=spread)
    for _ in range(3):
        for cluster in "CDE":
            m.ready(cluster, spec, LOOKS_ON)
        m.run(5.0)  # later than the door would be, counted from them
        m.ready("A", spec)
        m.run(0.5 * m.profile.retry)
        m.ready("B", spec)
        m.run(m.profile.retry)
        assert len(m.told(A0, RoundCommitted)[-1].open.participants) == 5  # type: ignore[attr-defined]
        m.bases = dict.fromkeys(m.clusters, m.value(A0).state.digest)
    assert len(m.told(A0, RoundCommitted)) == 5


def test_who_looks_on_is_no_part_of_a_quorum() -> None:
    m = quorum_mesh()
    for cluster in "CDE":
        m.ready(cluster, MOST, LOOKS_ON)
    m.ready("A", MOST)
    m.run(4.0)
    assert len(m.told(A0, RoundCommitted)) == 2, "one of two who train, where three fifths are asked for"
    m.ready("B", MOST)
    m.run(0.5)
    assert len(m.told(A0, RoundCommitted)[-1].open.participants) == 5  # type: ignore[attr-defined]


def test_who_trains_meanwhile_waits_for_the_others_as_long_as_it_has_time() -> None:
    """Regression: clusters that nothing holds in step drifted apart, and each soon made nearly every round alone."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.ready("A", slack=60.0)
    m.run(10.0)
    m.ready("B", slack=60.0)
    m.run(49.0)
    assert len(m.told(A0, RoundCommitted)) == 1
    m.ready("C", slack=60.0)
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]  # type: ignore[attr-defined]
    m.bases = dict.fromkeys("ABC", m.value(A0).state.digest)
    m.ready("A", slack=60.0)
    m.run(10.0)
    m.ready("B", slack=60.0)
    m.run(49.0)
    assert len(m.told(A0, RoundCommitted)) == 2
    m.run(1.5)
    assert len(m.told(A0, RoundCommitted)) == 3, "the first of them has no more time"


def test_who_waits_for_a_round_does_not_wait_because_others_train_meanwhile() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.ready("A", slack=60.0)
    m.ready("B")
    m.run(m.profile.straggler_floor + 0.5)
    assert len(m.told(A0, RoundCommitted)) == 2


def test_who_looks_on_has_all_the_time_of_the_others() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.ready("A", weight=LOOKS_ON)
    m.ready("B", slack=60.0)
    m.run(55.0)
    m.ready("C", slack=60.0)
    m.run(0.5)
    commit = m.told(A0, RoundCommitted)[-1]
    assert [p.cluster for p in commit.open.participants] == ["A", "B", "C"]  # type: ignore[attr-defined]


def test_who_only_attends_begins_no_round_and_is_in_one_that_others_begin() -> None:
    """Or those who wait for their siblings would have one round of nothing after the other meanwhile."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    before = len(m.told(A0, RoundCommitted))
    m.ready("A", weight=ATTENDS)
    m.ready("B", weight=ATTENDS)
    m.ready("C", weight=ATTENDS)
    m.run(10 * m.profile.straggler_floor)
    assert len(m.told(A0, RoundCommitted)) == before
    m.ready("C")
    m.run(1.0)
    commit = m.told(A0, RoundCommitted)[-1]
    assert len(m.told(A0, RoundCommitted)) == before + 1
    assert len(commit.open.participants) == 3
