"""Rounds of whole meshes: what users will see happen."""

from __future__ import annotations

import pytest
from msgspec import structs

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.messages import Holding, Inquire, Offer, Ready
from ictp2p.sync.rounds.machine import Contribution, PlanAnswer
from ictp2p.sync.rounds.notices import (
    Released,
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    SpecRejected,
    StateAdvanced,
    StateStale,
)
from ictp2p.sync.values import Grouping, Open, Spec, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import (
    A0,
    A1,
    B0,
    B1,
    BARRIER,
    C0,
    C1,
    CALL,
    DELAY,
    FIRST,
    SYNC,
    Mesh,
    in_second_round,
    mesh,
    peer,
)


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
    assert m.value(A0).state == StateRef(2, b"digest 1", (A0,), ((ClusterId("A"), 2),), (0,))


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


def test_different_specs_reject_the_minority_and_name_both() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    other = Spec("sync", "diloco", "float32", 11, "avg", "none")
    m.ready("A", other)
    m.ready("B")
    m.ready("C")
    m.run(0.5)
    reason = m.told(A0, SpecRejected)[0].reason  # type: ignore[attr-defined]
    assert reason == "cluster A brings elements 11; the round is for elements 10, as brought by B, C"
    assert len(m.told(B0, RoundCommitted)) == 2
    assert len(m.told(B0, RoundCommitted)[-1].open.participants) == 2  # type: ignore[attr-defined]


def opened(m: Mesh, who: PeerId) -> list[Open]:
    """The attempts that were opened, as this peer learnt of them."""
    values = [notice.value for notice in m.notices[who] if isinstance(notice, Decided)]
    return [value for value in values if isinstance(value, Open)]


@pytest.mark.parametrize("size", [2, 3])
def test_whose_call_does_not_fit_is_named_to_all_by_the_decision_that_opens_the_round(size: int) -> None:
    m = mesh(**dict.fromkeys("ABC"[:size], 2))
    m.ready("B", structs.replace(CALL, elements=11))
    m.run(0.1)
    for cluster in "AC"[: size - 1]:
        m.ready(cluster, CALL)
    m.run(0.5)
    refused = m.told(B0, SpecRejected)[0].reason  # type: ignore[attr-defined]
    assert {opened(m, who)[-1].misfits for who in (A0, A1, B0)} == {refused}
    for cluster in "ABC"[:size]:
        m.ready(cluster, CALL)
    m.run(0.5)
    assert [p.cluster for p in opened(m, A0)[-1].participants] == list("ABC"[:size])
    assert not opened(m, A0)[-1].misfits


def test_who_was_turned_away_is_named_once_though_the_attempt_is_repeated() -> None:
    m = mesh(A=1, B=1, C=1)
    m.breaks = {A0}
    m.ready("B", structs.replace(CALL, elements=11))
    m.run(0.1)
    m.ready("A", CALL)
    m.ready("C", CALL)
    m.run(0.1)
    m.breaks = set()
    m.run(2 * m.profile.straggler_floor)
    first, *others = (attempt.misfits for attempt in opened(m, A0))
    assert "elements 11" in first
    assert others
    assert not any(others)


def test_of_the_state_nobody_is_warned_who_is_brought_up_to_it() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    m.ready("B", structs.replace(SYNC, elements=11))
    m.run(0.1)
    m.ready("A")
    m.run(0.5)
    assert m.told(B0, SpecRejected)
    assert not opened(m, A0)[-1].misfits


def test_different_digests_abort_and_the_odd_one_out_is_barred() -> None:
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.silent = {C0}
    m.everybody_ready()
    for _ in range(400):
        m.run(0.01)
        value = m.value(C0)
        if isinstance(value, Open):
            m.do(C0, m.rounds[C0].completed(value.round, value.attempt, b"flipped", m.now))
    (abort,) = m.told(A0, RoundAborted)
    assert "digests differ" in abort.close.reason  # type: ignore[attr-defined]
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


def test_a_withdrawal_in_mid_round_ends_the_attempt() -> None:
    m = in_second_round(A=1, B=1)
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
    assert m.value(A0).deadline == m.profile.deadline(1.0), "the other plan has its own time, for none took too long"  # type: ignore[union-attr]
    m.run(m.profile.replan - 0.9)
    assert m.value(A0).attempt == (3 if given_up else 1), "nor was anybody to pause for"


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
    assert m.value(B0).state == StateRef(2, b"digest 1", (A0, B0), ((ClusterId("A"), 2), (ClusterId("B"), 2)), (0, 0))


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
    ready = Ready(0, 1, ClusterId("B"), 1, float("inf"), SYNC, None)
    with pytest.raises(RemoteProtocolError, match="weight inf"):
        m.rounds[A0].receive(B0, ready, m.now)
    with pytest.raises(RemoteProtocolError, match="without a digest"):
        m.rounds[A0].receive(B0, Offer(0, b""), m.now)


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


def test_who_lacks_the_agreed_state_says_so_and_who_may_have_it() -> None:
    """Regression: it said `not READY`, and no more, while the whole mesh waited for somebody with the state."""
    m = Mesh({"A": 1, "B": 1, "C": 1})
    m.training |= {"B": False, "C": False}
    m.found(A0)
    m.one_round()
    m.held[B0] = (0, b"")
    lacks = "not READY: lacks version 2 of the state, holds none, and must be given it: "
    assert f"{lacks}of those who held it are in sight {A0}; slot" in m.rounds[B0].explain()
    m.held[B0] = (1, FIRST)
    m.kill(A0)
    m.failed = {"A"}
    m.view()
    m.run(1.0)
    assert "holds version 1, and must be given it: nobody in sight held it; " in m.rounds[B0].explain()
    m.held[B0] = (0, b"older")
    assert "holds what a checkpoint had" in m.rounds[B0].explain()
    m.held[B0] = (0, b"digest 1")
    assert "lacks" not in m.rounds[B0].explain(), "a checkpoint of just that state"


def test_no_number_is_claimed_that_the_chain_has_not_given_out() -> None:
    """A checkpoint may be further than every disk: its number would have the others wait for news of it for ever."""
    m = Mesh({"A": 1, "B": 1})
    m.found(A0)
    m.one_round()
    for version, claimed in ((1, 1), (2, 2), (3, 0)):
        m.held[B0] = (version, b"digest of its own")
        m.sent.clear()
        m.do(B0, m.rounds[B0].receive(A0, Inquire(m.rounds[A0].agreement.slot), m.now))
        (answer,) = [message for _, _, message in m.sent if isinstance(message, Holding)]
        assert (answer.version, answer.digest) == (claimed, b"digest of its own")


def test_a_stale_ready_on_the_wire_is_neither_used_nor_waited_for() -> None:
    m = mesh(A=1, B=1)
    m.one_round()
    stale = Ready(m.rounds[A0].agreement.slot, 2, ClusterId("B"), 1, 1.0, SYNC, StateRef(0, FIRST, ()))
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


def test_what_was_agreed_on_in_a_former_life_was_seen_by_nobody_though_this_life_completed_it() -> None:
    """Regression: all were killed just after a commit that no disk knew of yet, and checkpoints were not waited for."""
    m = mesh(A=1, B=1, C=1)
    m.one_round()
    m.everybody_ready()
    m.run(0.05)
    version = m.value(A0).state.version
    m.bases = dict.fromkeys(m.clusters, m.value(A0).state.digest)
    assert all(m.rounds[who]._seen <= version for who in (A0, B0, C0))
    m.queue.clear()
    for who in (A0, B0, C0):
        m.boot(who)
    assert {type(m.value(who)) for who in (A0, B0, C0)} == {Open}, "the disks do not know that it was decided"
    for who in (A0, B0, C0):
        for other in (A0, B0, C0):
            m.do(who, m.rounds[who].greet(other, m.now))
    m.view()
    m.run(5.0)
    assert {m.value(who).state.version for who in (A0, B0, C0)} == {version}
    assert all(m.rounds[who]._seen == version + 1 for who in (A0, B0, C0))
    m.one_round()
    assert m.value(A0).state.version == version + 1
    assert all(m.rounds[who]._seen == version + 1 for who in (A0, B0, C0))


def test_of_the_states_that_were_offered_one_of_the_living_is_adopted() -> None:
    """Regression: the first one was, and if who had offered it was dead by then nobody held it, for good."""
    m = mesh(A=1, B=1, C=1)
    m.rounds[A0]._coordinator.offer(B0, b"of the dead")  # while something else was being decided
    m.kill(B0)
    m.failed.add("B")
    m.view()
    m.do(C0, m.rounds[C0].offer(b"of the living", m.now))
    m.run(1.0)
    assert (m.value(A0).state.digest, m.value(A0).state.providers) == (b"of the living", (C0,))
