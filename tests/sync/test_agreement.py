"""The chain of decisions, message by message. The adversarial schedules are in `tests/properties`."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from ictp2p.errors import LocalProtocolError, RemoteProtocolError, StateError
from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.acceptor import KEY
from ictp2p.sync.agreement import Agreement, Decided, ForeignChain, QuorumLost, QuorumRegained
from ictp2p.sync.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Decision,
    Greet,
    Prepare,
    Promise,
    Refused,
)
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.values import StateRef, Value, Voters, genesis
from ictp2p.types import PeerId

A, B, C, D = (PeerId(f"{i:032x}") for i in range(1, 5))
LINEAGE = b"lineage!"
PROFILE = RoundProfile.local()


class Net:
    """Agreements joined by queues that the test empties."""

    def __init__(self, *peers: PeerId) -> None:
        self.disks: dict[PeerId, bytes] = {}
        self.notices: dict[PeerId, list[Notice]] = {p: [] for p in peers}
        self.machines = {p: Agreement(p, None, random.Random(1), PROFILE) for p in peers}
        self.wire: list[tuple[PeerId, PeerId, Message]] = []
        self.now = 0.0
        self.hops = 0
        self.cut: set[PeerId] = set()

    def do(self, who: PeerId, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Persist(key, value):
                    assert key == KEY
                    self.disks[who] = value
                case Send(to, message):
                    self.wire.append((who, PeerId(to), message))
                case Notice():
                    self.notices[who].append(effect)

    def settle(self) -> None:
        while self.wire:
            self.hop()

    def hop(self) -> None:
        """Everything that is under way arrives."""
        self.hops += 1
        flying, self.wire = self.wire, []
        for sender, to, message in flying:
            if to in self.machines and not {sender, to} & self.cut:
                self.do(to, self.machines[to].receive(sender, message, self.now))

    def propose(self, who: PeerId, value: Value) -> None:
        self.do(who, self.machines[who].propose(value, self.now))

    def restart(self, who: PeerId) -> None:
        self.machines[who] = Agreement(who, self.disks.get(who), random.Random(2), PROFILE)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for who, machine in self.machines.items():
            self.do(who, machine.handle_timeout(self.now))

    def tip(self, who: PeerId) -> Value:
        tip = self.machines[who].tip
        assert tip is not None
        return tip[1]


def change(tip: Value, author: PeerId, *voters: PeerId) -> Voters:
    return Voters(tip.lineage, voters or tip.voters, tip.state, author, tip.round, tip.attempt)


def net(*peers: PeerId, slots: int = 1) -> Net:
    """A mesh founded by A in which `peers` vote; slot 1 is decided."""
    made = Net(*peers)
    made.do(A, made.machines[A].bootstrap(genesis(LINEAGE, A), 0.0))
    for who in peers[1:]:
        made.do(who, made.machines[who].greet(A, 0.0))
    made.settle()
    for _ in range(slots):
        made.propose(A, change(made.tip(A), A, *peers))
        made.settle()
    made.hops = 0
    return made


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
    n.hop()
    assert n.machines[A].slot == 2
    n.hop()
    assert [n.machines[p].slot for p in (B, C)] == [2, 2]


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
    n = net(A, B, C)
    first = change(n.tip(A), A, A, B, C, D)
    n.propose(A, first)
    n.wire = [item for item in n.wire if item[1] == B]
    n.hop()
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
        assert [type(e) for e in effects] == [Persist, Send]
    effects = n.machines[A].propose(change(n.tip(A), A), 0.0)
    assert isinstance(effects[0], Persist)
    assert all(isinstance(e, Send) for e in effects[1:])


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


def test_a_joiner_that_knows_nothing_jumps_to_the_tip() -> None:
    n = net(A, B, slots=5)
    n.machines[C] = Agreement(C, None, random.Random(3), PROFILE)
    n.notices[C] = []
    n.do(C, n.machines[C].greet(B, 0.0))
    n.settle()
    assert n.notices[C] == [Decided(5, n.tip(A))]


def test_greeting_works_in_either_direction() -> None:
    n = net(A, B, slots=3)
    n.machines[C] = Agreement(C, None, random.Random(3), PROFILE)
    n.notices[C] = []
    n.do(A, n.machines[A].greet(C, 0.0))
    n.settle()
    assert n.machines[C].slot == 3


def test_who_is_a_little_behind_is_told_every_slot_in_order() -> None:
    n = net(A, B, C)
    n.cut = {C}
    for _ in range(4):
        n.propose(A, change(n.tip(A), A))
        n.settle()
    n.cut = set()
    n.notices[C].clear()
    n.do(C, n.machines[C].greet(B, 0.0))
    n.wire.extend(reversed([n.wire.pop()]))
    n.settle()
    assert [d.slot for d in n.notices[C] if isinstance(d, Decided)] == [2, 3, 4, 5]


def test_who_is_far_behind_is_told_only_the_newest() -> None:
    n = net(A, B, C)
    n.cut = {C}
    for _ in range(PROFILE.history + 3):
        n.propose(A, change(n.tip(A), A))
        n.settle()
    n.cut = set()
    n.notices[C].clear()
    n.do(C, n.machines[C].greet(B, 0.0))
    n.settle()
    assert [d.slot for d in n.notices[C] if isinstance(d, Decided)] == [PROFILE.history + 4]


def test_a_decision_that_overtook_others_asks_for_them_first() -> None:
    n = net(A, B, C)
    n.cut = {C}
    for _ in range(2):
        n.propose(A, change(n.tip(A), A))
        n.settle()
    assert n.machines[C].receive(A, Decision(3, n.tip(A), 1), 0.0) == [Send(A, Greet(1, LINEAGE))]


def test_an_acceptor_that_is_behind_is_taught_and_then_answers() -> None:
    n = net(A, B)
    n.propose(A, change(n.tip(A), A, A, B, C))
    n.settle()
    n.machines[C] = Agreement(C, None, random.Random(3), PROFILE)
    n.notices[C] = []
    n.cut = {B}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    assert n.machines[A].slot == n.machines[C].slot == 3


def test_a_proposer_that_is_behind_is_taught() -> None:
    n = net(A, B, C)
    n.cut = {C}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.cut = set()
    n.propose(C, change(n.tip(C), C))
    n.settle()
    assert n.machines[C].slot == 2
    assert n.tip(C) == n.tip(A)


def test_decisions_reach_the_audience_and_the_wards() -> None:
    n = net(A, B)
    for who in (C, D):
        n.machines[who] = Agreement(who, None, random.Random(3), PROFILE)
        n.notices[who] = []
    n.machines[A].audience([C])
    n.machines[C].audience([], wards=[D])
    n.propose(A, change(n.tip(A), A))
    n.settle()
    assert n.machines[D].slot == 2


def test_lost_decisions_are_made_up_for_by_comparing_notes() -> None:
    n = net(A, B)
    n.machines[B]._rng = random.Random(1)
    n.cut = {B}
    n.do(A, n.machines[A].start(n.now))
    n.do(B, n.machines[B].start(n.now))
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.cut = set()
    n.tick(2 * PROFILE.anti_entropy)
    n.settle()
    assert n.machines[B].slot == 2


def test_separately_founded_meshes_do_not_mix() -> None:
    n = net(A, B)
    n.machines[C] = Agreement(C, None, random.Random(3), PROFILE)
    n.notices[C] = []
    n.do(C, n.machines[C].bootstrap(genesis(b"another!", C), 0.0))
    for _ in range(3):
        n.do(C, n.machines[C].greet(A, 0.0))
        n.settle()
    foreign = [x for x in n.notices[A] if isinstance(x, ForeignChain)]
    assert foreign == [ForeignChain(C, b"another!", LINEAGE)]
    before = n.machines[A].slot
    assert n.machines[A].receive(C, Prepare(before + 1, b"another!", Ballot(9, C)), 0.0) == []
    assert n.machines[A].receive(C, Decision(before + 1, genesis(b"another!", C), 0), 0.0) == []
    assert n.machines[A].slot == before


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
    n.tick(PROFILE.quorum_deadline / 2)
    assert QuorumLost((A, B, C), (B, C)) not in n.notices[A]
    assert (n.machines[A].next_timeout() or 0) <= PROFILE.quorum_deadline
    n.tick(PROFILE.quorum_deadline)
    n.tick(PROFILE.quorum_deadline)
    assert [x for x in n.notices[A] if not isinstance(x, Decided)] == [QuorumLost((A, B, C), (B, C))]
    n.do(A, n.machines[A].suspects([], n.now))
    assert n.notices[A][-1] == QuorumRegained()


def test_a_proposal_that_nobody_answers_is_a_lost_quorum_without_any_suspicion() -> None:
    n = net(A, B, C)
    n.cut = {B, C}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.tick(PROFILE.quorum_deadline)
    assert any(isinstance(x, QuorumLost) for x in n.notices[A])
    n.cut = set()
    n.tick(PROFILE.retry)
    n.settle()
    assert n.notices[A][-1] == QuorumRegained()


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
