"""Rosters of several workers under an adversarial scheduler (`tests.scheduler`).

An oracle stands for membership and election; a message's fate is a function of the seed and of its own number.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.machine import Send
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterPending,
    RosterProposal,
    RosterReady,
    StoreWanted,
)
from ictp2p.types import PeerId
from tests.scheduler import Scheduled
from tests.sync.rosters.roster_stage import PROFILE, STORE, B, C

PEERS = tuple(PeerId(letter * 32) for letter in "abcd")


@dataclass
class World(Scheduled):
    seed: int
    loss: float
    lives: dict = field(default_factory=lambda: dict.fromkeys(PEERS, 0))
    wanting: set = field(default_factory=set)
    suspects: set = field(default_factory=set)
    claims: dict = field(default_factory=dict)
    told: dict = field(default_factory=lambda: dict.fromkeys(PEERS, (0, "")))
    term: int = 0
    rosters: dict = field(default_factory=dict)
    generations: dict = field(default_factory=lambda: defaultdict(list))
    since: dict = field(default_factory=lambda: defaultdict(list))

    def dice(self, *key):
        return random.Random(f"{self.seed}/{key}")

    def after(self, delay, *event):
        self.put(self.now + delay, *event)

    # What happens to workers.

    def start(self, peer):
        if peer in self.machines:
            return
        self.lives[peer] += 1
        self.machines[peer] = Rosters(peer, self.lives[peer], PROFILE)
        self.told[peer] = (0, "")
        self.changed(peer)
        self.after(0.0, "toggle", peer)
        for term, leader in sorted(self.claims):
            self.after(0.5, "tell", peer, leader, term)

    def crash(self, peer):
        self.machines.pop(peer, None)
        self.wanting.discard(peer)
        self.changed(peer)

    def toggle(self, peer):
        if worker := self.machines.get(peer):
            self.wanting ^= {peer}
            if peer in self.wanting:
                self.since[peer] = []
            self.execute(peer, worker.wants(peer in self.wanting, self.now))

    def claim(self, peer):
        """A new leader; every fourth time it is another one of the same term."""
        self.term += 0 if self.term and self.dice("tie", self.count).random() < 0.25 else 1
        if peer in self.machines and self.claims.setdefault((self.term, peer), self.lives[peer]) == self.lives[peer]:
            for other in PEERS:
                self.after(self.dice("tell", self.count).uniform(0, 2), "tell", other, peer, self.term)

    def tell(self, peer, leader, term):
        if (
            (term, leader) > self.told[peer]
            and peer in self.machines
            and self.claims[term, leader] == self.lives[leader]
        ):
            self.told[peer] = (term, leader)
            self.execute(peer, self.machines[peer].leader(leader, term, self.now))

    def breaks(self, peer):
        worker = self.machines.get(peer)
        if worker and worker.roster:
            self.execute(peer, worker.failed(worker.roster.generation, self.now))

    def suspect(self, peer):
        self.suspects ^= {peer}
        self.changed(peer)

    def changed(self, key):
        for peer in PEERS:
            self.after(self.dice("look", key, peer, self.count).uniform(0, 1.5), "look", peer)

    def look(self, peer):
        if worker := self.machines.get(peer):
            self.execute(peer, worker.view(list(self.machines), self.now, frozenset(self.suspects - {peer})))

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
                        self.after(0.05, "open", peer, self.lives[peer], number)
                case RosterPending(newcomers):
                    assert newcomers
                    assert peer not in newcomers
                    self.after(self.dice("pending", self.count).uniform(0, 2), "bound", peer, self.lives[peer])

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
        if peer in self.machines and self.lives[peer] == life:
            self.execute(peer, self.machines[peer].store_opened(f"192.0.2.1:{self.count}", number, self.now))

    def bound(self, peer, life):
        if peer in self.machines and self.lives[peer] == life:
            self.execute(peer, self.machines[peer].boundary(int(self.now), self.now))

    def send(self, source, to, message):
        dice = self.dice(source, to, self.count)
        self.count += 1
        for _ in range(2 if dice.random() < 0.1 else 1):
            if dice.random() >= self.loss:
                self.after(dice.uniform(0, 2.0 if self.loss else 0.1), "deliver", source, to, message)

    def deliver(self, source, to, message):
        if to in self.machines:
            self.execute(to, self.machines[to].receive(source, message, self.now))


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
    leader = min(world.machines, default=PEERS[0])
    world.start(leader)
    world.loss, world.suspects = 0.0, set()
    world.run(world.now + 0.1)
    world.wanting |= {leader}
    world.execute(leader, world.machines[leader].wants(True, world.now))
    world.term += 1
    world.claim(leader)
    world.changed("heal")
    world.run(world.now + 2.5 + PROFILE.gather + PROFILE.store + PROFILE.backoff_most + 4 * PROFILE.repeat)
    group = world.machines[leader].roster
    assert sorted(group.members) == sorted(world.wanting)
    assert group.leader == leader
    for peer in world.wanting:
        assert world.machines[peer].roster == group
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
