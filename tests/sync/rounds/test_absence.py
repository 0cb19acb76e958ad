"""A cluster that lives and comes to no round is reported by all others, once, and only where they wait for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_

from ictp2p.sync.rounds.absence import ROUNDS, Absence
from ictp2p.sync.rounds.notices import ClusterAbsent
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.values import SYNC_STATE, Close, Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, LINEAGE, SYNC, Mesh, mesh

LEAST = 30.0
STATE = StateRef(1, b"digest", (A0,))
HEAD = (LINEAGE, (A0,), STATE, A0)
C = ClusterId("C")
VIEWS = {
    ClusterId(name): ClusterView(leader, 1, alive=True, suspect=False, training=True, candidates=(leader,))
    for name, leader in {"A": A0, "B": B0, "C": C0}.items()
}


class Story:
    """Rounds as they are decided, with a cluster C that is there or not."""

    def __init__(self, c: ClusterView | None = None) -> None:
        self.sight = Sight(A0, 3.0, 10.0)
        self.sight.update({**VIEWS, C: c or VIEWS[C]}, 0.0)
        self.absence = Absence(self.sight, LEAST)
        self.round, self.now = 0, 0.0

    def held(
        self, *clusters: str, spec: Spec = SYNC, took: float = LEAST / 2, committed: bool = True
    ) -> list[ClusterAbsent]:
        self.round, self.now = self.round + 1, self.now + took
        parts = tuple(Participant(ClusterId(name), VIEWS[ClusterId(name)].leader, 1, 1.0) for name in clusters)
        told = self.absence.decided(Open(*HEAD, self.round, 1, spec, parts, b"plan", "star", 30.0), self.now)
        close = Close(*HEAD, self.round, 1, committed, b"digest", "", (), ())
        told = [*told, *self.absence.decided(close, self.now)]
        assert all(isinstance(notice, ClusterAbsent) for notice in told)
        return told  # type: ignore[return-value]


def test_who_was_due_in_several_rounds_and_in_none_of_them_is_reported_once() -> None:
    story = Story()
    assert not story.held("A", "B", "C")
    assert [story.held("A", "B") for _ in range(ROUNDS - 1)] == [[]] * (ROUNDS - 1)
    assert story.held("A", "B") == [ClusterAbsent(C, C0, ROUNDS, LEAST)]
    assert not any(story.held("A", "B") for _ in range(2 * ROUNDS))
    assert not story.held("A", "B", "C")
    again = [notice for _ in range(2 * ROUNDS) for notice in story.held("A", "B")]
    assert again == [ClusterAbsent(C, C0, ROUNDS, LEAST)], "it was there meanwhile"


def test_rounds_that_follow_each_other_fast_report_nobody_who_has_just_come() -> None:
    story = Story()
    assert not any(story.held("A", "B", took=1.0) for _ in range(int(LEAST)))
    (notice,) = story.held("A", "B", took=1.0)
    assert (notice.cluster, notice.seconds) == (C, LEAST)


def test_a_round_that_comes_to_nothing_counts_for_nothing() -> None:
    story = Story()
    assert not any(story.held("A", "B", committed=False) for _ in range(2 * ROUNDS))


QUIET: dict[str, Callable[[ClusterView], ClusterView]] = {
    "has ended its training": lambda view: replace(view, training=False),
    "is dead": lambda view: replace(view, alive=False),
    "is suspected": lambda view: replace(view, suspect=True),
}


@pytest.mark.parametrize("change", QUIET.values(), ids=QUIET)
def test_nobody_is_reported_for_whom_nobody_waits(change: Callable[[ClusterView], ClusterView]) -> None:
    story = Story(change(VIEWS[C]))
    assert not any(story.held("A", "B") for _ in range(2 * ROUNDS))


@pytest.mark.parametrize(
    "spec",
    [CALL, with_(SYNC, name=SYNC_STATE), with_(SYNC, quorum=0.5), with_(SYNC, grouping="pairs")],
    ids=["call", "shared state", "quorum", "pairs"],
)
def test_rounds_that_wait_for_nobody_in_particular_report_nobody(spec: Spec) -> None:
    story = Story()
    assert not any(story.held("A", "B", spec=spec) for _ in range(2 * ROUNDS))


def test_a_call_between_two_rounds_of_a_training_changes_nothing() -> None:
    story = Story()
    told = [notice for _ in range(ROUNDS) for spec in (SYNC, CALL) for notice in story.held("A", "B", spec=spec)]
    assert [notice.cluster for notice in told] == ["C"]


def reported(m: Mesh, who: PeerId) -> list[str]:
    return [notice.cluster for notice in m.told(who, ClusterAbsent)]  # type: ignore[attr-defined]


def test_all_who_wait_for_a_cluster_that_hangs_report_it_and_so_does_its_own_peer() -> None:
    m = mesh(A=2, B=1, C=1)
    m.one_round()
    for _ in range(2 * ROUNDS):
        for name in "AB":
            m.bases[name] = m.value(A0).state.digest
            m.ready(name)
        m.run(m.profile.straggler_floor + 1.0)
    assert [reported(m, who) for who in sorted(m.rounds)] == [["C"]] * 4
