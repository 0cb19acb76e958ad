"""Who learns a decision when, and from whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.machine import Effects, Send
from ictp2p.sync.agreement.learner import Learner, concerned
from ictp2p.sync.messages import Accept, Accepted, Ballot, Chosen, Decision, Greet
from ictp2p.sync.values import Open, Participant, Spec, Value, genesis, quorum
from ictp2p.types import ClusterId, PeerId
from tests.sync.agreement.agreeing import LINEAGE, A, B, C, D, E, Net, change, net

SPEC = Spec("reduce", "", "float32", 1, "sum", "none")
VOTERS = (A, B, C, D, E)
BALLOTS = (Ballot(1, A), Ballot(2, B))
WORDS = st.tuples(st.sampled_from(BALLOTS), st.sampled_from(VOTERS))
"""A ballot, and who accepts it; its proposer does by what it proposes."""


def opening(tip: Value, *leaders: PeerId) -> Open:
    parts = tuple(Participant(ClusterId(f"c{i}"), leader, 1, 1.0) for i, leader in enumerate(leaders))
    return Open(tip.lineage, tip.voters, tip.state, A, tip.round, tip.attempt, SPEC, parts, b"plan", "", 9.0)


def knowing(n: Net, *peers: PeerId) -> Net:
    """Peers that do not vote, and have caught up."""
    for who in peers:
        n.do(A, n.join(who).greet(A, 0.0))
        n.do(who, n.machines[who].greet(A, 0.0))
    n.settle()
    return n


def sent(effects: Effects, kind: type) -> list[PeerId]:
    return [PeerId(e.to) for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


@given(st.lists(WORDS, max_size=30))
def test_only_what_a_quorum_has_accepted_under_one_ballot_is_learnt(words: list[tuple[Ballot, PeerId]]) -> None:
    """A value per ballot, as proposers see to; words arrive in any order, repeated, or never."""
    learner = Learner()
    accepted: dict[Ballot, set[PeerId]] = {}
    proposed: dict[Ballot, Value] = {}
    for ballot, who in words:
        accepted.setdefault(ballot, set()).add(who)
        if who == ballot.proposer:
            proposed[ballot] = replace(genesis(LINEAGE, who), round=ballot.number)
            learner.proposed(ballot, proposed[ballot])
        else:
            learner.accepted(who, ballot)
        value = learner.chosen(VOTERS)
        assert value is None or any(value == made and quorum(VOTERS, accepted[each]) for each, made in proposed.items())
    newest = max(proposed, default=None)
    loyal = newest is not None and all(newest >= ballot for ballot in accepted)
    assert not loyal or (learner.chosen(VOTERS) is not None) == quorum(VOTERS, accepted[newest])


@pytest.mark.parametrize("voters", [(A,), (A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E)])
def test_everybody_learns_within_two_hops_who_votes_and_who_only_takes_part(voters: tuple[PeerId, ...]) -> None:
    leader = PeerId("f" * 32)
    n = knowing(net(*voters), leader)
    slot = n.machines[A].slot
    n.propose(A, opening(n.tip(A), *voters, leader))
    n.hop()
    n.hop()
    assert {who: machine.slot for who, machine in n.machines.items()} == dict.fromkeys((*voters, leader), slot + 1)


def test_how_a_round_ended_is_learnt_as_fast_by_those_who_took_part() -> None:
    leader = PeerId("f" * 32)
    n = knowing(net(A, B, C), leader)
    opened = opening(n.tip(A), A, B, leader)
    assert leader in concerned(opened, change(opened, A))
    assert leader not in concerned(n.tip(A), change(n.tip(A), A))


def test_a_large_round_has_the_proposer_alone_tell_whom_it_ended_for() -> None:
    """Else each voter would tell hundreds of them, in a mesh where most are several hops away."""
    n = net(A, B, C)
    crowd = [PeerId(f"{i:032x}") for i in range(100, 140)]
    assert concerned(n.tip(A), opening(n.tip(A), *crowd)) == {A, B, C}


def test_what_was_shown_is_not_sent_again_when_it_is_decided() -> None:
    n = net(A, B, C)
    n.machines[A].audience([D])
    effects = n.machines[A].propose(change(n.tip(A), A), 0.0)
    assert sent(effects, Accept) == [B, C]
    (question,) = {id(e.message): e.message for e in effects if isinstance(e, Send)}.values()
    assert isinstance(question, Accept)
    effects = n.machines[A].receive(B, Accepted(2, question.ballot), 0.0)
    assert (sent(effects, Chosen), sent(effects, Decision)) == ([B, C], [D])


def test_who_hears_that_something_was_chosen_and_was_not_shown_it_asks() -> None:
    n = net(A, B, C)
    effects = n.machines[B].receive(A, Chosen(2, Ballot(1, A)), 0.0)
    assert sent(effects, Greet) == [A]
    assert n.machines[B].slot == 1
    value = change(n.tip(A), A)
    n.propose(A, value)
    n.cut = {B}
    n.settle()
    n.cut = set()
    n.do(B, n.machines[B].receive(A, Chosen(2, Ballot(1, A)), 0.0))
    n.settle()
    assert n.tip(B) == value


def test_another_ballot_than_was_shown_is_not_taken_for_chosen() -> None:
    n = net(A, B, C, D, E)
    n.propose(A, change(n.tip(A), A))
    n.wire = [item for item in n.wire if item[1] == B]
    n.hop()
    effects = n.machines[B].receive(C, Chosen(2, Ballot(2, C)), 0.0)
    assert sent(effects, Greet) == [C]
    assert n.machines[B].slot == 1


def test_an_acceptance_may_overtake_the_proposal() -> None:
    n = net(A, B, C, D, E)
    n.propose(A, change(n.tip(A), A))
    (late,) = [item for item in n.wire if item[1] == B]
    n.wire = [item for item in n.wire if item[1] in (C, D)]
    n.hop()
    n.hop()
    assert n.machines[B].slot == 1
    n.wire = [late]
    n.hop()
    assert n.machines[B].slot == 2


def test_an_author_that_is_taught_its_own_decision_tells_the_others() -> None:
    """Those who voted for it may know before the author does."""
    n = net(A, B, C)
    n.machines[A].audience([D])
    n.propose(A, change(n.tip(A), A))
    n.hop()
    value = n.tip(B)
    n.wire.clear()
    effects = n.machines[A].receive(B, Decision(2, value, 1), 0.0)
    assert (sent(effects, Chosen), sent(effects, Decision)) == ([B, C], [D])
