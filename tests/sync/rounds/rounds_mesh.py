"""Whole meshes of `Rounds` machines over a fake network with a fixed delay, and disks that keep what was saved."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from ictp2p.machine import Effects, Message, Notice, Persist, Send
from ictp2p.sync.agreement.chain import Agreement
from ictp2p.sync.messages import Failed, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.machine import ClusterView, Contribution, PlanAnswer, PlanQuestion, Rounds
from ictp2p.sync.rounds.notices import (
    RoundCommitted,
    RoundOpened,
)
from ictp2p.sync.rounds.restore import Stock
from ictp2p.sync.values import Close, Open, Spec, StateRef, Voters, genesis
from ictp2p.types import ClusterId, PeerId

DELAY = 0.001
LINEAGE = b"lineage!"
SYNC = Spec("sync", "diloco", "float32", 10, "avg", "none")
CALL = Spec("reduce", "all_reduce", "float32", 10, "sum", "none")
BARRIER = Spec("barrier", "start", "", 0, "sum", "none")
FIRST = b"initial"


def peer(cluster: str, worker: int) -> PeerId:
    return PeerId(f"{ord(cluster):02x}{worker:030x}")


@dataclass
class Mesh:
    """Peers named like A0; `work` decides what a bound leader does: vote, fail, or stay silent."""

    clusters: dict[str, int]
    profile: RoundProfile = field(default_factory=RoundProfile.local)
    now: float = 100.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.queue: list[tuple[float, int, PeerId, PeerId, Message]] = []
        self.count = 0
        self.rounds: dict[PeerId, Rounds] = {}
        self.disks: dict[PeerId, bytes] = {}
        self.notices: dict[PeerId, list[Notice]] = {}
        self.dead: set[PeerId] = set()
        self.suspected: set[str] = set()
        self.failed: set[str] = set()
        self.terms = dict.fromkeys(self.clusters, 1)
        self.leaders = {c: peer(c, 0) for c in self.clusters}
        self.training = dict.fromkeys(self.clusters, True)
        self.behind: dict[str, float] = {}
        """Seconds that clusters say they need for the state."""
        self.silent: set[PeerId] = set()
        self.breaks: set[PeerId] = set()
        self.bases = dict.fromkeys(self.clusters, FIRST)
        self.sent: list[tuple[PeerId, PeerId, Message]] = []
        self.plans: list[PlanQuestion] = []
        self.answer = PlanAnswer(b"plan", "the only one")
        self.drop: set[tuple[PeerId, PeerId]] = set()
        self.held: dict[PeerId, tuple[int, bytes]] = {}
        for cluster, size in self.clusters.items():
            for worker in range(size):
                self.boot(peer(cluster, worker))

    def boot(self, who: PeerId) -> None:
        agreement = Agreement(who, self.disks.get(who), random.Random(self.rng.random()), self.profile)
        rng = random.Random(self.rng.random())

        def stock() -> Stock:
            return Stock(self.held.get(who, (0, FIRST)))

        machine = Rounds(who, agreement, self.profile, rng, self.plan, self.validate, stock)
        self.rounds[who] = machine
        self.notices[who] = []
        self.dead.discard(who)
        self.do(who, machine.start(self.now))

    def plan(self, request: PlanQuestion) -> PlanAnswer:
        self.plans.append(request)
        return self.answer

    @staticmethod
    def validate(plan: bytes, participants: object) -> str | None:
        return None if plan == b"plan" else f"plan {plan!r} is not valid"

    def do(self, who: PeerId, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Persist(_, value):
                    self.disks[who] = value
                case Send(to, message):
                    self.sent.append((who, PeerId(to), message))
                    self.count += 1
                    heapq.heappush(self.queue, (self.now + DELAY, self.count, who, PeerId(to), message))
                case Notice():
                    self.notices[who].append(effect)
                    if isinstance(effect, RoundCommitted) and effect.holding:
                        self.held[who] = (effect.close.state.version, effect.close.digest)
                    if isinstance(effect, RoundOpened):
                        self.work(who, effect.open)

    def work(self, who: PeerId, opened: Open) -> None:
        """Like an executor: it fails at once on a dead participant, and else it votes."""
        down = tuple(p.leader for p in opened.participants if p.leader in self.dead)
        machine = self.rounds[who]
        if who in self.silent:
            return
        if who in self.breaks or down:
            self.later(who, Failed(0, opened.round, opened.attempt, "connection lost", down, True))
        else:
            self.later(who, Vote(0, opened.round, opened.attempt, b"digest %d" % opened.round))
        assert machine.tip is not None

    def later(self, who: PeerId, verdict: Vote | Failed) -> None:
        self.count += 1
        heapq.heappush(self.queue, (self.now, self.count, who, who, verdict))

    def view(self, whom: PeerId | None = None) -> None:
        views = {
            ClusterId(c): ClusterView(
                self.leaders[c],
                self.terms[c],
                alive=c not in self.failed,
                suspect=c in self.suspected,
                training=self.training[c],
                behind=self.behind.get(c, 0.0),
                candidates=tuple(p for p in (peer(c, w) for w in range(size)) if p not in self.dead),
            )
            for c, size in self.clusters.items()
        }
        for who in sorted(self.rounds):
            if who not in self.dead and whom in (None, who):
                self.do(who, self.rounds[who].view(views, self.now))

    def kill(self, who: PeerId) -> None:
        self.dead.add(who)

    def deliver(self, sender: PeerId, to: PeerId, message: Message) -> None:
        if to not in self.rounds or to in self.dead or (sender, to) in self.drop:
            return
        machine = self.rounds[to]
        if sender == to:
            assert isinstance(message, Vote | Failed)
            if isinstance(message, Vote):
                self.do(to, machine.completed(message.round, message.attempt, message.digest, self.now))
            else:
                args = (message.round, message.attempt, message.reason, message.suspects)
                self.do(to, machine.failed(*args, self.now))
        else:
            self.do(to, machine.receive(sender, message, self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            timers = [(t, w) for w in sorted(self.rounds) if w not in self.dead if (t := self.rounds[w].next_timeout())]
            timer = min(timers, default=(end + 1, PeerId("")))
            head = self.queue[0][0] if self.queue else end + 1
            if min(timer[0], head) > end:
                self.now = end
                return
            if head <= timer[0]:
                self.now = max(self.now, head)
                _, _, sender, to, message = heapq.heappop(self.queue)
                self.deliver(sender, to, message)
            else:
                assert timer[0] >= self.now - 10 or timer[0] > 0
                self.now = max(self.now, timer[0])
                self.do(timer[1], self.rounds[timer[1]].handle_timeout(self.now))

    def ready(self, cluster: str, spec: Spec = SYNC, weight: float = 1.0, slack: float = 0.0) -> None:
        who = self.leaders[cluster]
        machine = self.rounds[who]
        tip = machine.tip
        base = StateRef(0 if tip is None else tip[1].state.version, self.bases[cluster], ())
        leader = (ClusterId(cluster), who, self.terms[cluster])
        contribution = Contribution(*leader, weight, spec, base, slack=slack)
        self.do(who, machine.ready(contribution, self.now))

    def found(self, who: PeerId) -> None:
        self.do(who, self.rounds[who].bootstrap(genesis(LINEAGE, who), self.now))
        for other in sorted(self.rounds):
            self.do(other, self.rounds[other].greet(who, self.now))
        self.view()
        self.run(0.5)

    def told(self, who: PeerId, kind: type[Notice]) -> list[Notice]:
        return [n for n in self.notices[who] if isinstance(n, kind)]

    def everybody_ready(self) -> None:
        for cluster in self.clusters:
            if cluster not in self.failed and cluster not in self.suspected and self.training[cluster]:
                self.ready(cluster)

    def one_round(self) -> None:
        self.everybody_ready()
        self.run(0.5)
        state = self.value(self.leaders[min(set(self.clusters) - self.failed)]).state
        self.bases = dict.fromkeys(self.clusters, state.digest)

    def value(self, who: PeerId) -> Voters | Open | Close:
        tip = self.rounds[who].tip
        assert tip is not None
        return tip[1]


def mesh(**clusters: int) -> Mesh:
    made = Mesh(clusters)
    made.found(peer("A", 0))
    return made


def in_second_round(seconds: float = 0.1, **clusters: int) -> Mesh:
    """A mesh in which everybody has been READY for its second round for so long, and no leader tells how it went."""
    made = mesh(**clusters)
    made.one_round()
    made.silent = {peer(cluster, 0) for cluster in clusters}
    made.everybody_ready()
    made.run(seconds)
    return made


A0, A1, B0, B1, C0, C1, D0, D1 = (peer(c, w) for c in "ABCD" for w in range(2))
