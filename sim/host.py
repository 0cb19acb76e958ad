"""One simulated machine, and the cluster that it was declared in."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ictp2p.async_peer import AsyncPeer
from ictp2p.types import PeerId
from sim.disk import Disk
from sim.loop import Process
from sim.workload import Checkpoint, Worker, Workload

if TYPE_CHECKING:
    from ictp2p.core.stack import Core
    from sim.training import Program, Training
    from sim.view import View


@dataclass(slots=True)
class Cluster:
    """One cluster as it was declared."""

    name: str
    workers: int
    profile: str
    workload: Workload | None
    nat: bool = False
    program: Program | None = None
    """What its workers train with, instead of a workload."""


class Host:
    """One machine: its disk outlives its processes.

    Args:
        world: where.
        cluster: whose worker it is.
        number: which one, from 0.
        rank: its preference for leadership.
    """

    def __init__(self, world: View, cluster: str, number: int, rank: int) -> None:
        self.world = world
        self.cluster = cluster
        self.name = f"{cluster}/{number}"
        self.rank = rank
        self.disk = Disk()
        self.lives = 0
        """Processes that were started."""
        self.process: Process | None = None
        """What runs, if anything."""
        self.peer: AsyncPeer | None = None
        """The peer of the running process; maybe not started yet."""
        self.worker: Worker | None = None
        """Its training side, once the peer has started."""
        self.training: Training | None = None
        """The same, of a host that runs a program; kept when that has ended."""
        self.checkpoint: Checkpoint | None = None
        """What its worker wrote last, if it writes any."""
        self.slowness = 1.0
        """How many times longer its inner phases take."""
        self.gone = False
        """It is leaving for good, or has left."""
        self.left = False
        """It has."""
        self.skew = (0.0, 1.0)
        """Offset and rate of its clock."""
        self._units = 0

    @property
    def core(self) -> Core | None:
        """The control plane of the running peer."""
        return getattr(self.peer, "core", None) if self.process is not None else None

    @property
    def id(self) -> PeerId | None:
        """The running peer's id."""
        return self.peer.id if self.peer is not None and self.process is not None else None

    @property
    def alive(self) -> bool:
        """Whether a process runs (it may be paused)."""
        return self.process is not None

    @property
    def awake(self) -> bool:
        """Whether a process runs that is not paused."""
        return self.process is not None and not self.process.paused

    @property
    def term(self) -> int:
        """The term in which its cluster is led, as it knows."""
        return self.core.m.election.term if self.core is not None else 0

    @property
    def leads(self) -> bool:
        """Whether it believes to lead its cluster."""
        return self.core is not None and self.core.leading

    def collectives(self) -> list[tuple[PeerId, bytes]]:
        """From whom, and under which tags, frames reach a collective of the running peer."""
        bulk = getattr(self.peer, "bulk", None) if self.process is not None else None
        return bulk.collectives() if bulk is not None else []

    def serial(self) -> int:
        """Number the next unit of work; numbers go on through crashes."""
        self._units += 1
        return self._units

    def note(self, kind: str, **fields: Any) -> None:
        """Put an event in the trace, if this host lives."""
        if self.process is not None and self.process.alive:
            self.world.trace.event(self.name, kind, **fields)

    def context(self) -> contextvars.Context | None:
        """Where callbacks of the running process belong."""
        return self.process.context if self.process is not None else None

    def __repr__(self) -> str:
        state = "gone" if self.gone else "leads" if self.leads else "up" if self.alive else "down"
        return f"<Host {self.name} {state} life={self.lives}>"
