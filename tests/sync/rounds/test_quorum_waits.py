"""How long a round waits once it has its quorum: as the arrivals of the others scatter, and no longer."""

from __future__ import annotations

import pytest
from msgspec import structs

from ictp2p.sync.rounds.notices import (
    RoundCommitted,
)
from ictp2p.sync.values import ATTENDS, LOOKS_ON
from tests.sync.rounds.rounds_mesh import A0, B0, SYNC, Mesh, mesh, peer

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
