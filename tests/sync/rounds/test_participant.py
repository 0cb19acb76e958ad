"""What binds a leader: an attempt that was opened with what it brings now, and no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.sync.messages import Failed, Rejected, Vote
from ictp2p.sync.rounds.notices import RoundAborted, RoundCommitted, RoundOpened, SpecRejected
from ictp2p.sync.rounds.participant import Contribution, Part
from ictp2p.sync.values import Open, Participant, Spec, StateRef, genesis, upcoming
from ictp2p.types import ClusterId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, DELAY, LINEAGE, Mesh, mesh

SPECS = (CALL, replace(CALL, name="another"))
NOTHING = StateRef(0, b"", ())
BROUGHT = st.builds(
    Contribution,
    cluster=st.sampled_from([ClusterId("a"), ClusterId("b")]),
    leader=st.just(A0),
    term=st.integers(1, 2),
    weight=st.sampled_from([1.0, 5.0]),
    spec=st.sampled_from(SPECS),
    base=st.none(),
    note=st.sampled_from([b"", b"0-9", b"0-49"]),
)


@given(then=BROUGHT, now=BROUGHT)
def test_an_attempt_binds_exactly_the_contribution_that_it_was_opened_with(
    then: Contribution, now: Contribution
) -> None:
    """Regression: weight and note were not looked at, so other data was added up with the old weight."""
    part = Part(A0, lambda plan, participants: None)
    part.stand(now, None)
    mine = Participant(then.cluster, A0, then.term, then.weight, then.note)
    opened = Open(LINEAGE, (A0,), NOTHING, A0, 1, 1, then.spec, (mine,), b"plan", "", 9.0)
    told = part.decided(opened)
    said = part.message(0, opened)
    if then == now:
        assert (told, said) == ([RoundOpened(opened)], None)
    else:
        assert isinstance(said, Failed)
        assert (told, said.standing) == ([], True)


def replaced(m: Mesh, weight: float, note: bytes) -> None:
    """B's call is given up and made again, with more, while the attempt with the first is on its way to B."""
    m.ready("A", CALL)
    m.ready("B", CALL)
    while not isinstance(m.value(A0), Open):
        m.run(DELAY / 4)
    assert not isinstance(m.value(B0), Open)
    m.do(B0, m.rounds[B0].withdraw(m.now))
    again = Contribution(ClusterId("B"), B0, 1, weight, CALL, None, note=note)
    m.do(B0, m.rounds[B0].ready(again, m.now))


def test_what_was_brought_anew_is_in_the_next_attempt_with_its_own_weight_and_note() -> None:
    m = mesh(A=1, B=1)
    replaced(m, 5.0, b"0-49")
    m.run(0.5)
    assert len(m.told(A0, RoundAborted)) == 1
    commit = m.told(B0, RoundCommitted)[-1]
    assert isinstance(commit, RoundCommitted)
    assert [(p.weight, p.note) for p in commit.open.participants] == [(1.0, b""), (5.0, b"0-49")]


@given(brought=BROUGHT, spec=st.sampled_from(SPECS), round_=st.integers(0, 2))
def test_a_refusal_ends_what_it_refuses_and_nothing_else(brought: Contribution, spec: Spec, round_: int) -> None:
    part, tip = Part(A0, lambda plan, participants: None), genesis(LINEAGE, A0)
    part.stand(brought, None)
    told = part.rejected(Rejected(0, round_, "the others want another", spec), tip)
    refused = round_ == upcoming(tip)[0] and spec == brought.spec
    assert told == ([SpecRejected("the others want another")] if refused else [])
    assert part.standing == (None if refused else brought)


def test_a_late_refusal_does_not_hit_what_the_others_want() -> None:
    """Regression: it named the round alone, and who had corrected itself in between was told of a mismatch."""
    m = mesh(A=1, B=1)
    m.ready("A", SPECS[0])
    m.ready("B", SPECS[1])
    while not (late := [(to, message) for _, to, message in m.sent if isinstance(message, Rejected)]):
        m.run(DELAY / 4)
    assert late[0][0] == B0
    m.do(B0, m.rounds[B0].withdraw(m.now))
    m.ready("B", SPECS[0])
    m.silent = {A0}
    m.run(0.5)
    assert not m.told(B0, SpecRejected)


def test_a_vote_that_was_given_is_not_taken_back() -> None:
    """Whoever coordinates next hears what was said first, whatever becomes of this peer's part afterwards."""
    part = Part(A0, lambda plan, participants: None)
    part.stand(Contribution(ClusterId("a"), A0, 1, 1.0, CALL, None), None)
    opened = Open(
        LINEAGE, (A0,), NOTHING, A0, 1, 1, CALL, (Participant(ClusterId("a"), A0, 1, 1.0, b""),), b"", "", 9.0
    )
    part.decided(opened)
    assert part.conclude(1, 1, (b"first", "", ()))
    said = part.message(0, opened)
    assert not part.conclude(1, 1, (b"", "broke afterwards", ()))
    assert not part.conclude(1, 1, (b"second", "", ()))
    assert part.message(0, opened) == said == Vote(0, 1, 1, b"first")


def test_who_has_withdrawn_is_not_in_the_next_attempt() -> None:
    """It would fail at once, as it is not ready, and the others would have made an attempt for nothing."""
    m = mesh(A=1, B=1, C=1)
    m.ready("B", CALL)
    m.run(5 * DELAY)
    m.do(B0, m.rounds[B0].withdraw(m.now))
    m.run(5 * DELAY)
    m.ready("A", CALL)
    m.ready("C", CALL)
    m.run(60.0)
    opened = [notice.open for notice in m.told(A0, RoundOpened) if isinstance(notice, RoundOpened)]
    assert [[part.leader for part in each.participants] for each in opened] == [[A0, C0]]
    assert not m.told(A0, RoundAborted)
