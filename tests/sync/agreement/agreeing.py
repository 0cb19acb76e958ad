"""Some voters, joined by queues that the test empties message by message."""

from __future__ import annotations

import random

from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.agreement.acceptor import KEY
from ictp2p.sync.agreement.chain import Agreement
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.values import Value, Voters, genesis
from ictp2p.types import PeerId

A, B, C, D, E = (PeerId(f"{i:032x}") for i in range(1, 6))
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

    def join(self, who: PeerId) -> Agreement:
        """Somebody new, who knows nothing."""
        self.notices[who] = []
        self.machines[who] = Agreement(who, None, random.Random(3), PROFILE)
        return self.machines[who]

    def go_on_without(self, who: PeerId, decisions: int) -> None:
        """A decides that many slots while somebody hears nothing of it."""
        self.cut = {who}
        for _ in range(decisions):
            self.propose(A, change(self.tip(A), A))
            self.settle()
        self.cut = set()
        self.notices[who].clear()

    def restart(self, who: PeerId) -> None:
        self.machines[who] = Agreement(who, self.disks.get(who), random.Random(2), PROFILE)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for who, machine in self.machines.items():
            self.do(who, machine.handle_timeout(self.now))

    def run(self, seconds: float) -> None:
        """Let time pass as a process sees it that is never late."""
        until = self.now + seconds
        while self.now < until:
            self.tick(min(PROFILE.retry, until - self.now))

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
