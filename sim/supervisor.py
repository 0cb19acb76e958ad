"""The lives of simulated processes: started and restarted as a supervisor does, ended as an operating system does.

Each life is one `AsyncPeer`, unmodified, with the simulator's network, clock, chance and disk, and beside it the
training that `sim.workload` does.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Config
from ictp2p.config.values import PRESETS
from ictp2p.core.commands import Failed
from ictp2p.edge.security import PlainSecurity
from ictp2p.errors import IctError, PeerClosed
from ictp2p.machine import Notice
from ictp2p.sync.agreement import acceptor
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.values import quorum
from ictp2p.telemetry import Event
from ictp2p.types import PeerId
from sim.disk import Disk, Mounted
from sim.host import Host
from sim.loop import Process
from sim.network import SimNetwork
from sim.training import train
from sim.workload import Worker

if TYPE_CHECKING:
    from sim.world import World

PORT = 7450
"""Where every simulated peer listens."""
STORE = 7451
"""Where a simulated process group would meet; nobody listens there (`sim.group`)."""
FINGERPRINT = b"simulate"
SEEDS = 3
"""Addresses that a joining host is given, at most."""
RESTART_PAUSE = 1.0
"""Seconds after which a peer that could not start is started again."""
_TOKEN = "simulated-mesh-token"


class Store:
    """What a real peer would open for a process group to meet at."""

    def close(self) -> None:
        """Nothing is open."""


class Supervisor:
    """Starts and ends the processes of one world.

    Args:
        world: where.
        encrypt: whether peers seal bulk bytes.
        full_mesh: clusters up to which every two leaders keep a connection.
        spare_state: do not crash the last worker that holds the newest version of the state.
        spare_quorum: do not lose a disk without which no quorum of the voters is left.
    """

    def __init__(self, world: World, *, encrypt: bool, full_mesh: int, spare_state: bool, spare_quorum: bool) -> None:
        self._world = world
        self._encrypt = encrypt
        self._full_mesh = full_mesh
        self._spare_state = spare_state
        self._spare_quorum = spare_quorum
        self._owners: dict[PeerId, Host] = {}
        self._closed = False
        self._calm = False
        """Whether the world was calmed: then nobody waits any more to be started again."""

    def owner(self, peer: PeerId) -> Host | None:
        """The host that holds a peer's identity, running or not."""
        return self._owners.get(peer)

    def boot(self, host: Host) -> None:
        """Start a host's peer, and its training, unless it runs, or has left."""
        if self._closed or host.alive or host.gone:
            return
        world = self._world
        host.lives += 1
        host.disk.full_at = None
        host.process = process = Process(host.name, *host.skew, now=world.now)
        world.internet.boot(host.name, process)
        if world.audit:
            host.disk.saved = lambda key, value: world.auditor.saved(host, key, value)
        world.trace.event(host.name, "boot", life=host.lives)
        world.loop.create_task(self._main(host, process), context=process.context)

    def crash(self, host: Host, disk: str = "kept", *, power: bool = False) -> None:
        """End a host's process, if it has one, at once; "lost" makes its next one another peer."""
        if host.process is None:
            return
        if (self._spare_state and self._is_last_holder(host)) or (disk == "lost" and self._is_needed(host)):
            self._world.trace.event(host.name, "spared")
            return
        self._world.trace.event(host.name, "crash", disk=disk, power=power)
        host.gone = host.gone and host.left  # who is killed in the middle of leaving has not left
        self._kill(host, host.process, power=power)
        if disk == "lost":
            host.disk = Disk()
            self._disown(host)

    def calm(self) -> None:
        """Start all that crashed. From now on who leaves is started again as well, if the mesh turns out to need it."""
        self._calm = True
        for host in self._world.every_host():
            if host.lives:
                self.boot(host)

    def leave(self, host: Host) -> None:
        """Have a running peer leave politely, for good."""
        if host.process is not None and not host.gone:
            host.gone = True
            self._world.loop.create_task(self._leave(host, host.process), context=host.process.context)

    def close(self) -> None:
        """Kill everything, and start nothing any more."""
        self._closed = True
        for host in self._world.every_host():
            if host.process is not None:
                self._kill(host, host.process, power=True)

    def _kill(self, host: Host, process: Process, *, power: bool) -> None:
        if self._world.audit:
            self._world.auditor.ending(host)
        host.process = host.peer = host.worker = None
        process.alive = False
        self._world.internet.stopped(process, power=power)
        self._world.loop.kill(process)

    def _disown(self, host: Host) -> None:
        self._owners = {peer: owner for peer, owner in self._owners.items() if owner is not host}

    def _is_last_holder(self, host: Host) -> bool:
        newest = self._world.version()
        return [name for name, version in self._world.versions().items() if version == newest] == [host.name]

    def _is_needed(self, host: Host) -> bool:
        """Whether those who are left would be no quorum for what they need to know and decide, without this disk."""
        if not self._spare_quorum:
            return False
        left = {peer: owner for peer, owner in self._owners.items() if owner is not host and not owner.gone}
        known = [Acceptor(peer, owner.disk.load(acceptor.KEY)) for peer, owner in left.items()]
        newest = max((each.slot for each in known), default=0)
        accepted = [each.value.voters for each in known if each.value is not None and each.slot == newest]
        electorates = self._world.auditor.agreement.electorates(newest) + accepted  # which may yet be decided
        return not all(quorum(voters, left) for voters in electorates)

    async def _leave(self, host: Host, process: Process) -> None:
        peer = host.peer
        assert peer is not None
        self._world.trace.event(host.name, "leaving")
        if host.worker is not None:
            peer.set_training(False)
        released = await peer.leave()
        if host.process is process:
            host.left = True
            host.gone = released and not self._votes(peer)
            self._world.at(0.0, lambda: self._ended(host))

    def _ended(self, host: Host) -> None:
        self.crash(host)
        if self._calm:
            self.boot(host)  # unless it is gone, with the mesh's consent

    def _votes(self, peer: AsyncPeer) -> bool:
        """Whether the mesh needs a peer, which has left, after all: then it is started again when the world is calm."""
        newest = self._world.auditor.agreement.newest
        return newest is not None and peer.id in newest[1].voters

    async def _main(self, host: Host, process: Process) -> None:
        """What a supervisor does: start the peer until it starts, then train."""
        cluster = self._world.clusters[host.cluster]
        while True:
            try:
                peer = host.peer = self._make_peer(host, process)
                self._owners[peer.id] = host
                peer.telemetry.subscribe(lambda event: self._told(host, event))
                peer.subscribe(lambda notice: self._noticed(host, process, notice))
                await peer.start()
                break
            except IctError as error:
                if not process.alive:
                    return
                host.note("start_failed", error=f"{type(error).__name__}: {error}")
                host.lives += 1
                await asyncio.sleep(RESTART_PAUSE)
        host.note("joined", cluster=host.cluster)
        if cluster.program is not None:
            await train(host, peer, cluster.program)
        elif cluster.workload is not None:
            host.worker = Worker(host, peer, cluster.workload, self._world.ledger, host.serial)
            with contextlib.suppress(PeerClosed):  # it left in the middle of a round
                await host.worker.run()

    def _make_peer(self, host: Host, process: Process) -> AsyncPeer:
        world, cluster = self._world, self._world.clusters[host.cluster]
        rng = world.chance.generator("peer", host.name, str(host.lives))
        secrets = world.chance.generator("secrets", host.name, str(host.lives))
        config = Config.made(
            PRESETS[cluster.profile],
            {
                "cluster": host.cluster,
                "token": _TOKEN,
                "listen": f"{world.internet.addresses[host.name]}:{PORT}",
                "advertise": "none" if cluster.nat else "",
                "join": self._seeds(host),
                "data_dir": "simulated",
                "rank": host.rank,
                "encrypt": self._encrypt,
                "full_mesh": self._full_mesh,
            },
        )
        return AsyncPeer(
            config,
            network=SimNetwork(world.internet, process),
            clock=world.loop.time,
            rng=rng,
            random_bytes=secrets.randbytes,
            disk=Mounted(host.disk, process, world.loop),
            security=lambda identity: PlainSecurity(identity, FINGERPRINT),
            open_store=lambda interface: (f"{interface}:{STORE}", Store()),
        )

    def _seeds(self, host: Host) -> tuple[str, ...]:
        """Whom to ask for the way in: hosts that were there before, those that run and can be dialed first.

        The world's first host founds the mesh; once it has, it is configured as all others are. So where nobody can be
        dialed it names who cannot, and waits for them to dial: with an empty disk and no seeds it would found another.
        Where all are leaving it names them, for the same reason.
        """
        world = self._world
        founded = any(acceptor.KEY in other.disk.values for other in world.every_host())
        if host is world.founder and not founded and (host.lives == 1 or not world.version()):
            return ()
        others = [h for h in world.every_host() if h is not host and h.lives > 0]
        others = [h for h in others if not h.gone] or [h for h in others if h.alive]
        open_ = [h for h in others if not world.clusters[h.cluster].nat or h.cluster == host.cluster]
        ranked = sorted(open_ or others, key=lambda h: not h.alive)
        return tuple(f"{world.internet.addresses[h.name]}:{PORT}" for h in ranked[:SEEDS])

    def _told(self, host: Host, event: Event) -> None:
        if event.kind != "reduce_progress":
            host.note(event.kind, **event.fields)

    def _noticed(self, host: Host, process: Process, notice: Notice) -> None:
        if process.alive:
            self._world.auditor.notice(host, notice)
        if isinstance(notice, Failed):  # a script whose peer has stopped gets an error, and ends
            self._world.at(0.0, lambda: self.crash(host) if host.process is process else None)
