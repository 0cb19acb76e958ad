"""What must hold at every event of a run, seen by someone who sees everything.

The auditor listens to every notice of every peer and to the ledger of the workload, and raises nothing itself: the
first breach stops the world, which raises it as `Breach` with the seed, the time and the plan. Checked are

- **agreement**: one value per slot, ever (A1); each decision follows the one before it, and was accepted by a quorum
  of the voters that this one names (A6), which is also why a minority never commits (A8); restarts keep it (A9);
- **rounds**: every worker that holds a version holds the same bytes (A3), which are the exact sum of the bound
  participants' units (A4), each once (A10), and versions only grow within a life (A2); who takes part is bound (E4);
- **routing**: at every change the way to a destination in a class has no loop (R1), feasibility distances strictly
  decrease along it within one sequence number (R2), what is selected is finite (R3), a feasibility distance never
  worsens within a sequence number (R4), and a number grows by single steps within a term (R5);
- **leadership**: terms in decided slots do not fall (E3), no peer takes one term of office twice (E1);
- **gossip**: nobody holds a newer record of a member than that member has made (G3).

Liveness is `world.heal()` and a deadline; see `World.run_until`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ictp2p.core.stack import Core
from ictp2p.errors import StateError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.routing.algebra import Distance
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.messages import Key
from ictp2p.sync import acceptor
from ictp2p.sync.acceptor import Acceptor
from ictp2p.sync.agreement import Decided
from ictp2p.sync.notices import RoundOpened, StateAdvanced
from ictp2p.sync.values import Close, Open, Value, follows, quorum
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from sim.host import Host
    from sim.world import World


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at:.6f} s: {self.text}"


class Breach(AssertionError):
    """A rule was broken. The message has all that is needed to see it again."""

    def __init__(self, finding: Finding, told: str) -> None:
        super().__init__(f"{finding}\n{told}")
        self.finding = finding


class Auditor:
    """Checks one world as it runs.

    Args:
        world: what to watch.
        waive: rules that are noted only.
    """

    def __init__(self, world: World, waive: Collection[str] = ()) -> None:
        self._world = world
        self._waive = frozenset(waive)
        self.findings: list[Finding] = []
        self.waived: list[Finding] = []
        self.checks = 0
        """Inputs that were looked at."""
        self._decided: dict[tuple[bytes, int], Value] = {}
        self._terms: dict[str, tuple[int, int]] = {}
        self._offices: dict[PeerId, tuple[int, int]] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._distances: dict[tuple[int, Key], Distance] = {}
        self._routers: dict[str, Babel] = {}
        self._seqnos: dict[int, int] = {}

    def complain(self, rule: str, text: str) -> None:
        """Report a breach and, unless it is waived, stop the world."""
        finding = Finding(rule, self._world.now, text)
        if rule in self._waive:
            self.waived.append(finding)
            return
        self.findings.append(finding)
        self._world.loop.stop()

    def notice(self, host: Host, notice: Notice) -> None:
        """A peer's stack told something."""
        self.checks += 1
        match notice:
            case Decided(slot=slot, value=value):
                self._on_decided(host, slot, value)
            case RouteChanged(destination=destination, traffic_class=k):
                self._on_route(host, (destination, k))
            case LeaderChanged(leader=leader, term=term):
                self._on_leader(host, leader, term)
            case RoundOpened(open=opened):
                self._on_opened(host, opened)
            case StateAdvanced(ref=ref):
                self._on_state(host, ref.version)

    def sweep(self) -> None:
        """Look at what no notice announces."""
        self._records()
        for host in self._world.running():
            core = host.core
            if core is not None and core.leading:
                self._router(host, core.m.routes)

    # ------------------------------------------------------------ agreement

    def _on_decided(self, host: Host, slot: int, value: Value) -> None:
        key = (value.lineage, slot)
        known = self._decided.get(key)
        if known is not None:
            if known != value:
                self.complain("A1", f"slot {slot}: {host.name} learnt {value}, decided was {known}")
            return
        self._decided[key] = value
        before = self._decided.get((value.lineage, slot - 1))
        if before is not None:
            wrong = follows(before, value)
            if wrong:
                self.complain("A6", f"slot {slot} of {host.name} cannot follow slot {slot - 1}: {wrong}")
            self._accepted(slot, value, before.voters)
        if isinstance(value, Open):
            self._terms_grow(slot, value)
        self._to_ledger(value, before)

    def _accepted(self, slot: int, value: Value, voters: tuple[PeerId, ...]) -> None:
        """A quorum of the right voters has it in memory or on disk; a lost disk is given the benefit of the doubt."""
        having = [v for v in voters if self._has_accepted(v, slot, value)]
        if not quorum(voters, having):
            self.complain("A6", f"slot {slot} was decided by {having} of the voters {voters}: no quorum")

    def _has_accepted(self, voter: PeerId, slot: int, value: Value) -> bool:
        host = self._world.host_of(voter)
        if host is None:
            return True  # its disk is gone, and with it the record
        try:
            kept = Acceptor(voter, host.disk.load(acceptor.KEY))
        except StateError:
            return True
        core = host.core
        tip = core.m.rounds.tip if core is not None and host.id == voter else None
        return (tip is not None and tip[0] >= slot) or kept.slot >= slot or kept.value == value

    def _terms_grow(self, slot: int, opened: Open) -> None:
        for part in opened.participants:
            before = self._terms.get(part.cluster, (0, -1))
            if slot > before[1]:
                if part.term < before[0]:
                    self.complain("E3", f"slot {slot} binds {part.cluster} in term {part.term} after {before[0]}")
                self._terms[part.cluster] = (part.term, slot)

    def _to_ledger(self, value: Value, before: Value | None) -> None:
        ledger, now = self._world.ledger, self._world.now
        if isinstance(value, Close):
            if value.committed and isinstance(before, Open) and before.spec.kind == "sync":
                ledger.committed(before, value.state.version, value.state.digest, now)
        elif value.state.version == 1:
            ledger.adopted(1, value.state.digest, now)

    # ------------------------------------------------------------ rounds and leadership

    def _on_opened(self, host: Host, opened: Open) -> None:
        if host.id not in [p.leader for p in opened.participants]:
            self.complain("E4", f"{host.name} takes part in round {opened.round}, which does not bind it")
        elif host.id is not None:
            self._world.ledger.opened(host.id, opened)

    def _on_state(self, host: Host, version: int) -> None:
        key = (host.name, host.lives)
        if version <= self._versions.get(key, 0):
            self.complain("A2", f"{host.name} was told version {version} after {self._versions[key]}")
        self._versions[key] = version

    def _on_leader(self, host: Host, leader: PeerId, term: int) -> None:
        if leader != host.id:
            return
        before = self._offices.get(leader, (0, 0))
        if term < before[0] or (term == before[0] and host.lives != before[1]):
            self.complain("E1", f"{host.name} takes office in term {term} after {before[0]}")
        self._offices[leader] = (term, host.lives)

    # ------------------------------------------------------------ routing

    def _on_route(self, host: Host, key: Key) -> None:
        core = host.core
        if core is None:
            return
        self._follow(host, key)

    def _follow(self, host: Host, key: Key) -> None:
        """Walk from here to the destination, peer by peer."""
        path: list[str] = []
        at: Host | None = host
        while at is not None and at.core is not None and at.core.leading:
            if at.name in path:
                self.complain("R1", f"loop to {key}: {' > '.join([*path, at.name])}")
                return
            path.append(at.name)
            core = at.core
            choice = core.m.routes.table.chosen.get(key)
            if choice is None or at.cluster == key[0]:
                return
            beside = [self._world.host_of(peer) for peer in core.neighbours()]
            onward = next((h for h in beside if h is not None and h.cluster == choice.neighbour), None)
            if onward is not None and onward.core is not None and onward.core.leading:
                self._decreases(at, core, onward, onward.core, key)
            at = onward

    def _decreases(self, at: Host, core: Core, onward: Host, further: Core, key: Key) -> None:
        mine, theirs = core.m.routes.sources.distance(key), further.m.routes.sources.distance(key)
        if mine is None or theirs is None or onward.cluster == key[0] or mine.seqno != theirs.seqno:
            return
        if at.id not in further.neighbours():
            return  # the other end has begun anew, and has not met us: what it promised before is forgotten there
        if theirs.metric >= mine.metric:
            text = f"{at.name} goes to {key} by {onward.name}, whose feasibility distance {theirs} is not below {mine}"
            self.complain("R2", text)

    def _router(self, host: Host, router: Babel) -> None:
        if self._routers.get(host.name) is not router:
            self._routers[host.name] = router
            self._distances = {k: d for k, d in self._distances.items() if k[0] in map(id, self._routers.values())}
        for key in sorted(router.table.chosen):
            if not 0 < router.table.chosen[key].metric < 2**32 - 1:
                self.complain("R3", f"{host.name} selected {router.table.chosen[key]} for {key}")
            now = router.sources.distance(key)
            before = self._distances.get((id(router), key))
            if now is not None:
                if before is not None and before.seqno == now.seqno and now.metric > before.metric:
                    self.complain("R4", f"{host.name}: the feasibility distance of {key} rose from {before} to {now}")
                self._distances[id(router), key] = now
            else:
                self._distances.pop((id(router), key), None)
        if router.seqno >> 32 != host.term:
            self.complain("R5", f"{host.name} advertises seqno {router.seqno:#x} in term {host.term}")

    # ------------------------------------------------------------ gossip

    def _records(self) -> None:
        """Nobody holds a newer record than its owner made. Of who is not running nobody knows what it made last."""
        made: dict[str, tuple[int, int]] = {}
        for host in self._world.running():
            core = host.core
            own = core.m.members.record if core is not None else None
            if host.id is not None and own is not None:
                made[host.id] = (own.incarnation, own.sequence)
        for host in self._world.running():
            if host.core is not None:
                self._compare(host, host.core, made)

    def _compare(self, host: Host, core: Core, all_made: dict[str, tuple[int, int]]) -> None:
        views: Iterable[tuple[str, tuple[int, int]]] = [
            (name, (member.record.incarnation, member.record.sequence))
            for name, member in core.m.members.members.items()
            if not member.record.left  # a goodbye is the last record, made as its owner goes
        ]
        for name, seen in views:
            made = all_made.get(name)
            if made is not None and seen > made:
                self.complain("G3", f"{host.name} holds record {seen} of {name}, which has made {made}")
