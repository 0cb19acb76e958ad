"""Who looks on at a round, without a contribution: it waits with the others, and makes nobody wait."""

from __future__ import annotations

import pytest
from msgspec import structs

from ictp2p.sync.rounds.notices import (
    RoundCommitted,
)
from ictp2p.sync.values import LOOKS_ON, Spec
from tests.sync.rounds.rounds_mesh import A0, SYNC, mesh


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
