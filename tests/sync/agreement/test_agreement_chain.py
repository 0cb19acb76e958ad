"""The chain of decisions: who joins, who is behind, who misses a quorum, and what is left of it on disk."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import StateError
from ictp2p.machine import Send
from ictp2p.sync.agreement.chain import Agreement, Decided, ForeignChain
from ictp2p.sync.agreement.quorum_watch import QuorumLost, QuorumRegained
from ictp2p.sync.messages import (
    Ballot,
    Decision,
    Greet,
    Prepare,
)
from ictp2p.sync.values import genesis
from ictp2p.types import PeerId
from tests.sync.agreement.agreeing import LINEAGE, PROFILE, A, B, C, D, change, net


@pytest.mark.parametrize(("greeter", "greeted"), [(C, B), (A, C)])
def test_a_joiner_that_knows_nothing_jumps_to_the_tip_whoever_greets(greeter: PeerId, greeted: PeerId) -> None:
    n = net(A, B, slots=5)
    n.join(C)
    n.do(greeter, n.machines[greeter].greet(greeted, 0.0))
    n.settle()
    assert n.notices[C] == [Decided(5, n.tip(A))]


@pytest.mark.parametrize(("missed", "told"), [(4, 4), (PROFILE.history + 3, 1)])
def test_who_is_a_little_behind_is_told_every_slot_in_order_and_who_is_far_only_the_newest(
    missed: int, told: int
) -> None:
    n = net(A, B, C)
    n.go_on_without(C, missed)
    n.do(C, n.machines[C].greet(B, 0.0))
    n.settle()
    assert [d.slot for d in n.notices[C] if isinstance(d, Decided)] == list(range(missed + 2))[-told:]


def test_a_decision_that_overtook_others_asks_for_them_first() -> None:
    n = net(A, B, C)
    n.go_on_without(C, 2)
    assert n.machines[C].receive(A, Decision(3, n.tip(A), 1), 0.0) == [Send(A, Greet(1, LINEAGE))]


@given(st.permutations(range(2, 7)))
def test_lessons_may_come_in_any_order_and_each_decision_is_told_in_its_turn(order: list[int]) -> None:
    """Regression: of decisions that had come by different ways only the next one counted."""
    n = net(A, B, C)
    n.go_on_without(C, 5)
    c, log = n.machines[C], n.machines[A]._history._log
    for slot in order:
        n.do(C, c.receive(A, Decision(slot, log[slot], 1), 0.0))
        while effects := c.catch_up(0.0):
            n.do(C, effects)
    assert n.tip(C) == n.tip(A)
    assert [each.slot for each in n.notices[C] if isinstance(each, Decided)] == [2, 3, 4, 5, 6]


def test_an_acceptor_that_is_behind_is_taught_and_then_answers() -> None:
    n = net(A, B)
    n.propose(A, change(n.tip(A), A, A, B, C))
    n.settle()
    n.join(C)
    n.cut = {B}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    assert n.machines[A].slot == n.machines[C].slot == 3


def test_a_proposer_that_is_behind_is_taught() -> None:
    n = net(A, B, C)
    n.go_on_without(C, 1)
    n.propose(C, change(n.tip(C), C))
    n.settle()
    assert n.machines[C].slot == 2
    assert n.tip(C) == n.tip(A)


def test_who_starts_again_is_informed_once_every_voter_has_said_what_it_knows() -> None:
    """Regression: it trained on from what its own disk knew, for a phase that it then could not bring."""
    n = net(A, B, C)
    n.run(10 * PROFILE.retry)  # until what it has learnt is on its disk
    n.settle()
    n.go_on_without(C, 1)
    n.restart(C)
    c = n.machines[C]
    assert c.slot == 1
    assert not c.informed
    n.do(A, n.machines[A].greet(C, n.now))
    n.settle()
    assert not c.informed, "B may know more"
    n.go_on_without(C, 1)
    n.restart(C)
    c = n.machines[C]
    for who in (A, B):
        n.do(who, n.machines[who].greet(C, n.now))
    n.hop()
    assert not c.informed, "it has to learn yet what they know"
    n.settle()
    c.audience([A])
    assert c.informed
    assert n.tip(C) == n.tip(A)
    n.go_on_without(A, 0)
    n.restart(B)
    n.do(A, n.machines[A].greet(B, n.now))
    n.settle()
    assert not n.machines[B].informed
    n.do(B, n.machines[B].suspects([C], n.now))
    assert n.machines[B].informed, "who is suspected says nothing"


def test_who_has_no_former_life_has_no_old_news() -> None:
    n = net(A, slots=0)
    assert n.machines[A].informed
    assert n.join(B).informed


def test_decisions_reach_the_audience_and_the_wards() -> None:
    n = net(A, B)
    n.join(C).audience([], wards=[D])
    n.join(D)
    n.machines[A].audience([C])
    n.propose(A, change(n.tip(A), A))
    n.settle()
    assert n.machines[D].slot == 2


def test_lost_decisions_are_made_up_for_by_comparing_notes() -> None:
    n = net(A, B, C)
    for who in (A, C):
        n.do(who, n.machines[who].start(n.now))
    n.go_on_without(C, 1)
    n.tick(2 * PROFILE.anti_entropy)
    n.settle()
    assert n.machines[C].slot == 2


def test_separately_founded_meshes_do_not_mix() -> None:
    n = net(A, B)
    n.do(C, n.join(C).bootstrap(genesis(b"another!", C), 0.0))
    for _ in range(3):
        n.do(C, n.machines[C].greet(A, 0.0))
        n.settle()
    foreign = [x for x in n.notices[A] if isinstance(x, ForeignChain)]
    assert foreign == [ForeignChain(C, b"another!", LINEAGE, False, True)]
    a, longer = n.machines[A], n.machines[A].slot + 1
    assert a.receive(D, Greet(longer, b"another!"), 0.0) == [ForeignChain(D, b"another!", LINEAGE, True, False)]
    before = n.machines[A].slot
    assert n.machines[A].receive(C, Prepare(before + 1, b"another!", Ballot(9, C)), 0.0) == []
    assert n.machines[A].receive(C, Decision(before + 1, genesis(b"another!", C), 0), 0.0) == []
    assert n.machines[A].slot == before
    for stranger in range(1000):
        a.receive(PeerId(f"{stranger:032x}"), Greet(0, b"another!"), 0.0)
    assert len(a._foreign) < 1000, "not of each of its peers, whoever they are by then"


def test_the_coordinator_is_the_first_voter_that_is_not_suspected() -> None:
    n = net(A, B, C)
    assert n.machines[B].coordinator == A
    n.machines[B].suspects([A], 0.0)
    assert n.machines[B].is_coordinator
    n.machines[A].suspects([A, B], 0.0)
    assert n.machines[A].is_coordinator
    assert Agreement(D, None, random.Random(0), PROFILE).coordinator is None


def test_a_lost_quorum_is_reported_once_and_so_is_its_return() -> None:
    n = net(A, B, C)
    n.do(A, n.machines[A].suspects([B, C], n.now))
    n.run(PROFILE.quorum_deadline / 2)
    assert QuorumLost((A, B, C), (B, C)) not in n.notices[A]
    assert (n.machines[A].next_timeout() or 0) <= PROFILE.quorum_deadline
    n.run(PROFILE.quorum_deadline)
    n.run(PROFILE.quorum_deadline)
    assert [x for x in n.notices[A] if not isinstance(x, Decided)] == [QuorumLost((A, B, C), (B, C))]
    n.do(A, n.machines[A].suspects([], n.now))
    assert n.notices[A][-1] == QuorumRegained()


def test_a_proposal_that_nobody_answers_is_a_lost_quorum_without_any_suspicion() -> None:
    n = net(A, B, C)
    n.cut = {B, C}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.run(PROFILE.quorum_deadline)
    assert any(isinstance(x, QuorumLost) for x in n.notices[A])
    n.cut = set()
    n.tick(PROFILE.retry)
    n.settle()
    assert n.notices[A][-1] == QuorumRegained()


def test_who_stood_still_itself_does_not_say_that_the_quorum_is_lost() -> None:
    """Regression: a write that took as long as the deadline, before anybody had been asked, was a lost quorum."""
    n = net(A, B, C)
    n.propose(A, change(n.tip(A), A))
    n.tick(PROFILE.quorum_deadline + 1.0)  # only now, that it is on A's disk, its questions leave
    n.settle()
    assert n.machines[A].slot == 2
    assert not any(isinstance(x, QuorumLost) for x in n.notices[A])


def test_what_was_learnt_is_saved_soon() -> None:
    n = net(A, B)
    n.tick(PROFILE.retry)
    n.restart(B)
    assert n.machines[B].slot == 1


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x97\x01\x02", b"garbage"])
def test_a_record_that_cannot_be_read_is_named(stored: bytes) -> None:
    with pytest.raises(StateError, match="acceptor record"):
        Agreement(A, stored, random.Random(0), PROFILE)


def test_another_peers_record_is_refused() -> None:
    n = net(A, B)
    n.tick(PROFILE.retry)
    with pytest.raises(StateError, match=B):
        Agreement(A, n.disks[B], random.Random(0), PROFILE)
