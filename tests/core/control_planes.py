"""Whole control planes on a fake network in virtual time: no asyncio, no sockets, every command looked at.

`World` executes what each stack commands. A link exists where both ends are up and one of them can dial the other;
messages take a fixed delay and arrive in order per pair, as on a TCP connection.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field, replace

from ictp2p.core import commands, planning
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import Machines, Profiles
from ictp2p.core.packets import Channel
from ictp2p.core.stack import Core
from ictp2p.disk import MemoryDisk
from ictp2p.identity import Identity
from ictp2p.machine import Machine, Notice, Persist
from ictp2p.sync.values import genesis
from ictp2p.types import Address, ClusterId, PeerId

DELAY = 0.002
FORGET = 10.0
"""Seconds after which the dead are forgotten where a test waits for that."""


def machines_of(core: Core) -> list[Machine]:
    m = core.m
    return [m.members, m.mesh, m.links, m.routes, m.election, m.rosters, m.rounds]


@dataclass
class Host:
    """One process."""

    core: Core
    disk: MemoryDisk
    address: Address
    identity: Identity
    life: int
    """How many times it was started."""
    alive: bool = True
    dialable: bool = True
    open: set[PeerId] = field(default_factory=set)
    seen: list[Notice] = field(default_factory=list)


class World:
    """Hosts, links and time."""

    def __init__(self, seed: int = 0, complete: int = 32, forget_after: float = 3600.0) -> None:
        self.complete = complete
        profiles = Profiles.named("local", "local", restore_after=20.0)
        self.profiles = replace(
            profiles,
            members=replace(profiles.members, forget_after=forget_after),
            mesh=replace(profiles.mesh, forget_after=forget_after),
        )
        self.dialed: list[tuple[PeerId, PeerId]] = []
        """Who dialed whom."""
        self.rng = random.Random(seed)
        self.now = 0.0
        self.hosts: dict[PeerId, Host] = {}
        self.cut: set[frozenset[PeerId]] = set()
        self.swallowed: set[tuple[PeerId, PeerId]] = set()
        """(from, to): connections that stand, and from which nothing arrives."""
        self._queue: list[tuple[float, int, PeerId, str, tuple[object, ...]]] = []
        self._count = itertools.count()
        self._timers: dict[PeerId, float] = {}

    def add(self, cluster: str, *, founder: bool = False, seed: PeerId | None = None, dialable: bool = True) -> Host:
        identity = Identity.from_bytes(self.rng.randbytes(32), self.rng.randbytes(32))
        address = Address("10.0.0.1", 1000 + len(self.hosts))
        card = PeerCard(identity.peer_id, ClusterId(cluster), str(address) if dialable else "", identity.bulk_public)
        host = self._start(identity, card, MemoryDisk(), address, life=1)
        if founder:
            value = genesis(bytes(8), identity.peer_id)
            self.do(host, host.core.call(Channel.ROUNDS, host.core.m.rounds.bootstrap(value, self.now), self.now))
            self.do(host, host.core.joined(self.now))
        if seed is not None:
            self._connect(identity.peer_id, seed)
        return host

    def restart(self, dead: Host, *, seed: PeerId) -> Host:
        """The same peer again, with its disk and at its address."""
        host = self._start(dead.identity, dead.core.card, dead.disk, dead.address, life=dead.life + 1)
        self._connect(self.id(host), seed)
        return host

    def _start(self, identity: Identity, card: PeerCard, disk: MemoryDisk, address: Address, *, life: int) -> Host:
        machines = Machines(
            identity,
            card.cluster,
            self.profiles,
            disk,
            life,
            random.Random(self.rng.getrandbits(32)),
            planner=lambda request: planning.make_plan(host.core.directory, request),
            validate=planning.check_plan,
        )
        core = Core(machines, card, random.Random(1), complete=self.complete)
        host = Host(core, disk, address, identity, life, dialable=bool(card.address))
        self.hosts[identity.peer_id] = host
        self.do(host, core.start(life << 32, self.now))
        return host

    def id(self, host: Host) -> PeerId:
        return host.core.card.peer

    def do(self, host: Host, todo: list[commands.Command]) -> None:
        """Execute commands; a dead host's are never asked for."""
        me = self.id(host)
        for command in todo:
            match command:
                case commands.Transmit(peer=peer, frame=frame):
                    if peer in host.open:
                        self._post(DELAY, peer, "frame", me, frame)
                case commands.Dial(peer=peer):
                    self.dialed.append((me, peer))
                    self._post(DELAY, me, "dial", peer)
                case commands.Hangup(peer=peer):
                    self._disconnect(me, peer)
                case Persist(key=key, value=value):
                    host.disk.save(key, value)
                case Notice():
                    host.seen.append(command)
        due = host.core.next_timeout()
        if due is not None:
            self._timers[me] = due
        # The stack remembers what its machines want, and asks again only those that got an input: none may be late.
        wanted = [machine.next_timeout() for machine in machines_of(host.core)]
        assert all(time is None or (due is not None and due <= time) for time in wanted)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            timers = [(t, p) for p, t in self._timers.items() if self.hosts[p].alive]
            timer = min(timers, default=(float("inf"), PeerId("")))
            event = self._queue[0][0] if self._queue else float("inf")
            if min(timer[0], event) > end:
                self.now = end
                return
            if event <= timer[0]:
                self.now, _, target, kind, arguments = heapq.heappop(self._queue)
                self._happen(target, kind, arguments)
            else:
                self.now = max(self.now, timer[0])
                host = self.hosts[timer[1]]
                self.do(host, host.core.handle_timeout(self.now))

    def kill(self, host: Host) -> None:
        """SIGKILL: its kernel closes the connections, and refuses new ones."""
        host.alive = False
        for peer in sorted(host.open):
            self._disconnect(self.id(host), peer)

    def dial(self, one: Host, other: Host) -> None:
        """One calls another without having been told to by its stack, as `runtime/entrance` does."""
        self._connect(self.id(one), self.id(other))

    def sever(self, a: Host, b: Host) -> None:
        """No connection between the two any more, nor ever."""
        self.cut.add(frozenset((self.id(a), self.id(b))))
        self._disconnect(self.id(a), self.id(b))

    def _happen(self, target: PeerId, kind: str, arguments: tuple[object, ...]) -> None:
        host = self.hosts[target]
        if not host.alive:
            return
        if kind == "frame":
            peer, frame = arguments
            if peer in host.open and (peer, target) not in self.swallowed:
                self.do(host, host.core.receive(PeerId(str(peer)), frame, self.now))  # type: ignore[arg-type]
        elif kind == "dial":
            self._connect(target, PeerId(str(arguments[0])))

    def _connect(self, a: PeerId, b: PeerId) -> None:
        one, other = self.hosts[a], self.hosts[b]
        if b in one.open:
            return
        if not other.alive or not other.dialable or frozenset((a, b)) in self.cut:
            refused = not other.alive
            self.do(one, one.core.dial_failed(b, refused, self.now))
            return
        one.open.add(b)
        other.open.add(a)
        self.do(one, one.core.opened(b, self.now))
        self.do(other, other.core.opened(a, self.now))

    def _disconnect(self, a: PeerId, b: PeerId) -> None:
        for me, peer in ((a, b), (b, a)):
            host = self.hosts[me]
            if peer in host.open:
                host.open.discard(peer)
                if host.alive:
                    self.do(host, host.core.lost(peer, self.now))
                    assert peer not in host.core.neighbours(), "no route leads over what has ended"

    def _post(self, delay: float, target: PeerId, kind: str, *arguments: object) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._count), target, kind, arguments))


def mesh(world: World, *clusters: str, workers: int = 2) -> dict[str, list[Host]]:
    """Clusters by name, each with its workers, all up and known to each other; leaders first."""
    founder = world.add(clusters[0], founder=True)
    world.run(1.0)
    hosts: dict[str, list[Host]] = {name: [] for name in clusters}
    hosts[clusters[0]].append(founder)
    for name in clusters:
        while len(hosts[name]) < workers:
            hosts[name].append(world.add(name, seed=world.id(founder)))
    world.run(3.0)
    for workers_of in hosts.values():
        workers_of.sort(key=lambda host: not host.core.leading)
    return hosts


def leaders(hosts: dict[str, list[Host]]) -> list[Host]:
    return [h for group in hosts.values() for h in group if h.alive and h.core.leading]
