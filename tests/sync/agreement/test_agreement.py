"""One decision, message by message: who may propose, what binds whom. Duels and losses are in `tests/properties`."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Persist, Send
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Decision,
    Prepare,
    Promise,
    Refused,
)
from ictp2p.sync.values import StateRef, genesis
from ictp2p.types import PeerId
from tests.sync.agreement.agreeing import LINEAGE, PROFILE, A, B, C, D, E, Net, change, net


def test_a_founder_decides_alone_and_at_once() -> None:
    n = Net(A)
    effects = n.machines[A].bootstrap(genesis(LINEAGE, A), 0.0)
    assert effects[-1] == Decided(0, genesis(LINEAGE, A))
    assert isinstance(effects[0], Persist)
    n.do(A, effects)
    n.propose(A, change(n.tip(A), A, A, B))
    assert n.machines[A].slot == 1


def test_only_who_knows_no_chain_may_found_one() -> None:
    n = net(A, B)
    with pytest.raises(LocalProtocolError, match="slot 1"):
        n.machines[B].bootstrap(genesis(b"another!", B), 0.0)
    with pytest.raises(LocalProtocolError, match="vote alone"):
        Agreement(B, None, random.Random(0), PROFILE).bootstrap(genesis(LINEAGE, A), 0.0)


def test_the_author_of_the_last_decision_needs_one_round_trip() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A))
    n.hop()
    assert n.machines[A].slot == 1
    assert [n.machines[p].slot for p in (B, C)] == [2, 2], "theirs and the author's acceptance are a quorum"
    n.hop()
    assert n.machines[A].slot == 2


def test_anybody_else_needs_two() -> None:
    n = net(A, B, C)
    n.propose(B, change(n.tip(B), B))
    for _ in range(3):
        n.hop()
    assert n.machines[B].slot == 1
    n.hop()
    assert n.machines[B].slot == 2


def test_ballot_one_belongs_to_the_author_alone() -> None:
    n = net(A, B, C)
    value = change(n.tip(C), B)
    with pytest.raises(RemoteProtocolError, match="ballot"):
        n.machines[C].receive(B, Accept(2, Ballot(1, B), value), 0.0)
    with pytest.raises(RemoteProtocolError, match="prepare"):
        n.machines[C].receive(A, Prepare(2, LINEAGE, Ballot(1, A)), 0.0)
    with pytest.raises(RemoteProtocolError, match="ballot"):
        n.machines[C].receive(B, Accept(2, Ballot(5, A), value), 0.0)


def test_an_accepted_value_binds_later_proposers() -> None:
    n = net(A, B, C, D, E)
    first = change(n.tip(A), A, A, B, C, D)
    n.propose(A, first)
    n.wire = [item for item in n.wire if item[1] == B]
    n.hop()
    assert n.machines[B].slot == 1, "two of five are no quorum"
    n.cut = {A}
    n.wire.clear()
    n.propose(C, change(n.tip(C), C))
    n.settle()
    assert n.tip(B) == n.tip(C) == first


def test_of_two_accepted_values_the_one_with_the_higher_ballot_binds() -> None:
    n = net(A, B, C)
    low, high = change(n.tip(A), A, A, B), change(n.tip(B), B, B, C)
    machine = n.machines[C]
    n.propose(C, change(n.tip(C), C))
    prepare = next(m for _, _, m in n.wire if isinstance(m, Prepare))
    n.wire.clear()
    machine.receive(A, Promise(2, Ballot(9, C), Ballot(8, A), low), 0.0)
    n.do(C, machine.receive(A, Promise(2, prepare.ballot, Ballot(1, A), low), 0.0))
    accept = next(m for _, _, m in n.wire if isinstance(m, Accept))
    assert accept.value == low
    n = net(A, B, C, D)
    n.propose(C, change(n.tip(C), C))
    ballot = next(m for _, _, m in n.wire if isinstance(m, Prepare)).ballot
    n.wire.clear()
    n.do(C, n.machines[C].receive(D, Promise(2, ballot, Ballot(1, A), low), 0.0))
    n.do(C, n.machines[C].receive(B, Promise(2, ballot, Ballot(1, B), high), 0.0))
    assert next(m for _, _, m in n.wire if isinstance(m, Accept)).value == high


def test_a_promise_and_an_acceptance_are_on_disk_before_they_are_told() -> None:
    n = net(A, B, C)
    for message in (Prepare(2, LINEAGE, Ballot(4, C)), Accept(2, Ballot(4, C), change(n.tip(B), C))):
        effects = n.machines[B].receive(C, message, 0.0)
        assert isinstance(effects[0], Persist)
        assert isinstance(effects[1], Send)
        assert not any(isinstance(e, Persist) for e in effects[2:])
    effects = n.machines[A].propose(change(n.tip(A), A), 0.0)
    assert isinstance(effects[0], Persist)
    assert all(isinstance(e, Send) for e in effects[1:])


def test_an_answer_that_is_given_again_comes_again_with_what_it_relies_on() -> None:
    """What was asked for the first time may never have come to the disk; whether it has, the disk's owner knows."""
    n = net(A, B, C, D, E)
    for message in (Prepare(2, LINEAGE, Ballot(4, C)), Accept(2, Ballot(4, C), change(n.tip(B), C))):
        first, again = (n.machines[B].receive(C, message, 0.0) for _ in range(2))
        assert first == again
        assert isinstance(again[0], Persist)
        assert Acceptor(B, again[0].value).promised == Ballot(4, C)


def test_a_promise_outlives_the_process() -> None:
    n = net(A, B, C)
    n.do(B, n.machines[B].receive(C, Prepare(2, LINEAGE, Ballot(4, C)), 0.0))
    n.restart(B)
    n.wire.clear()
    n.do(B, n.machines[B].receive(A, Prepare(2, LINEAGE, Ballot(3, A)), 0.0))
    n.do(B, n.machines[B].receive(A, Accept(2, Ballot(1, A), change(n.tip(B), A)), 0.0))
    assert [m for _, _, m in n.wire] == [
        Refused(2, Ballot(3, A), Ballot(4, C)),
        Refused(2, Ballot(1, A), Ballot(4, C)),
    ]


def test_an_acceptance_outlives_the_process() -> None:
    n = net(A, B, C)
    value = change(n.tip(B), A)
    n.do(B, n.machines[B].receive(A, Accept(2, Ballot(1, A), value), 0.0))
    n.restart(B)
    n.wire.clear()
    n.do(B, n.machines[B].receive(C, Prepare(2, LINEAGE, Ballot(2, C)), 0.0))
    assert [m for _, _, m in n.wire] == [Promise(2, Ballot(2, C), Ballot(1, A), value)]


def test_an_owner_that_restarts_does_not_use_its_ballot_for_another_value() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A, A, B))
    n.wire.clear()
    n.restart(A)
    n.propose(A, change(n.tip(A), A, A, C))
    assert all(isinstance(m, Prepare) for _, _, m in n.wire)
    n.settle()
    assert n.tip(A).voters == (A, B)


def test_a_proposer_that_is_outbid_bids_higher() -> None:
    n = net(A, B, C)
    n.do(B, n.machines[B].receive(C, Prepare(2, LINEAGE, Ballot(7, C)), 0.0))
    n.wire.clear()
    n.cut = {C}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    assert n.machines[A].slot == n.machines[B].slot == 2


def test_duelling_proposers_pause_and_one_wins() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A))
    n.propose(B, change(n.tip(B), B))
    n.propose(C, change(n.tip(C), C))
    for _ in range(20):
        n.settle()
        n.tick(PROFILE.retry)
    assert n.machines[A].slot == n.machines[B].slot == n.machines[C].slot >= 2


def test_what_was_lost_is_sent_again() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A))
    n.wire.clear()
    n.tick(PROFILE.retry / 2)
    assert not any(isinstance(m, Accept) for _, _, m in n.wire)
    n.tick(PROFILE.retry)
    n.settle()
    assert n.machines[A].slot == 2


def test_a_proposal_is_replaced_only_while_it_is_unsent() -> None:
    n = net(A, B, C)
    first, second = change(n.tip(B), B, A, B), change(n.tip(B), B, B, C, A)
    n.propose(B, first)
    n.propose(B, second)
    n.settle()
    assert n.tip(A) == second
    n.propose(B, change(n.tip(B), B, B, C, D))
    n.propose(B, change(n.tip(B), B, B))
    n.settle()
    assert n.tip(B).voters == (B, C, D)


def test_who_is_no_voter_may_not_propose_and_is_not_answered() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A, A, B))
    n.settle()
    with pytest.raises(LocalProtocolError, match="cannot propose"):
        n.machines[C].propose(change(n.tip(C), C), 0.0)
    assert n.machines[A].receive(C, Prepare(3, LINEAGE, Ballot(4, C)), 0.0) == []


def test_what_nobody_could_read_is_not_proposed() -> None:
    """Regression: written down unchecked, it was on the disk of its author, who could not be started again."""
    n = net(A, B, C)
    with pytest.raises(LocalProtocolError, match=r"cannot propose .*matching regex"):
        n.machines[A].propose(change(n.tip(A), A, A, PeerId("zz")), 0.0)


def test_what_cannot_follow_is_refused_and_changes_nothing() -> None:
    n = net(A, B, C)
    wrong = replace(change(n.tip(A), A), round=9)
    with pytest.raises(LocalProtocolError, match="round 9"):
        n.machines[A].propose(wrong, 0.0)
    with pytest.raises(RemoteProtocolError, match="round 9"):
        n.machines[B].receive(A, Accept(2, Ballot(1, A), wrong), 0.0)
    with pytest.raises(RemoteProtocolError, match="round 9"):
        n.machines[B].receive(A, Decision(2, wrong, 0), 0.0)
    with pytest.raises(RemoteProtocolError, match="impossible"):
        n.machines[B].receive(A, Decision(2, replace(wrong, voters=(A, A)), 0), 0.0)
    assert n.machines[B].slot == 1


def test_two_decisions_for_one_slot_are_shouted_about() -> None:
    n = net(A, B, C)
    with pytest.raises(RemoteProtocolError, match="slot 1 was decided twice"):
        n.machines[B].receive(C, Decision(1, change(n.tip(B), C, A), 0), 0.0)


def test_late_answers_mean_nothing() -> None:
    n = net(A, B, C)
    for message in (
        Promise(1, Ballot(3, A), NO_BALLOT, None),
        Accepted(2, Ballot(1, A)),
        Refused(2, Ballot(1, A), Ballot(5, B)),
        Promise(2, Ballot(3, A), NO_BALLOT, None),
    ):
        assert n.machines[A].receive(B, message, 0.0) == []
    assert n.tip(A).state == StateRef(0, b"", ())


def test_an_answer_about_an_earlier_slot_does_not_count_for_this_one() -> None:
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.propose(A, change(n.tip(A), A))
    n.wire.clear()
    assert n.machines[A].receive(B, Accepted(2, Ballot(1, A)), 0.0) == []
    assert n.machines[A].slot == 2
    n.do(A, n.machines[A].receive(B, Accepted(3, Ballot(1, A)), 0.0))
    assert n.machines[A].slot == 3


def test_being_outbid_twice_makes_a_proposer_pause() -> None:
    n = net(A, B, C)
    n.propose(B, change(n.tip(B), B))
    ballot = next(m for _, _, m in n.wire if isinstance(m, Prepare)).ballot
    n.wire.clear()
    n.do(B, n.machines[B].receive(A, Refused(2, ballot, Ballot(5, A)), n.now))
    again = next(m for _, _, m in n.wire if isinstance(m, Prepare)).ballot
    assert again == Ballot(6, B)
    n.wire.clear()
    n.do(B, n.machines[B].receive(A, Refused(2, again, Ballot(8, A)), n.now))
    assert n.wire == []
    n.tick(2 * PROFILE.retry)
    assert any(isinstance(m, Prepare) and m.ballot == Ballot(9, B) for _, _, m in n.wire)


def test_a_wish_may_change_or_go_until_a_quorum_has_promised_and_the_promises_stay() -> None:
    n = net(A, B, C)
    n.cut = {A, C}
    n.propose(B, change(n.tip(B), B, A, B))
    n.settle()
    b = n.machines[B]
    assert not b.wavers(n.now)
    n.tick(PROFILE.retry)
    assert b.wavers(n.now), "it is as old as a repetition"
    b.withdraw()
    n.cut = {A}
    n.tick(PROFILE.retry)
    n.settle()
    assert n.machines[C].slot == 1, "there is a quorum of promises, and nothing is wished for"
    n.hops = 0
    n.propose(B, change(n.tip(B), B, B, C))
    n.settle()
    assert n.tip(C).voters == (B, C)
    assert n.hops <= 3, "no promise is asked for again"
