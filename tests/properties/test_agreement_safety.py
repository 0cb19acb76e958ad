"""Agreement and rounds under an adversary: safety always, progress once it stops.

The adversary holds every message: it delivers them in any order, twice, or never; crashes peers between any two
effects and restarts them from what they had persisted by then; partitions them; moves time; and feeds them wrong
suspicions and old leaders. A referee sees everything that is decided and applied. Then the network heals, and
everybody must take part in a committed round within bounded time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.agreement import Agreement, Decided
from ictp2p.sync.messages import SyncMessage
from ictp2p.sync.notices import (
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
    StateAdvanced,
    StateStale,
)
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds import ClusterView, Contribution, PlanAnswer, Rounds
from ictp2p.sync.values import (
    Close,
    Open,
    Restore,
    Spec,
    StateRef,
    Value,
    Voters,
    contributed,
    follows,
    genesis,
)
from ictp2p.types import ClusterId, PeerId

PROFILE = replace(RoundProfile.local(), straggler_floor=2.0, anti_entropy=1.0, restore_after=2.0)
"""Pinned where the bound on recovery below depends on it, so that tuning the product cannot move the test."""
SYNC = Spec("sync", "diloco", "float32", 10, "avg", "none")
FIRST = b"initial"
SEEDS = st.integers(min_value=0, max_value=2**32)
DECODER = msgspec.msgpack.Decoder(SyncMessage)


def peer(number: int) -> PeerId:
    return PeerId(f"{number:032x}")


@dataclass
class Referee:
    """What must hold over all peers and all time."""

    decided: dict[int, Value] = field(default_factory=dict)
    spent: dict[int, int] = field(default_factory=dict)
    """Contribution to the version of the state that it is in."""
    restores: int = 0
    results: dict[tuple[int, int], tuple[bytes, tuple[int, ...]]] = field(default_factory=dict)

    def on_decided(self, slot: int, value: Value) -> None:
        new = slot not in self.decided
        known = self.decided.setdefault(slot, value)
        assert known == value, f"slot {slot} was decided twice: {known} and {value}"
        before = self.decided.get(slot - 1)
        assert before is None or follows(before, value) is None
        if new and isinstance(value, Close) and value.committed:
            self.spend(value)
        if new and isinstance(value, Restore):
            self.restores += 1
            self.spent = {token: version for token, version in self.spent.items() if version <= value.source}

    def spend(self, close: Close) -> None:
        """Each contribution is in the agreed state once at most, and every round is decided once."""
        digest, tokens = self.results[close.round, close.attempt]
        assert close.digest == digest
        for token in tokens:
            assert token not in self.spent, f"contribution {token} counted twice"
            self.spent[token] = close.state.version


@dataclass
class Life:
    """One process life of a peer, as the referee and the fake trainer follow it."""

    machine: Rounds
    last_slot: int = -1
    last_round: int = 0
    token: int | None = None
    opened: Open | None = None
    voted: bytes = b""
    gave_up: bool = False
    asked: bool = False
    memory: tuple[int, bytes] = (0, FIRST)
    """Version and digest of the state that it holds; a new process has the weights it began with."""
    base: int = 0
    """Version that its contribution starts from."""

    def drop(self, cluster: str) -> None:
        """The round went on without it: its contribution is kept if it is in no version."""
        tip = self.machine.tip
        assert tip is not None
        if contributed(tip[1].state, ClusterId(cluster), self.base):
            self.token = None
        self.opened = None
        self.asked = False


class Adversary:
    """A world of 2 to 6 peers in 1 to 3 clusters, driven by one random generator."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        size = self.rng.randint(2, 6)
        self.cluster = {peer(i): f"c{i % self.rng.choice([1, 2, 3])}" for i in range(size)}
        self.peers = sorted(self.cluster)
        self.names = sorted(set(self.cluster.values()))
        self.leader = {c: min(p for p in self.peers if self.cluster[p] == c) for c in self.names}
        self.term = dict.fromkeys(self.names, 1)
        self.referee = Referee()
        self.disks: dict[PeerId, bytes] = {}
        self.lives: dict[PeerId, Life] = {}
        self.wire: list[tuple[PeerId, PeerId, bytes]] = []
        self.timed: list[tuple[float, int, PeerId, PeerId, bytes]] = []
        self.calm = False
        self.islands: dict[PeerId, int] = {}
        self.tokens = 0
        self.sequence = 0
        self.crash_odds = 0.0
        self.healed_at = -1
        for who in self.peers:
            self.boot(who)
        founder = self.peers[0]
        self.do(founder, self.lives[founder].machine.bootstrap(genesis(b"lineage!", founder), self.now))

    def boot(self, who: PeerId) -> None:
        agreement = Agreement(who, self.disks.get(who), random.Random(self.rng.random()), PROFILE)
        machine = Rounds(
            who,
            agreement,
            PROFILE,
            random.Random(self.rng.random()),
            lambda request: PlanAnswer(b"plan", "only one"),
            lambda plan, participants: None,
            held=lambda: life.memory,
        )
        life = self.lives[who] = Life(machine)
        self.do(who, machine.start(self.now))

    def do(self, who: PeerId, effects: Effects) -> None:
        """Execute effects in order; in the chaos phase the process may die between any two."""
        for effect in effects:
            if who not in self.lives:
                return
            if self.crash_odds and self.rng.random() < self.crash_odds:
                del self.lives[who]
                return
            match effect:
                case Persist(_, value):
                    self.disks[who] = value
                case Send(to, message):
                    self.post(who, PeerId(to), message)
                case Notice():
                    self.watch(who, self.lives[who], effect)

    def post(self, sender: PeerId, to: PeerId, message: Message) -> None:
        body = msgspec.msgpack.encode(message)
        if self.calm:
            self.sequence += 1
            due = self.now + 0.001 + 0.004 * self.rng.random()
            heapq.heappush(self.timed, (due, self.sequence, sender, to, body))
        else:
            self.wire.append((sender, to, body))

    def watch(self, who: PeerId, life: Life, notice: Notice) -> None:
        match notice:
            case Decided(slot, value):
                assert slot > life.last_slot
                life.last_slot = slot
                self.referee.on_decided(slot, value)
            case RoundOpened(opened):
                assert life.opened is None
                mine = next(p for p in opened.participants if p.leader == who)
                assert mine.cluster == self.cluster[who]
                assert life.token is not None
                life.opened, life.voted, life.gave_up = opened, b"", False
            case RoundCommitted(opened, close, holding):
                assert close == self.referee.decided[life.last_slot]
                assert close.committed
                assert (close.round, close.attempt) == (opened.round, opened.attempt)
                assert close.round > life.last_round
                assert holding == (life.voted == close.digest)
                life.last_round = close.round
                if holding:
                    life.memory, life.token = (close.state.version, close.digest), None
                life.drop(self.cluster[who])
            case RoundAborted():
                life.opened = None
            case RoundPassed() | StateStale() | SpecRejected():
                life.drop(self.cluster[who])
            case StateAdvanced(ref):
                assert ref.version > 0

    def deliver(self, sender: PeerId, to: PeerId, body: bytes) -> None:
        if to in self.lives and self.islands.get(sender, 0) == self.islands.get(to, 0):
            self.do(to, self.lives[to].machine.receive(sender, DECODER.decode(body), self.now))

    def view(self, who: PeerId, doubtful: float) -> None:
        rng = self.rng
        views = {}
        for name in self.names:
            members = tuple(p for p in self.peers if self.cluster[p] == name)
            living = tuple(p for p in members if p in self.lives or rng.random() < doubtful)
            alive = bool(living) and rng.random() >= doubtful / 4
            views[ClusterId(name)] = ClusterView(
                self.leader[name], self.term[name], alive, rng.random() < doubtful, True, living
            )
        self.do(who, self.lives[who].machine.view(views, self.now))

    def train(self, who: PeerId) -> None:
        """What a leader's trainer does next: stand READY, contribute, vote."""
        life = self.lives[who]
        machine, tip = life.machine, life.machine.tip
        if life.opened is not None and not life.voted and not life.gave_up:
            self.finish(who, life, life.opened)
        elif tip is not None and not self.hold(who, life, tip[1].state):
            return
        elif life.opened is None and not life.asked and self.leader[self.cluster[who]] == who and tip is not None:
            if life.token is None:
                self.tokens += 1
                life.token = self.tokens
                self.share(who, life)
            name = self.cluster[who]
            base = StateRef(*life.memory, ())
            life.asked, life.base = True, base.version
            info = life.token.to_bytes(4, "big")
            contribution = Contribution(ClusterId(name), who, self.term[name], 1.0, SYNC, base, info)
            self.do(who, machine.ready(contribution, self.now))

    def share(self, who: PeerId, life: Life) -> None:
        """Those who train in step with a leader have what it brings, and bring it if they lead."""
        for mate, other in self.lives.items():
            near = self.cluster[mate] == self.cluster[who] and self.islands.get(mate, 0) == self.islands.get(who, 0)
            if near and other.memory == life.memory and not other.asked:
                other.token = life.token

    def hold(self, who: PeerId, life: Life, agreed: StateRef) -> bool:
        """Whether it holds the agreed state, or finds somebody from whom to fetch it."""
        if agreed.version and life.memory[1] != agreed.digest:
            near = (o for p, o in self.lives.items() if self.islands.get(p, 0) == self.islands.get(who, 0))
            if all(other.memory[1] != agreed.digest for other in near):
                return False
        if agreed.version > life.memory[0]:
            if contributed(agreed, ClusterId(self.cluster[who]), life.memory[0]):
                life.token = None
            life.memory = (agreed.version, agreed.digest)
        return True

    def finish(self, who: PeerId, life: Life, opened: Open) -> None:
        """The data phase, condensed: it succeeds if every bound leader is bound now, or has been and finished."""
        number = (opened.round, opened.attempt)
        others = [self.lives.get(p.leader) for p in opened.participants]
        if number not in self.referee.results:
            bound = [o for o in others if o and o.opened == opened and o.token is not None]
            if len(bound) < len(others) and self.calm:
                return  # the others are about to be told; a network that is calm does not fail
            if len(bound) < len(others) or (not self.calm and self.rng.random() < 0.2):
                life.gave_up = True
                self.do(who, life.machine.failed(*number, "lost", (), self.now))
                return
            tokens = tuple(o.token for o in bound if o.token is not None)
            assert len(set(tokens)) == len(tokens)
            digest = blake2b(repr((opened.state.digest, tokens)).encode(), digest_size=16).digest()
            self.referee.results[number] = (digest, tokens)
        life.voted = self.referee.results[number][0]
        self.do(who, life.machine.completed(*number, life.voted, self.now))

    def chaos(self, steps: int) -> None:
        self.crash_odds = 0.003
        moves: list[tuple[int, Callable[[], None]]] = [
            (60, self.deliver_any),
            (20, self.work_any),
            (8, self.tick_any),
            (6, self.view_any),
            (1, self.crash_any),
            (2, self.restart_any),
            (1, self.partition_any),
            (1, self.depose_any),
            (2, self.greet_any),
        ]
        weights = [w for w, _ in moves]
        for _ in range(steps):
            self.rng.choices([move for _, move in moves], weights)[0]()
        self.crash_odds = 0.0

    def living(self) -> list[PeerId]:
        return sorted(self.lives)

    def deliver_any(self) -> None:
        if not self.wire:
            return self.tick_any()
        index = self.rng.randrange(min(len(self.wire), 12))
        sender, to, body = self.wire.pop(index)
        fate = self.rng.random()
        if fate < 0.08:
            self.wire.append((sender, to, body))
        if fate > 0.06:
            self.deliver(sender, to, body)
        del self.wire[:-300]
        return None

    def work_any(self) -> None:
        if self.lives:
            self.train(self.rng.choice(self.living()))

    def tick_any(self) -> None:
        self.now += self.rng.choice([0.001, 0.05, 0.3])
        for who in self.living():
            if who in self.lives and self.rng.random() < 0.7:
                self.do(who, self.lives[who].machine.handle_timeout(self.now))

    def view_any(self) -> None:
        if self.lives:
            self.view(self.rng.choice(self.living()), 0.15)

    def crash_any(self) -> None:
        if self.lives:
            del self.lives[self.rng.choice(self.living())]

    def restart_any(self) -> None:
        dead = [p for p in self.peers if p not in self.lives]
        if dead:
            self.boot(self.rng.choice(dead))

    def partition_any(self) -> None:
        self.islands = {p: self.rng.randrange(2) for p in self.peers} if self.rng.random() < 0.5 else {}

    def depose_any(self) -> None:
        name = self.rng.choice(self.names)
        self.term[name] += 1
        self.leader[name] = self.rng.choice([p for p in self.peers if self.cluster[p] == name])

    def greet_any(self) -> None:
        if self.lives:
            who, other = self.rng.choice(self.living()), self.rng.choice(self.peers)
            self.do(who, self.lives[who].machine.greet(other, self.now))

    def heal(self) -> None:
        self.calm, self.islands = True, {}
        self.healed_at = max(self.referee.decided)
        self.wire.clear()
        for who in self.peers:
            if who not in self.lives:
                self.boot(who)
        for who in self.peers:
            self.view(who, 0.0)
            for other in self.peers:
                self.do(who, self.lives[who].machine.greet(other, self.now))

    def run(self, seconds: float, until: Callable[[], bool]) -> bool:
        """The calm phase: every message arrives, in 1 to 5 ms; trainers work every 10 ms. Whether `until` came."""
        end, work = self.now + seconds, self.now
        while self.now < end and not until():
            timers = [(t, w) for w in self.peers if (t := self.lives[w].machine.next_timeout()) is not None]
            due = min([work, *(t for t, _ in timers), *(item[0] for item in self.timed[:1])])
            self.now = max(self.now, due)
            if due == work:
                work = self.now + 0.01
                for who in self.peers:
                    self.train(who)
            elif self.timed and due == self.timed[0][0]:
                _, _, sender, to, body = heapq.heappop(self.timed)
                self.deliver(sender, to, body)
            else:
                who = min(timers)[1]
                self.do(who, self.lives[who].machine.handle_timeout(self.now))
        return until()

    def last_open(self) -> Open | None:
        """The newest OPEN that was decided since the network healed."""
        opens = [s for s, v in self.referee.decided.items() if isinstance(v, Open) and s > self.healed_at]
        value = self.referee.decided[max(opens)] if opens else None
        return value if isinstance(value, Open) else None

    def complete(self) -> bool:
        """Every cluster took part in the newest round, every peer votes, and everybody knows how it ended."""
        opened = self.last_open()
        if opened is None or set(opened.voters) != set(self.peers):
            return False
        if [p.cluster for p in opened.participants] != self.names:
            return False
        tips = [life.machine.tip for life in self.lives.values()]
        return all(tip is not None and tip[1].state.version > opened.state.version for tip in tips)

    def explain(self) -> str:
        return "\n".join(f"{who[-2:]} {life.machine.explain()}" for who, life in sorted(self.lives.items()))


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_rounds_are_safe_in_chaos_and_live_after_it(seed: int) -> None:
    world = Adversary(seed)
    world.chaos(600)
    world.heal()
    assert world.run(14.0, world.complete), world.explain()


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_one_seed_is_one_run(seed: int) -> None:
    runs = []
    for _ in range(2):
        world = Adversary(seed)
        world.chaos(150)
        runs.append((world.referee.decided, world.now, world.wire))
    assert runs[0] == runs[1]


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
