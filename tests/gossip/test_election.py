"""Eventually one leader, terms that never fall, and no office held twice: under loss, reordering, crashes, cuts."""

import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.errors import RemoteProtocolError, StateError
from ictp2p.gossip.election import (
    TERM_KEY,
    Claim,
    Election,
    ElectionProfile,
    LeaderChanged,
    Past,
)
from ictp2p.machine import Message, Persist, Send
from ictp2p.types import PeerId
from tests.gossip.swim_group import machine, record
from tests.scheduler import Scheduled

PROFILE = ElectionProfile(settle=3.0, repeat=1.0)
HIGHEST = 2**30
A, B, C, D = (PeerId(letter * 32) for letter in "abcd")


def notices(effects):
    return [effect for effect in effects if isinstance(effect, LeaderChanged)]


def settled(me, members=(A, B, C), term=0):
    """An election whose peer is content with A, leader by claim of term 1."""
    election = Election(me, Past(term), PROFILE)
    election.view(members, frozenset(), 0.0)
    election.receive(A, Claim(1, A), 0.1)
    return election


class TestOnePeer:
    def test_a_lone_fresh_worker_claims_only_after_a_still_view(self):
        election = Election(A, Past(0), PROFILE)
        assert election.next_timeout() is None
        assert election.handle_timeout(0.0) == []
        assert notices(election.view((A,), frozenset(), 0.0)) == []
        assert notices(election.view((A, B), frozenset(), 2.0)) == []
        assert notices(election.handle_timeout(4.99)) == []
        assert election.next_timeout() == 5.0
        assert notices(election.handle_timeout(5.0)) == [LeaderChanged(A, 1)]
        assert election.in_office

    def test_who_leads_nobody_has_nothing_to_repeat_until_somebody_comes(self):
        election = Election(A, Past(0), PROFILE)
        election.view((A,), frozenset(), 0.0)
        assert notices(election.handle_timeout(3.0)) == [LeaderChanged(A, 1)]
        assert election.next_timeout() is None
        assert Send(B, Claim(1, A)) in election.view((A, B), frozenset(), 50.0)
        assert election.next_timeout() == 51.0

    def test_who_is_not_the_best_waits_and_asks(self):
        election = Election(B, Past(0), PROFILE)
        assert election.view((A, B, C), frozenset(), 0.0) == [Send(A, Claim(0, "")), Send(C, Claim(0, ""))]
        assert notices(election.handle_timeout(100.0)) == []

    def test_rank_comes_before_id(self):
        election = Election(C, Past(0), PROFILE)
        election.view((A, B, C), frozenset(), 0.0, {A: 1, B: 1, C: 0})
        assert notices(election.handle_timeout(3.0)) == [LeaderChanged(C, 1)]

    def test_the_term_is_on_disk_before_the_claim_leaves(self):
        election = Election(A, Past(6), PROFILE)
        election.view((A, B), frozenset(), 0.0)
        effects = election.handle_timeout(3.0)
        assert effects == [Persist(TERM_KEY, Past(7, held=True).encode()), LeaderChanged(A, 7), Send(B, Claim(7, A))]

    def test_a_leader_that_goes_is_followed_at_once(self):
        election = settled(B)
        effects = election.view((B, C), frozenset(), 50.0)
        assert notices(effects) == [LeaderChanged(B, 2)]
        assert Send(C, Claim(2, B)) in effects

    def test_the_next_best_takes_over_at_once_when_the_best_goes_too(self):
        election = settled(C)
        assert notices(election.view((B, C), frozenset(), 50.0)) == []
        assert notices(election.view((C,), frozenset(), 50.1)) == [LeaderChanged(C, 2)]

    def test_the_best_does_not_gain_an_office_while_it_is_suspected(self):
        election = settled(C)
        assert notices(election.view((B, C), frozenset(), 50.0)) == []
        assert notices(election.view((B, C), frozenset([B]), 50.1)) == [LeaderChanged(C, 2)]

    def test_a_suspected_leader_stays(self):
        election = settled(B)
        assert notices(election.view((A, B, C), frozenset([A]), 50.0)) == []
        assert notices(election.handle_timeout(500.0)) == []
        assert election.leader == A

    def test_a_better_newcomer_does_not_depose_a_sitting_leader(self):
        election = settled(B, (A, B, C))
        election.view((B, C), frozenset(), 1.0)
        effects = election.view((A, B, C), frozenset(), 1.5)
        assert effects == [Send(A, Claim(2, B))], "a newcomer is told at once, and nobody is asked"
        assert notices(election.handle_timeout(100.0)) == []

    def test_a_leader_that_only_the_mesh_remembers_is_waited_for(self):
        election = Election(A, Past(0), PROFILE)
        election.view((A, B), frozenset(), 0.0)
        assert notices(election.seen(9, D, 1.0)) == [LeaderChanged(D, 9)]
        assert notices(election.handle_timeout(3.9)) == []
        assert notices(election.handle_timeout(4.0)) == [LeaderChanged(A, 10)]

    def test_an_office_does_not_outlive_its_process(self):
        election = Election(C, Past(5), PROFILE)
        election.view((A, B, C), frozenset(), 0.0)
        assert notices(election.receive(A, Claim(5, C), 0.1)) == [LeaderChanged(C, 6, told=True)]

    def test_who_held_a_term_in_a_former_life_claims_above_a_lower_claim_to_it(self):
        """Regression: the mesh remembered (5, C), C and the others followed (5, A), and routed around each other."""
        election = Election(C, Past(5, held=True), PROFILE)
        election.view((A, C, D), frozenset(), 0.0)
        assert notices(election.receive(A, Claim(5, A), 0.1)) == [LeaderChanged(C, 6, told=True)]
        for past in (Past(5, held=False), Past(4, held=True)):
            election = Election(C, past, PROFILE)
            election.view((A, C, D), frozenset(), 0.0)
            assert notices(election.receive(A, Claim(5, A), 0.1)) == [LeaderChanged(A, 5)]
        election = Election(C, Past(5, held=True), PROFILE)
        election.view((A, C, D), frozenset(), 0.0)
        assert notices(election.receive(D, Claim(5, D), 0.1)) == [LeaderChanged(D, 5)]

    def test_who_is_believed_in_by_an_older_claim_takes_the_office_if_there_is_no_other(self):
        election = Election(C, Past(9), PROFILE)
        election.view((A, B, C), frozenset(), 0.0)
        assert notices(election.receive(A, Claim(5, C), 0.1)) == [LeaderChanged(C, 10, told=True)]

    def test_a_leader_claims_anew_above_a_term_that_somebody_remembers(self):
        election = settled(A)
        election.receive(B, Claim(1, A), 0.2)
        assert election.in_office
        assert notices(election.receive(D, Claim(9, ""), 1.0)) == [LeaderChanged(A, 10)]

    def test_a_follower_has_nothing_to_say_to_a_term_without_a_leader(self):
        election = settled(B)
        assert election.receive(D, Claim(9, ""), 1.0) == []
        assert election.leader == A

    def test_an_older_claim_is_answered(self):
        assert settled(B).receive(C, Claim(0, ""), 1.0) == [Send(C, Claim(1, A))]

    def test_an_office_is_handed_over_by_the_heirs_own_claim(self):
        leader, heir = settled(A), settled(B)
        leader.receive(B, Claim(1, A), 0.2)
        (asked,) = leader.hand_over(B)
        assert asked == Send(B, Claim(leader.term + 1, B))
        assert leader.in_office
        assert notices(heir.receive(A, asked.message, 0.3)) == [LeaderChanged(B, leader.term + 2, told=True)]
        assert notices(heir.receive(A, asked.message, 0.4)) == []
        leader.receive(B, Claim(heir.term, B), 0.5)
        assert (leader.leader, leader.hand_over(C)) == (B, [])

    def test_an_office_is_not_handed_to_who_is_not_there(self):
        leader = settled(A)
        leader.receive(B, Claim(1, A), 0.2)
        assert leader.in_office
        assert leader.hand_over(D) == leader.hand_over(A) == []

    def test_in_one_term_the_higher_id_wins(self):
        election = settled(B)
        assert notices(election.receive(D, Claim(1, D), 1.0)) == [LeaderChanged(D, 1)]
        assert election.receive(A, Claim(1, A), 1.1) == [Send(A, Claim(1, D))]

    def test_a_content_follower_tells_only_its_leader(self):
        assert settled(B).handle_timeout(1.0) == [Send(A, Claim(1, A))]

    def test_foreign_messages_and_impossible_terms_are_refused(self):
        election = settled(B)
        with pytest.raises(RemoteProtocolError, match="sent Message to an election"):
            election.receive(C, Message(), 1.0)
        with pytest.raises(RemoteProtocolError, match="term -1"):
            election.seen(-1, A, 1.0)
        with pytest.raises(RemoteProtocolError, match="not in"):
            election.seen(HIGHEST, A, 1.0)


@given(st.builds(Past, st.integers(0, HIGHEST - 1), st.booleans()))
def test_the_past_survives_the_disk(past):
    assert Past.decode(past.encode()) == past


def test_a_first_start_has_no_term_and_garbage_is_named():
    assert Past.decode(None) == Past(0, held=False)
    for garbage in (b"", b"1234567", b"\0" + b"\xff" * 8, b"\2" + b"\0" * 8, b"\0" * 10):
        with pytest.raises(StateError, match="stored term"):
            Past.decode(garbage)


@pytest.mark.parametrize("fields", [(-1, A), (HIGHEST, A), (1, "x" * 65), (1.5, A), (1, None)])
def test_the_decoder_refuses_what_cannot_be(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([41, *fields]), type=Claim)


@given(st.integers(0, HIGHEST))
def test_a_term_that_the_wire_takes_has_an_incarnation_of_its_cluster_and_room_for_a_later_one(term):
    """It is the upper half: a claim to a term that none could hold would keep all later leaders out of the mesh."""
    frame = msgspec.msgpack.encode([41, term, A])
    if term == HIGHEST:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(frame, type=Claim)
        return
    claim = msgspec.msgpack.decode(frame, type=Claim)
    cluster = machine("cluster")
    cluster.start(b"card", claim.term << 32, 0.0)
    cluster.outbid(record("cluster", claim.term << 32), 1.0)
    assert cluster.record.incarnation >> 32 == term


def test_presets_keep_their_order():
    local, lan, wan = ElectionProfile.local(), ElectionProfile.lan(), ElectionProfile.wan()
    assert local.settle < lan.settle < wan.settle
    assert all(p.repeat < p.settle for p in (local, lan, wan))


# Below: several peers under an adversarial scheduler. Time is virtual; each message's fate is a function of the seed
# and of its own number, so that leaving out a fault while shrinking does not shift the fate of the others.

PEERS = tuple(PeerId(letter * 32) for letter in "abcde")
DETECT = 1.5
"""Seconds after which the scheduler's membership oracle tells everyone what is so."""


@dataclass
class World(Scheduled):
    seed: int
    loss: float
    disks: dict = field(default_factory=lambda: {peer: {} for peer in PEERS})
    lives: dict = field(default_factory=lambda: dict.fromkeys(PEERS, 0))
    side: dict = field(default_factory=lambda: dict.fromkeys(PEERS, 0))
    views: dict = field(default_factory=dict)
    claims: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)

    def chance(self, *key):
        return random.Random(f"{self.seed}/{key}")

    def start(self, peer):
        if peer in self.machines:
            return
        self.lives[peer] += 1
        self.machines[peer] = Election(peer, Past.decode(self.disks[peer].get(TERM_KEY)), PROFILE)
        self.views[peer] = None
        self.look(peer)

    def crash(self, peer):
        self.machines.pop(peer, None)

    def truth(self, peer):
        return tuple(p for p in PEERS if p in self.machines and self.side[p] == self.side[peer])

    def look(self, peer):
        """The membership of one peer, as late as failure detection makes it."""
        election, truth = self.machines.get(peer), self.truth(peer)
        if election and truth != self.views[peer]:
            self.views[peer] = truth
            self.execute(peer, election.view(truth, frozenset(), self.now))

    def execute(self, peer, effects):
        election = self.machines[peer]
        for effect in effects:
            match effect:
                case Persist(key, value):
                    before = Past.decode(self.disks[peer].get(key)).term
                    assert Past.decode(value).term > before, "a term fell"
                    self.disks[peer][key] = value
                case LeaderChanged(leader, term):
                    self.changes.append((self.now, peer, leader, term))
                    if leader == peer:
                        claimed = self.claims.setdefault((term, peer), self.lives[peer])
                        assert claimed == self.lives[peer], "one office was held by two lives"
                case Send(to, message):
                    assert to != peer
                    if message.leader == peer:
                        assert Past.decode(self.disks[peer].get(TERM_KEY)).term >= message.term, (
                            "sent before it was on disk"
                        )
                    self.send(peer, to, message)
        assert election.term >= Past.decode(self.disks[peer].get(TERM_KEY)).term

    def send(self, source, to, message):
        dice = self.chance(source, to, self.count)
        for _ in range(2 if dice.random() < 0.1 else 1):
            if dice.random() >= self.loss:
                self.put(self.now + dice.uniform(0.0, 2.0 if self.loss else 0.2), "deliver", source, to, message)

    def deliver(self, source, to, message):
        if to in self.machines and self.side[source] == self.side[to]:
            self.execute(to, self.machines[to].receive(source, message, self.now))

    def changed(self, key):
        """After a fault, everybody's view follows, each in its own time."""
        for peer in PEERS:
            self.put(self.now + self.chance("detect", key, peer).uniform(0.1, DETECT), "look", peer)

    def fault(self, number, kind, target):
        peer = PEERS[target % len(PEERS)]
        if kind == "crash":
            self.crash(peer)
        elif kind == "start":
            self.start(peer)
        elif kind == "cut":
            self.side[peer] = 1 - self.side[peer]
        else:
            self.side = dict.fromkeys(PEERS, 0)
        self.changed(number)

    def heal(self):
        self.loss, self.side = 0.0, dict.fromkeys(PEERS, 0)
        self.changed("heal")


FAULTS = st.lists(
    st.tuples(st.floats(0.0, 4.0), st.sampled_from(["crash", "start", "cut", "mend"]), st.integers(0, 4)), max_size=20
)


@settings(max_examples=150, deadline=None)
@given(FAULTS, st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 2**32))
@example(
    [(3.9, "crash", 0), (0.0, "start", 0)], 0.0, 0
)  # a leader back before anybody noticed: a new term, not the old
def test_after_the_last_fault_everybody_follows_one_live_leader_and_stays_with_it(faults, loss, seed):
    world = World(seed, loss)
    for peer in PEERS[:3]:
        world.start(peer)
    world.changed("start")
    for number, (pause, kind, target) in enumerate(faults):
        world.run(world.now + pause)
        world.fault(number, kind, target)
    world.run(world.now + 2.0)
    if not world.machines:
        world.start(PEERS[0])
    world.heal()
    world.run(world.now + 2.0 + DETECT + PROFILE.settle + 4 * PROFILE.repeat)
    beliefs = {(e.term, e.leader) for e in world.machines.values()}
    assert len(beliefs) == 1, f"after the last fault: {beliefs}"
    (_, leader) = beliefs.pop()
    assert leader in world.machines
    assert [p for p, e in world.machines.items() if e.in_office] == [leader]
    changes = len(world.changes)
    world.loss = 0.5
    world.run(world.now + 60.0)
    assert len(world.changes) == changes, "a sitting leader lost its office without a fault"


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 5), st.integers(0, 2**32))
def test_a_dead_leader_is_followed_within_the_detection_and_one_message(size, seed):
    world = World(seed, 0.0)
    for peer in PEERS[:size]:
        world.start(peer)
    world.changed("start")
    world.run(20.0)
    (leader,) = {e.leader for e in world.machines.values()}
    world.crash(leader)
    world.changed("crash")
    world.run(20.0 + DETECT + 0.2)
    (successor,) = {e.leader for e in world.machines.values()}
    assert successor == min(world.machines)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("claim"), st.integers(0, 6), st.sampled_from(["", *PEERS])),
            st.tuples(st.just("seen"), st.integers(0, 6), st.sampled_from(PEERS)),
            st.tuples(st.just("view"), st.sets(st.sampled_from(PEERS)), st.sets(st.sampled_from(PEERS))),
            st.tuples(st.just("wait"), st.floats(0.0, 5.0), st.none()),
        ),
        max_size=40,
    )
)
def test_whatever_arrives_knowledge_only_grows_and_a_claim_never_repeats_a_term(inputs):
    election, now, best, claimed = Election(C, Past(0), PROFILE), 0.0, (0, ""), []
    for kind, first, second in inputs:
        match kind:
            case "claim":
                effects = election.receive(A, Claim(first, second), now)
            case "seen":
                effects = election.seen(first, second, now)
            case "view":
                effects = election.view(sorted({*first, C}), frozenset(second), now)
            case _:
                now += first
                effects = election.handle_timeout(now)
        claimed += [n.term for n in notices(effects) if n.leader == C]
        assert (election.term, election.leader or "") >= best
        best = (election.term, election.leader or "")
        claimed += [n.term for n in notices(election.handle_timeout(now)) if n.leader == C]
        assert (election.next_timeout() or now + 1) > now, "what was due is done: the driver's timer would spin"
        best = (election.term, election.leader or "")
    assert claimed == sorted(set(claimed))
