"""Ballots at their worst: any voter proposes anything at any time, and crashes between any two effects."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings

from ictp2p.machine import Effects, Message, Persist, Send
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.values import (
    StateRef,
    Value,
    Voters,
    genesis,
)
from ictp2p.types import PeerId
from tests.properties.voters import PROFILE, SEEDS, peer


class Quarrel:
    """Agreement alone, where any voter proposes anything at any time: the worst case for ballots."""

    def __init__(self, seed: int, size: int | None = None, restarts: float = 0.01) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.restarts = restarts
        self.peers = [peer(i) for i in range(size or self.rng.randint(2, 5))]
        self.disks: dict[PeerId, bytes] = {}
        self.machines: dict[PeerId, Agreement] = {}
        self.decided: dict[int, Value] = {}
        self.wire: list[tuple[PeerId, PeerId, Message]] = []
        self.marks = 0
        for who in self.peers:
            self.boot(who)
        start = genesis(b"lineage!", self.peers[0])
        self.do(self.peers[0], self.machines[self.peers[0]].bootstrap(start, 0.0), 0.0)

    def boot(self, who: PeerId) -> None:
        self.machines[who] = Agreement(who, self.disks.get(who), random.Random(self.rng.random()), PROFILE)
        self.machines[who].audience(self.peers)

    def do(self, who: PeerId, effects: Effects, odds: float) -> None:
        for effect in effects:
            if self.rng.random() < odds:
                self.boot(who)
                return
            match effect:
                case Persist(_, value):
                    self.disks[who] = value
                case Send(to, message):
                    self.wire.append((who, PeerId(to), message))
                case Decided(slot, value):
                    assert self.decided.setdefault(slot, value) == value, f"slot {slot} decided twice"

    def step(self, odds: float) -> None:
        who = self.rng.choice(self.peers)
        if self.rng.random() < self.restarts:
            self.boot(who)
        machine, tip = self.machines[who], self.machines[who].tip
        choice = self.rng.random()
        if choice < 0.08 and tip is not None and who in tip[1].voters:
            self.do(who, machine.propose(self.value(tip[1], who), self.now), odds)
        elif choice < 0.12:
            self.now += 0.1
            self.do(who, machine.handle_timeout(self.now), odds)
        elif choice < 0.14:
            self.do(who, machine.greet(self.rng.choice(self.peers), self.now), odds)
        elif choice < 0.15:
            machine.abandon()
        elif choice < 0.18:
            self.do(who, machine.suspects([p for p in self.peers if self.rng.random() < 0.4], self.now), odds)
        elif self.wire:
            sender, to, message = self.wire.pop(self.rng.randrange(min(len(self.wire), 20)))
            if self.rng.random() < 0.1:
                self.wire.append((sender, to, message))
            if self.rng.random() > 0.1:
                self.do(to, self.machines[to].receive(sender, message, self.now), odds)

    def tip(self, who: PeerId) -> Value:
        tip = self.machines[who].tip
        assert tip is not None
        return tip[1]

    def value(self, tip: Value, who: PeerId, voters: Sequence[PeerId] = ()) -> Voters:
        """A change to these or to random voters, told apart from every other one by its author."""
        self.marks += 1
        chosen = tuple(voters or self.rng.sample(self.peers, self.rng.randint(1, len(self.peers))))
        state = tip.state if tip.state.version else StateRef(1, self.marks.to_bytes(8, "big"), (who,))
        return Voters(tip.lineage, chosen, state, who, tip.round, tip.attempt)


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
def test_no_slot_is_ever_decided_twice(seed: int) -> None:
    world = Quarrel(seed)
    for _ in range(500):
        world.step(odds=0.01)
        del world.wire[:-200]
    assert world.decided


def duel(rng: random.Random) -> None:
    """One slot, three voters, two values: the shortest schedules in which an acceptor's amnesia shows.

    The owner's phase-2 message is under way while another prepares a higher ballot. An acceptor that promised the
    one and, after a crash, accepts the other, lets both be chosen. So only the acceptor between the two crashes, often,
    also between two effects: a proposer that crashes just ends the duel.
    """
    world = Quarrel(rng.getrandbits(32), size=3, restarts=0.0)
    owner, torn, rival = world.peers
    world.do(owner, world.machines[owner].propose(world.value(world.tip(owner), owner, world.peers), 0.0), 0.0)
    while world.wire:
        sender, to, message = world.wire.pop(0)
        world.do(to, world.machines[to].receive(sender, message, 0.0), 0.0)
    for who in (owner, rival):
        world.do(who, world.machines[who].propose(world.value(world.tip(who), who, world.peers), 0.0), 0.0)
    for _ in range(20):
        if rng.random() < 0.15:
            world.boot(torn)
        elif world.wire:
            sender, to, message = world.wire.pop(rng.randrange(len(world.wire)))
            effects = world.machines[to].receive(sender, message, 0.0)
            world.do(to, effects, 0.25 if to == torn else 0.0)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_voters_that_crash_in_a_duel_keep_their_word(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        duel(rng)
