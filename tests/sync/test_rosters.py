"""Generations only grow, one roster per generation, and after the last fault everyone who is ready is in one group."""

import heapq
import random
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.machine import Message, Send
from ictp2p.sync.devices import GLOO, HOST, Device, choose
from ictp2p.sync.roster import (
    HeirFound,
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterPending,
    RosterProposal,
    RosterReady,
    StoreWanted,
)
from ictp2p.sync.rosters import RosterProfile, Rosters
from ictp2p.types import PeerId

PROFILE = RosterProfile(repeat=1.0, gather=5.0, store=5.0, backoff=0.5, backoff_most=4.0)
A, B, C, D = (PeerId(letter * 32) for letter in "abcd")
STORE = "192.0.2.1:7000"


def ready(sequence=1, *, ready=True, life=1, spell=1, holds=(0, 0, ""), device=HOST):
    return RosterReady(ready, life, spell, sequence, *holds, device)


def a_roster(term, number, members, devices=(), step=0):
    choice = choose(devices or [HOST] * len(members))
    return Roster(term, number, members, STORE, step, choice.library, choice.reason)


def gpu(unit, release="2.27"):
    return Device("cuda", f"host/{unit}", "H200", "nccl", release)


def sends(effects, kind=RosterProposal):
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def notices(effects):
    return [effect for effect in effects if not isinstance(effect, Send)]


def leading(members=(A, B, C), term=1):
    """A leads a group of `members`, each of which has acknowledged; it is time 1.0."""
    rosters = Rosters(A, 1, PROFILE)
    rosters.view(members, 0.0)
    rosters.leader(A, term, 0.0)
    rosters.wants(True, 0.0)
    for peer in members[1:]:
        rosters.receive(peer, ready(), 0.5)
    rosters.store_opened(STORE, 1, 0.5)
    for peer in members[1:]:
        rosters.receive(peer, ready(2, holds=(term, 1, A)), 1.0)
    assert rosters.roster == a_roster(term, 1, members)
    return rosters


def following(me=B, members=(A, B, C)):
    rosters = Rosters(me, 1, PROFILE)
    rosters.view(members, 0.0)
    rosters.leader(A, 5, 0.0)
    rosters.wants(True, 0.0)
    rosters.receive(A, RosterProposal(Roster(5, 2, members, STORE, 0)), 0.5)
    assert rosters.roster.generation == (5, 2)
    return rosters


class TestLeader:
    def test_the_first_roster_waits_for_everyone_alive(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.view((A, B, C), 0.0)
        rosters.leader(A, 1, 0.0)
        assert notices(rosters.wants(True, 1.0)) == []
        assert notices(rosters.receive(B, ready(), 2.0)) == []
        assert notices(rosters.receive(C, ready(), 3.0)) == [StoreWanted(1)]
        roster = a_roster(1, 1, (A, B, C))
        effects = rosters.store_opened(STORE, 1, 3.1)
        assert notices(effects) == [RosterChanged(roster)]
        assert sends(effects) == [Send(B, RosterProposal(roster)), Send(C, RosterProposal(roster))]

    def test_but_not_forever(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.view((A, B, C), 0.0)
        rosters.leader(A, 1, 0.0)
        rosters.wants(True, 1.0)
        rosters.receive(B, ready(), 2.0)
        assert notices(rosters.handle_timeout(5.9)) == []
        assert notices(rosters.handle_timeout(6.0)) == [StoreWanted(1)]
        assert notices(rosters.store_opened(STORE, 1, 6.0)) == [RosterChanged(a_roster(1, 1, (A, B)))]

    def test_a_successor_waits_only_for_the_last_group(self):
        rosters = following(B)
        rosters.view((B, C, D), 1.0)
        assert notices(rosters.leader(B, 6, 1.0)) == []
        assert notices(rosters.receive(C, ready(), 1.1)) == [StoreWanted(1)]

    def test_a_leader_whose_training_is_not_up_makes_no_group(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.view((A,), 0.0)
        assert notices(rosters.leader(A, 1, 0.0)) == []
        assert notices(rosters.handle_timeout(100.0)) == []
        assert notices(rosters.wants(True, 100.0)) == [StoreWanted(1)]

    def test_a_leader_whose_training_is_not_up_makes_way_for_a_worker_that_waits(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.view((A, B, C), 0.0)
        rosters.leader(A, 1, 0.0)
        assert notices(rosters.receive(C, ready(), 1.0)) == []
        assert notices(rosters.handle_timeout(5.9)) == []
        assert rosters.next_timeout() <= 6.0
        assert notices(rosters.handle_timeout(6.0)) == [HeirFound(C)]
        assert notices(rosters.handle_timeout(6.5)) == []
        assert notices(rosters.handle_timeout(7.0)) == [HeirFound(C)]
        assert notices(rosters.wants(True, 7.5)) == []
        assert notices(rosters.handle_timeout(8.5)) == []

    def test_a_leader_whose_training_ends_makes_way_for_the_next_of_the_group(self):
        rosters = leading(members=(A, C))
        rosters.view((A, B, C), 2.0)
        rosters.receive(B, ready(), 2.0)
        assert notices(rosters.wants(False, 3.0)) == []
        assert notices(rosters.handle_timeout(4.9)) == []
        assert notices(rosters.handle_timeout(5.0)) == [HeirFound(C)]

    def test_a_worker_whose_training_ends_as_well_is_no_heir(self):
        rosters = leading(members=(A, C))
        rosters.wants(False, 3.0)
        assert notices(rosters.receive(C, ready(9, ready=False), 3.5)) == []
        assert notices(rosters.handle_timeout(20.0)) == []

    def test_a_worker_that_is_gone_by_then_is_no_heir(self):
        rosters = leading()
        rosters.wants(False, 3.0)
        rosters.view((A, C), 4.0, frozenset({C}))
        assert notices(rosters.handle_timeout(20.0)) == []
        rosters.view((A, C), 21.0)
        assert notices(rosters.handle_timeout(22.9)) == []
        assert notices(rosters.handle_timeout(23.0)) == [HeirFound(C)]

    def test_a_death_makes_a_new_roster_at_once(self):
        rosters = leading()
        assert notices(rosters.view((A, C), 2.0)) == [StoreWanted(2)]
        assert notices(rosters.store_opened(STORE, 2, 2.0)) == [RosterChanged(a_roster(1, 2, (A, C)))]

    def test_a_newcomer_waits_for_the_boundary(self):
        rosters = leading((A, B))
        rosters.view((A, B, C), 2.0)
        assert notices(rosters.receive(C, ready(), 2.0)) == [RosterPending((C,))]
        assert notices(rosters.receive(C, ready(2), 3.0)) == [], "told once"
        assert notices(rosters.boundary(17, 4.0)) == [StoreWanted(2)]
        assert notices(rosters.boundary(17, 4.0)) == [], "wanted once"
        assert notices(rosters.store_opened(STORE, 2, 4.0)) == [RosterChanged(a_roster(1, 2, (A, B, C), step=17))]
        assert notices(rosters.boundary(18, 5.0)) == []

    def test_whoever_stopped_for_a_newcomer_gets_a_roster_even_if_it_has_gone(self):
        rosters = leading((A, B))
        rosters.view((A, B, C), 2.0)
        rosters.receive(C, ready(), 2.0)
        assert notices(rosters.view((A, B), 3.0)) == []
        assert notices(rosters.boundary(17, 4.0)) == [StoreWanted(2)]

    def test_a_member_that_restarted_unnoticed_makes_a_new_roster(self):
        assert notices(leading().receive(B, ready(1, life=2), 2.0)) == [StoreWanted(2)]

    def test_a_training_thread_that_restarted_unnoticed_makes_a_new_roster(self):
        assert notices(leading().receive(B, ready(4, spell=2, holds=(1, 1, A)), 2.0)) == [StoreWanted(2)]

    def test_a_late_report_of_an_earlier_life_is_nothing(self):
        rosters = leading()
        rosters.receive(B, ready(1, life=2), 2.0)
        rosters.store_opened(STORE, 2, 2.0)
        assert rosters.receive(B, ready(9, life=1, ready=False), 2.1) == []
        assert rosters.receive(B, ready(1, life=2, ready=False), 2.1) == []

    def test_an_unwilling_member_is_left_out_and_told(self):
        rosters = leading()
        assert notices(rosters.receive(C, ready(3, ready=False, holds=(1, 1, A)), 2.0)) == [StoreWanted(2)]
        roster = a_roster(1, 2, (A, B))
        proposal = RosterProposal(roster)
        assert sends(rosters.store_opened(STORE, 2, 2.0)) == [Send(B, proposal), Send(C, proposal)]

    def test_suspicion_alone_costs_no_membership(self):
        assert notices(leading().view((A, B, C), 2.0, frozenset([C]))) == []

    def test_suspicion_and_silence_do(self):
        rosters = leading()
        rosters.failed((1, 1), 2.0)
        rosters.store_opened(STORE, 2, 2.0)
        rosters.receive(B, ready(3, holds=(1, 2, A)), 2.1)
        assert notices(rosters.view((A, B, C), 2.2, frozenset([C]))) == [StoreWanted(3)]
        assert notices(rosters.store_opened(STORE, 3, 2.2)) == [RosterChanged(a_roster(1, 3, (A, B)))]

    def test_a_broken_collective_makes_a_new_roster_once(self):
        rosters = leading()
        assert notices(rosters.receive(B, RosterFailed(1, 1), 2.0)) == [StoreWanted(2)]
        assert notices(rosters.receive(C, RosterFailed(1, 1), 2.0)) == []
        rosters.store_opened(STORE, 2, 2.0)
        assert notices(rosters.failed((1, 1), 2.0)) == []
        assert notices(rosters.receive(C, RosterFailed(1, 1), 2.0)) == []
        assert notices(rosters.handle_timeout(50.0)) == [], "not later either"

    def test_who_is_no_member_breaks_nothing(self):
        assert leading().receive(D, RosterFailed(1, 1), 2.0) == []

    def test_a_group_that_breaks_again_waits_longer_each_time_unless_a_member_went(self):
        rosters, now = leading(), 2.0
        for number, wait in ((2, 0.0), (3, 0.5), (4, 1.0), (5, 2.0), (6, 4.0), (7, 4.0)):
            effects = notices(rosters.failed((1, number - 1), now))
            if wait:
                assert effects == []
                assert rosters.next_timeout() <= now + wait
                assert notices(rosters.handle_timeout(now + wait - 0.01)) == []
                now += wait
                effects = notices(rosters.handle_timeout(now))
            assert effects == [StoreWanted(number)]
            rosters.store_opened(STORE, number, now)
        assert notices(rosters.failed((1, 7), now)) == []
        assert notices(rosters.view((A, B), now + 0.1)) == [StoreWanted(8)], "the death explains the failure"

    def test_a_step_between_two_failures_forgets_the_first(self):
        rosters = leading()
        rosters.failed((1, 1), 2.0)
        rosters.store_opened(STORE, 2, 2.0)
        rosters.boundary(3, 3.0)
        assert notices(rosters.failed((1, 2), 4.0)) == [StoreWanted(3)]

    def test_a_death_between_two_failures_forgets_the_first(self):
        rosters = leading()
        rosters.failed((1, 1), 2.0)
        rosters.store_opened(STORE, 2, 2.0)
        rosters.view((A, B), 3.0)
        rosters.store_opened(STORE, 3, 3.0)
        assert notices(rosters.failed((1, 3), 4.0)) == [StoreWanted(4)]

    def test_a_leader_whose_training_went_down_founds_nothing_with_a_late_store(self):
        rosters = leading()
        rosters.view((A, B), 2.0)
        rosters.wants(False, 2.1)
        assert rosters.store_opened(STORE, 2, 2.2) == []

    def test_a_store_that_does_not_open_is_asked_for_again(self):
        rosters = leading()
        rosters.view((A, B), 2.0)
        assert notices(rosters.handle_timeout(6.9)) == []
        assert notices(rosters.handle_timeout(7.0)) == [StoreWanted(2)]
        assert rosters.store_opened(STORE, 1, 7.0) == [], "of another number"

    def test_an_address_that_is_none_is_refused_and_changes_nothing(self):
        rosters = leading()
        rosters.view((A, B), 2.0)
        with pytest.raises(ConfigError, match="nowhere"):
            rosters.store_opened("nowhere", 2, 2.0)
        assert rosters.roster.number == 1
        assert notices(rosters.store_opened(STORE, 2, 2.0))

    def test_a_proposal_is_repeated_until_it_is_acknowledged(self):
        rosters = leading()
        rosters.view((A, B, C, D), 1.0)
        rosters.receive(D, ready(), 1.0)
        rosters.boundary(1, 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        rosters.receive(B, ready(3, holds=(1, 2, A)), 1.1)
        again = RosterProposal(a_roster(1, 2, (A, B, C, D), step=1))
        assert sends(rosters.handle_timeout(2.0)) == [Send(C, again), Send(D, again)]
        assert sends(rosters.receive(C, ready(3, holds=(1, 1, A)), 2.5)) == [Send(C, again)], "at once, when it shows"

    def test_a_deposed_leader_stops(self):
        rosters = leading()
        rosters.view((A, C), 2.0)
        rosters.leader(C, 2, 2.0)
        assert notices(rosters.store_opened(STORE, 2, 2.0)) == []
        assert notices(rosters.view((A,), 2.0)) == []
        assert sends(rosters.handle_timeout(50.0)) == []

    def test_two_claimants_of_one_term_number_on_above_each_other(self):
        rosters = Rosters(B, 1, PROFILE)
        rosters.view((A, B, C), 0.0)
        rosters.leader(B, 1, 0.0)
        rosters.wants(True, 0.0)
        rosters.receive(A, ready(), 0.1)
        rosters.receive(C, ready(), 0.1)
        rosters.store_opened(STORE, 1, 0.1)
        assert notices(rosters.receive(C, ready(2, holds=(1, 1, A)), 0.2)) == [StoreWanted(2)]

    def test_the_winner_of_a_tie_numbers_on_above_the_roster_that_it_followed(self):
        rosters = following(B)
        rosters.leader(B, 5, 1.0)
        assert notices(rosters.view((B,), 1.0)) == [StoreWanted(3)]

    def test_a_leader_whose_own_training_restarts_makes_a_new_roster_of_the_same_term(self):
        rosters = leading()
        assert notices(rosters.wants(False, 2.0)) == []
        assert notices(rosters.wants(True, 3.0)) == [StoreWanted(2)]


class TestWorker:
    def test_it_reports_on_every_occasion_and_again(self):
        rosters = Rosters(B, 7, PROFILE)
        assert rosters.next_timeout() is None
        assert rosters.wants(True, 0.0) == []
        assert rosters.leader(A, 5, 0.0) == [Send(A, RosterReady(True, 7, 1, 1, 0, 0, ""))]
        assert rosters.next_timeout() == 1.0
        assert rosters.handle_timeout(1.0) == [Send(A, RosterReady(True, 7, 1, 2, 0, 0, ""))]
        assert rosters.wants(True, 1.5) == []
        assert rosters.wants(False, 1.5) == [Send(A, RosterReady(False, 7, 1, 3, 0, 0, ""))]

    def test_it_acknowledges_each_copy_and_changes_once(self):
        rosters = following()
        proposal = RosterProposal(rosters.roster)
        assert rosters.receive(A, proposal, 1.0) == [Send(A, RosterReady(True, 1, 1, 4, 5, 2, A))]

    def test_a_deposed_leaders_proposal_is_ignored(self):
        rosters = following()
        rosters.leader(C, 6, 1.0)
        assert rosters.receive(A, RosterProposal(a_roster(5, 3, (A, B))), 2.0) == []
        assert rosters.roster.generation == (5, 2)

    def test_an_earlier_number_is_only_answered(self):
        rosters = following()
        assert notices(rosters.receive(A, RosterProposal(a_roster(5, 1, (A, B))), 2.0)) == []
        assert rosters.roster.generation == (5, 2)

    def test_a_proposal_may_come_before_the_elections_news(self):
        rosters = following()
        roster = a_roster(6, 1, (C, B))
        effects = rosters.receive(C, RosterProposal(roster), 2.0)
        assert notices(effects) == [RosterChanged(roster)]
        assert rosters.leader(C, 6, 2.1) == []
        assert rosters.leader(A, 5, 2.1) == []

    def test_who_is_left_out_is_told(self):
        rosters, roster = following(), a_roster(5, 3, (A, C))
        assert notices(rosters.receive(A, RosterProposal(roster), 2.0)) == [RosterMissed(roster)]

    def test_a_failure_is_repeated_until_the_next_roster(self):
        rosters = following()
        assert sends(rosters.failed((5, 2), 1.0), RosterFailed) == [Send(A, RosterFailed(5, 2))]
        assert rosters.failed((5, 2), 1.0) == []
        assert sends(rosters.handle_timeout(2.0), RosterFailed) == [Send(A, RosterFailed(5, 2))]
        rosters.receive(A, RosterProposal(a_roster(5, 3, (A, B))), 2.5)
        assert sends(rosters.handle_timeout(9.0), RosterFailed) == []
        assert rosters.failed((5, 2), 9.0) == []

    @pytest.mark.parametrize(
        ("roster", "complaint"),
        [
            (a_roster(6, 1, (C, B)), f"that {C} leads"),
            (a_roster(6, 1, (A, B, B)), "names a member twice"),
            (Roster(6, 1, (A, B), "nowhere", 0), "without a store.*nowhere"),
        ],
    )
    def test_a_proposal_that_cannot_be_is_refused(self, roster, complaint):
        with pytest.raises(RemoteProtocolError, match=complaint):
            following().receive(A, RosterProposal(roster), 2.0)

    def test_foreign_messages_are_refused(self):
        with pytest.raises(RemoteProtocolError, match="sent Message to a roster"):
            following().receive(A, Message(), 2.0)


@pytest.mark.parametrize(
    "fields",
    [
        [62, [0, 1, [A], STORE, 0]],
        [62, [1, 0, [A], STORE, 0]],
        [62, [1, 1, [], STORE, 0]],
        [62, [1, 1, [A] * 4097, STORE, 0]],
        [62, [1, 1, [A], "", 0]],
        [62, [1, 1, [A], "x" * 301, 0]],
        [62, [1, 1, [A], STORE, -1]],
        [61, True, -1, 0, 0, 0, 0, ""],
        [61, 1, 0, 0, 0, 0, 0, ""],
        [63, 1, 2**62],
    ],
)
def test_the_decoder_refuses_what_cannot_be(fields):
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=RosterReady | RosterProposal | RosterFailed)


def test_presets_keep_their_order():
    local, lan, wan = RosterProfile.local(), RosterProfile.lan(), RosterProfile.wan()
    assert local.gather < lan.gather < wan.gather
    assert all(p.repeat < p.gather and p.backoff < p.backoff_most for p in (local, lan, wan))


# Below: several workers under an adversarial scheduler, with virtual time, an oracle in place of membership and
# election, and a message's fate a function of the seed and of its own number.

PEERS = tuple(PeerId(letter * 32) for letter in "abcd")


@dataclass
class World:
    seed: int
    loss: float
    queue: list = field(default_factory=list)
    workers: dict = field(default_factory=dict)
    lives: dict = field(default_factory=lambda: dict.fromkeys(PEERS, 0))
    wanting: set = field(default_factory=set)
    suspects: set = field(default_factory=set)
    claims: dict = field(default_factory=dict)
    told: dict = field(default_factory=lambda: dict.fromkeys(PEERS, (0, "")))
    term: int = 0
    rosters: dict = field(default_factory=dict)
    generations: dict = field(default_factory=lambda: defaultdict(list))
    since: dict = field(default_factory=lambda: defaultdict(list))
    now: float = 0.0
    count: int = 0

    def dice(self, *key):
        return random.Random(f"{self.seed}/{key}")

    def put(self, delay, *event):
        self.count += 1
        heapq.heappush(self.queue, (self.now + delay, self.count, event))

    # What happens to workers.

    def start(self, peer):
        if peer in self.workers:
            return
        self.lives[peer] += 1
        self.workers[peer] = Rosters(peer, self.lives[peer], PROFILE)
        self.told[peer] = (0, "")
        self.changed(peer)
        self.put(0.0, "toggle", peer)
        for term, leader in sorted(self.claims):
            self.put(0.5, "tell", peer, leader, term)

    def crash(self, peer):
        self.workers.pop(peer, None)
        self.wanting.discard(peer)
        self.changed(peer)

    def toggle(self, peer):
        if worker := self.workers.get(peer):
            self.wanting ^= {peer}
            if peer in self.wanting:
                self.since[peer] = []
            self.execute(peer, worker.wants(peer in self.wanting, self.now))

    def claim(self, peer):
        """A new leader; every fourth time it is another one of the same term."""
        self.term += 0 if self.term and self.dice("tie", self.count).random() < 0.25 else 1
        if peer in self.workers and self.claims.setdefault((self.term, peer), self.lives[peer]) == self.lives[peer]:
            for other in PEERS:
                self.put(self.dice("tell", self.count).uniform(0, 2), "tell", other, peer, self.term)

    def tell(self, peer, leader, term):
        if (
            (term, leader) > self.told[peer]
            and peer in self.workers
            and self.claims[term, leader] == self.lives[leader]
        ):
            self.told[peer] = (term, leader)
            self.execute(peer, self.workers[peer].leader(leader, term, self.now))

    def breaks(self, peer):
        worker = self.workers.get(peer)
        if worker and worker.roster:
            self.execute(peer, worker.failed(worker.roster.generation, self.now))

    def suspect(self, peer):
        self.suspects ^= {peer}
        self.changed(peer)

    def changed(self, key):
        for peer in PEERS:
            self.put(self.dice("look", key, peer, self.count).uniform(0, 1.5), "look", peer)

    def look(self, peer):
        if worker := self.workers.get(peer):
            self.execute(peer, worker.view(list(self.workers), self.now, frozenset(self.suspects - {peer})))

    # What workers do.

    def execute(self, peer, effects):
        for effect in effects:
            match effect:
                case Send(to, message):
                    assert to != peer
                    self.send(peer, to, message)
                case RosterChanged(roster) | RosterMissed(roster):
                    self.adopt(peer, roster, isinstance(effect, RosterChanged))
                case StoreWanted(number):
                    if self.dice("store", self.count).random() >= self.loss / 2:
                        self.put(0.05, "open", peer, self.lives[peer], number)
                case RosterPending(newcomers):
                    assert newcomers
                    assert peer not in newcomers
                    self.put(self.dice("pending", self.count).uniform(0, 2), "bound", peer, self.lives[peer])

    def adopt(self, peer, roster, member):
        assert member == (peer in roster.members)
        assert roster.leader == roster.members[0]
        assert len(set(roster.members)) == len(roster.members)
        assert self.rosters.setdefault((roster.generation, roster.leader), roster) == roster, (
            "one generation, two rosters"
        )
        history = self.generations[peer, self.lives[peer]]
        assert not history or roster.generation > history[-1], "a generation fell"
        assert (roster.term, roster.leader) >= self.told[peer], "a deposed leader was followed"
        history.append(roster.generation)
        self.since[peer].append(roster)

    def open(self, peer, life, number):
        if peer in self.workers and self.lives[peer] == life:
            self.execute(peer, self.workers[peer].store_opened(f"192.0.2.1:{self.count}", number, self.now))

    def bound(self, peer, life):
        if peer in self.workers and self.lives[peer] == life:
            self.execute(peer, self.workers[peer].boundary(int(self.now), self.now))

    def send(self, source, to, message):
        dice = self.dice(source, to, self.count)
        self.count += 1
        for _ in range(2 if dice.random() < 0.1 else 1):
            if dice.random() >= self.loss:
                self.put(dice.uniform(0, 2.0 if self.loss else 0.1), "deliver", source, to, message)

    def deliver(self, source, to, message):
        if to in self.workers:
            self.execute(to, self.workers[to].receive(source, message, self.now))

    def run(self, until):
        while True:
            timers = [(w.next_timeout(), p) for p, w in sorted(self.workers.items()) if w.next_timeout() is not None]
            timer = min(timers, default=(until, ""))
            event = self.queue[0][0] if self.queue else until
            if min(timer[0], event) >= until:
                self.now = until
                return
            if event <= timer[0]:
                at, _, (kind, *arguments) = heapq.heappop(self.queue)
                self.now = max(self.now, at)
                getattr(self, kind)(*arguments)
            else:
                self.now = max(self.now, timer[0])
                self.execute(timer[1], self.workers[timer[1]].handle_timeout(self.now))
                assert (self.workers[timer[1]].next_timeout() or self.now + 1) > self.now, "the timer spins"


FAULTS = st.lists(
    st.tuples(
        st.floats(0.0, 4.0),
        st.sampled_from(["crash", "start", "toggle", "claim", "breaks", "suspect"]),
        st.sampled_from(PEERS),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(FAULTS, st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 2**32))
def test_after_the_last_fault_everyone_who_is_ready_is_in_one_group(faults, loss, seed):
    world = World(seed, loss)
    for peer in PEERS[:3]:
        world.start(peer)
    world.claim(PEERS[0])
    for pause, kind, peer in faults:
        world.run(world.now + pause)
        getattr(world, kind)(peer)
    world.run(world.now + 2.5)
    leader = min(world.workers, default=PEERS[0])
    world.start(leader)
    world.loss, world.suspects = 0.0, set()
    world.run(world.now + 0.1)
    world.wanting |= {leader}
    world.execute(leader, world.workers[leader].wants(True, world.now))
    world.term += 1
    world.claim(leader)
    world.changed("heal")
    world.run(world.now + 2.5 + PROFILE.gather + PROFILE.store + PROFILE.backoff_most + 4 * PROFILE.repeat)
    group = world.workers[leader].roster
    assert sorted(group.members) == sorted(world.wanting)
    assert group.leader == leader
    for peer in world.wanting:
        assert world.workers[peer].roster == group
        assert group in world.since[peer], f"{peer}'s training thread came up after the group was made"
    made = len(world.rosters)
    world.loss = 0.5
    world.run(world.now + 60.0)
    assert len(world.rosters) == made, "a roster was made without a reason"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(PEERS),
            st.one_of(
                st.builds(
                    RosterReady,
                    st.booleans(),
                    st.integers(0, 3),
                    st.integers(0, 3),
                    st.integers(0, 9),
                    st.integers(0, 3),
                    st.integers(0, 5),
                    st.sampled_from(["", *PEERS]),
                ),
                st.builds(RosterFailed, st.integers(0, 3), st.integers(0, 5)),
                st.tuples(st.integers(1, 3), st.integers(1, 5), st.sets(st.sampled_from(PEERS))),
                st.sampled_from(["store", "boundary", "fail", "lead", "toggle"]),
                st.sets(st.sampled_from(PEERS)),
            ),
        ),
        max_size=50,
    )
)
def test_whatever_arrives_generations_only_grow(inputs):
    rosters, last, now = Rosters(B, 1, PROFILE), (0, 0), 0.0
    rosters.wants(True, now)
    for sender, given_ in inputs:
        now += 0.3
        match given_:
            case "store":
                effects = [e for number in range(1, 9) for e in rosters.store_opened(STORE, number, now)]
            case "boundary":
                effects = rosters.boundary(1, now)
            case "fail":
                effects = rosters.failed(last, now)
            case "lead":
                effects = rosters.leader(sender, 2, now)
            case "toggle":
                effects = rosters.wants(sender < C, now)
            case set():
                effects = rosters.view({*given_, B}, now, frozenset({sender} - {B}))
            case (term, number, members):
                if sender == B:
                    continue
                roster = Roster(term, number, (sender, *sorted(members - {sender})), STORE, 0)
                effects = rosters.receive(sender, RosterProposal(roster), now)
            case _:
                effects = rosters.receive(sender, given_, now) if sender != B else []
        effects = [*effects, *rosters.handle_timeout(now)]
        for effect in effects:
            if isinstance(effect, RosterChanged | RosterMissed):
                assert effect.roster.generation > last
                last = effect.roster.generation
        assert (rosters.next_timeout() or now + 1) > now, "what was due is done: the driver's timer would spin"


class TestLibrary:
    """Which library a roster names, and what a refusal of it changes."""

    def led(self, *devices):
        rosters = Rosters(A, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        rosters.wants(True, 0.0, devices[0])
        rosters.view([A, B, C][: len(devices)], 0.0)
        for peer, device in zip((B, C), devices[1:], strict=False):
            rosters.receive(peer, ready(device=device), 0.0)
        rosters.store_opened(STORE, 1, 0.0)
        return rosters

    def acknowledged(self, rosters, number, *, sequence):
        for peer in rosters.roster.members[1:]:
            rosters.receive(peer, ready(sequence, holds=(1, number, A), device=gpu(peer)), 1.0)

    def test_workers_with_a_device_each_get_their_library(self):
        roster = self.led(gpu(A), gpu(B), gpu(C)).roster
        assert (roster.library, roster.reason) == ("nccl", "each of its 3 workers has a cuda device of its own")

    def test_the_roster_says_it_to_everybody(self):
        rosters = Rosters(A, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        rosters.wants(True, 0.0, gpu(A))
        rosters.view([A, B], 0.0)
        rosters.receive(B, ready(device=gpu(B)), 0.0)
        (sent,) = sends(rosters.store_opened(STORE, 1, 0.0))
        follower = Rosters(B, 1, PROFILE)
        follower.wants(True, 0.0, gpu(B))
        (changed, *_) = follower.receive(A, sent.message, 0.0)
        assert changed.roster == rosters.roster
        assert changed.roster.library == "nccl"

    def test_a_refusal_has_the_same_workers_fall_back_together(self):
        rosters = self.led(gpu(A), gpu(B), gpu(C))
        self.acknowledged(rosters, 1, sequence=2)
        assert StoreWanted(2) in rosters.receive(B, RosterFailed(1, 1, "nccl"), 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.members == (A, B, C)
        assert (rosters.roster.library, rosters.roster.reason) == (GLOO, "nccl did not come up between these workers")

    def test_other_workers_are_asked_again(self):
        rosters = self.led(gpu(A), gpu(B), gpu(C))
        self.acknowledged(rosters, 1, sequence=2)
        rosters.receive(B, RosterFailed(1, 1, "nccl"), 1.0)
        rosters.view([A, B], 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert (rosters.roster.members, rosters.roster.library) == ((A, B), "nccl")

    def test_a_collective_that_broke_refuses_nothing(self):
        rosters = self.led(gpu(A), gpu(B))
        self.acknowledged(rosters, 1, sequence=2)
        rosters.receive(B, RosterFailed(1, 1), 1.0)
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.library == "nccl"

    def test_the_leaders_own_refusal_counts(self):
        rosters = self.led(gpu(A), gpu(B))
        self.acknowledged(rosters, 1, sequence=2)
        assert StoreWanted(2) in rosters.failed((1, 1), 1.0, "nccl")
        rosters.store_opened(STORE, 2, 1.0)
        assert rosters.roster.library == GLOO

    def test_a_follower_says_what_it_computes_on_and_what_it_refuses(self):
        rosters = Rosters(B, 1, PROFILE)
        rosters.leader(A, 1, 0.0)
        (sent,) = rosters.wants(True, 0.0, gpu(B))
        assert sent.message.device == gpu(B)
        rosters.receive(A, RosterProposal(a_roster(1, 1, (A, B), (gpu(A), gpu(B)))), 0.0)
        _, broke = rosters.failed((1, 1), 1.0, "nccl")
        assert broke.message == RosterFailed(1, 1, "nccl")

    def test_refusals_are_bounded(self):
        rosters = self.led(gpu(A), gpu(B))
        for number in range(100):
            rosters._broke((1, 1), f"library {number}", 1.0)
        assert len(rosters._refusals) == 16
