"""Clusters that train out of step come into step, and nobody waits for who is not about to come."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.sync.rounds.notices import RoundCommitted
from ictp2p.sync.rounds.rhythm import Rhythm
from ictp2p.types import ClusterId
from tests.sync.rounds.rounds_mesh import A0, CALL, Mesh, mesh

A, B, C = map(ClusterId, "ABC")
PHASE = 90.0
"""Seconds: short enough that everybody waits for stragglers as long, and waiting alone brings nobody nearer."""
STEP = 1.0


def last_committed(m: Mesh) -> set[str]:
    """Clusters of the last round; only they are told."""
    told = [cast("list[RoundCommitted]", m.told(leader, RoundCommitted))[-1] for leader in m.leaders.values()]
    newest = max(told, key=lambda each: each.close.state.version)
    return {part.cluster for part in newest.open.participants}


def trained(
    m: Mesh, offsets: list[float], seconds: float, slow: dict[str, float] | None = None
) -> list[tuple[float, set[str]]]:
    """Let clusters train phase after phase, and give when rounds were committed, of which clusters.

    The first phase of each began so long ago. Those who are `slow` take so many times as long. Who was overtaken has
    the newest state as soon as it knows of it, and is READY with it.
    """
    began, found, standing = m.now, list[tuple[float, set[str]]](), dict[str, int]()
    phases = {cluster: PHASE * (slow or {}).get(cluster, 1.0) for cluster in m.clusters}
    ready_at = {cluster: m.now + phases[cluster] - at for cluster, at in zip(m.clusters, offsets, strict=True)}
    while m.now < began + seconds:
        state, newest = m.value(A0).state, last_committed(m)
        if state.version > max(standing.values(), default=state.version):
            found.append((m.now - began, newest))
        for cluster, version in tuple(standing.items()):
            if state.version > version:
                del standing[cluster]
                ready_at[cluster] = m.now + phases[cluster] if cluster in newest else m.now
        for cluster, at in ready_at.items():
            if at <= m.now and cluster not in standing and m.value(m.leaders[cluster]).state == state:
                m.bases[cluster] = state.digest
                m.ready(cluster)
                standing[cluster] = state.version
        m.run(STEP)
    return found


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, PHASE), min_size=2, max_size=5))
@example([0.0, 0.0, 0.0, 67.5])
@example([0.0, 0.0, 45.0, 45.0])
@example([0.0, 22.5, 45.0, 67.5])
@example([10.0, 0.0])  # the first round is decided as the other one comes
@example([21.0, 32.0])
def test_clusters_of_equal_phases_come_into_step_wherever_each_of_them_began(offsets: list[float]) -> None:
    m = mesh(**dict.fromkeys("ABCDE"[: len(offsets)], 1))
    m.one_round()
    rounds = trained(m, offsets, 9 * PHASE)
    last = [clusters for at, clusters in rounds if at > 5 * PHASE]
    assert len(last) >= 3, rounds
    assert all(clusters == set(m.clusters) for clusters in last), rounds


@pytest.mark.parametrize("slow", ["B", "CD"])
def test_nobody_comes_to_wait_for_clusters_of_half_the_speed(slow: str) -> None:
    """Regression: what was waited in vain counted as phase, so the next wait was longer, until all were as slow."""
    m = mesh(**dict.fromkeys("AB" if slow == "B" else "ABCD", 1))
    m.one_round()
    rounds = trained(m, [0.0] * len(m.clusters), 40 * PHASE, dict.fromkeys(slow, 2.0))
    waits = m.profile.straggler(PHASE)
    fast = [at for at, clusters in rounds if "A" in clusters]
    assert len(fast) >= 38 * PHASE / (PHASE + waits + 2 * STEP)


def test_a_phase_is_what_lies_before_a_ready_and_no_wait_is_in_it() -> None:
    rhythm = Rhythm()
    for began in (0.0, 150.0, 300.0):
        rhythm.committed([A, B], began)
        for name, phase in ((A, 100.0), (B, 140.0)):
            rhythm.came(name, began + phase)
            rhythm.came(name, began + phase + 5.0)
    assert rhythm.due(A) == rhythm.due(B) == 400.0
    assert rhythm.due(A, at_latest=True) == 440.0
    rhythm.came(C, 310.0)
    assert rhythm.due(C) is None, "it took part in no round that is remembered"


def test_who_looked_on_begins_its_phase_with_that_round() -> None:
    rhythm = Rhythm()
    for began in (0.0, 150.0, 300.0):
        rhythm.committed([A, B], began)
        rhythm.came(A, began + 100.0)
    rhythm.watched([B, C], 350.0)
    assert (rhythm.due(A), rhythm.due(B), rhythm.due(C)) == (400.0, 450.0, 450.0)
    rhythm.came(B, 490.0)
    assert rhythm.due(A, at_latest=True) == 440.0, "that one took longer"
    assert rhythm.due(A, at_latest=True, patience=2.0) == 580.0
    rhythm.committed([A, B], 500.0)
    assert rhythm.due(B) == 600.0
    rhythm.broken()
    assert rhythm.due(C) is None


def test_a_cluster_is_due_a_usual_gap_after_its_own_last_round() -> None:
    rhythm = Rhythm()
    assert rhythm.due(A) is None
    rhythm.committed([A, B], 100.0)
    assert rhythm.due(A) is None, "nothing is known of gaps"
    rhythm.committed([C], 130.0)
    rhythm.committed([A, B], 160.0)
    assert rhythm.due(A) == rhythm.due(B) == 220.0
    assert rhythm.due(C) == 190.0, "its phase began with its own round"
    assert rhythm.due(ClusterId("D")) is None


def test_the_gaps_of_one_that_was_away_or_of_decisions_learnt_at_once_are_not_usual() -> None:
    rhythm = Rhythm()
    rhythm.committed([A, C], 100.0)
    for at in (160.0, 220.0, 280.0, 340.0):
        rhythm.committed([A, B], at)
    rhythm.committed([A, B], 340.0)
    rhythm.committed([A, B, C], 400.0)
    assert rhythm.due(C) == 460.0


def test_gaps_over_rounds_that_were_missed_say_nothing() -> None:
    rhythm = Rhythm()
    rhythm.committed([A], 100.0)
    rhythm.broken()
    rhythm.committed([A], 400.0)
    assert rhythm.due(A) is None


def test_calls_between_two_rounds_of_the_state_do_not_make_their_phases_seem_short() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    for _ in range(3):
        m.run(0.8 * PHASE)
        for _ in range(4):
            for cluster in m.clusters:
                m.ready(cluster, CALL)
            m.run(0.5)
        m.run(0.2 * PHASE)
        m.one_round()
    m.ready("A")
    m.run(PHASE / 2)
    assert "waiting for READY of B, C" in m.rounds[A0].explain()
    m.ready("B")
    m.ready("C")
    m.run(0.5)
    assert last_committed(m) == {"A", "B", "C"}
