"""Agreement and rounds in the hands of an adversary, and a referee who sees everything that is decided and applied.

The adversary holds every message: it delivers them in any order, twice, or never; crashes peers between any two
effects and restarts them from what they had persisted by then; partitions them; moves time; and feeds them wrong
suspicions and old leaders. Then the network heals.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.credits import contributed
from ictp2p.sync.messages import SyncMessage
from ictp2p.sync.rounds.machine import ClusterView, Contribution, PlanAnswer, Rounds
from ictp2p.sync.rounds.notices import (
    OddOneOut,
    RoundAborted,
    RoundCommitted,
    RoundOpened,
    RoundPassed,
    SpecRejected,
    StateAdvanced,
    StateStale,
)
from ictp2p.sync.rounds.restore import Stock
from ictp2p.sync.validity import follows
from ictp2p.sync.values import Close, Open, Restore, Spec, StateRef, Value, genesis
from ictp2p.types import ClusterId, PeerId
from tests.properties.voters import PROFILE, peer

SYNC = Spec("sync", "diloco", "float32", 10, "avg", "none")
FIRST = b"initial"
DECODER = msgspec.msgpack.Decoder(SyncMessage)


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
    terms: tuple[float, bytes] = (1.0, b"")
    """Weight and note with which it stands, or last stood."""

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
            stock=lambda: Stock(life.memory),
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
                assert (mine.weight, mine.note) == life.terms
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
            case RoundPassed() | OddOneOut() | StateStale() | SpecRejected():
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
            life.terms = (self.rng.choice([1.0, 2.0]), self.rng.randbytes(1))
            contribution = Contribution(ClusterId(name), who, self.term[name], life.terms[0], SYNC, base, life.terms[1])
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
            (1, self.withdraw_any),
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

    def withdraw_any(self) -> None:
        """A call is given up, and soon made again with another weight."""
        who = self.rng.choice(self.living() or self.peers)
        if who in self.lives and self.lives[who].asked:
            life = self.lives[who]
            life.asked, life.gave_up = False, not life.voted
            self.do(who, life.machine.withdraw(self.now))

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
