"""A peer for training loops: `with ictp2p.Peer(config) as peer`.

The peer lives on an event loop of its own in a daemon thread; every method here may be called from any other thread
and blocks until it has its answer or a typed error. What a policy needs is in `training`, what an asyncio program
needs in `async_peer`; this joins them under the names that users see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self, TypeVar

from ictp2p import torchrun
from ictp2p.async_peer import AsyncPeer
from ictp2p.collective_calls import CallEngine, CollectiveCalls
from ictp2p.config import Config
from ictp2p.errors import LocalProtocolError, PeerClosed
from ictp2p.fsm import DRAINING
from ictp2p.health import quantile
from ictp2p.life import Life
from ictp2p.loop_thread import LoopThread
from ictp2p.reporting import clusters_of, links_of, members_of, routes_of
from ictp2p.telemetry import Event, Telemetry
from ictp2p.training import TrainingMesh, open_store
from ictp2p.types import Address, ClusterId, PeerId

T = TypeVar("T")
EventCallback = Callable[[dict[str, Any]], None]


class Peer(CollectiveCalls):
    """One worker's place in the mesh.

    Args:
        config: who we are and where; checked before anything runs.

    Raises:
        StateError: the data folder is in use by another process, or corrupt.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._callbacks: list[EventCallback] = []
        self._loop: LoopThread | None = None
        self._peer: AsyncPeer | None = None
        self._mesh: TrainingMesh | None = None
        self._life: Life | None = None
        self._draining_from: int | None = None

    def __repr__(self) -> str:
        if self._peer is None:
            return f"<Peer {self.config.cluster} not started>"
        clusters = len(self._peer.core.m.mesh.alive())
        return f"<Peer {self._peer.id[:8]} {self.config.cluster} {self.state} clusters={clusters}>"

    # ------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Join the mesh, or found one if the configuration names nobody to join.

        Raises:
            AddressInUse: the listen address is taken.
            Unreachable: no seed answered in time.
            HandshakeFailed, VersionMismatch: all seeds turned us away.
            LocalProtocolError: it has been started before. One whose start failed may be started again.
        """
        if self._peer is not None:
            raise LocalProtocolError("a peer is started once; make another `Peer` for another life")
        mates = torchrun.rendezvous(self.config, os.environ)
        if mates is not None:
            self.config = mates.before(self.config)
        loop = self._loop = LoopThread(f"ictp2p {self.config.cluster}")
        try:
            peer = self._peer = loop.call(lambda: AsyncPeer(self.config, open_store=open_store))
            loop.call(lambda: peer.telemetry.subscribe(self._tell))
            life = self._life = Life(partial(_post, loop, peer.telemetry))
            loop.run(self._start(peer, life))
            if mates is not None:
                mates.after(self.config, peer.address)
        except BaseException:
            loop.close()
            self._loop = self._peer = None
            raise

    async def _start(self, peer: AsyncPeer, life: Life) -> None:
        await peer.start()
        assert self._loop is not None
        self._mesh = TrainingMesh(self._loop, peer, life)
        self._engine = CallEngine(self._loop, peer, self._mesh)
        peer.life = lambda: (life.state, life.inside)

    def close(self) -> None:
        """Leave the mesh politely and stop. May be called twice."""
        if self._loop is None or self._peer is None or self._loop.left_behind:
            return
        if self._mesh is not None:
            self._mesh.close()
        if self._engine is not None:
            self._engine.close()
        try:
            if self._life is not None:
                self._life.closing()
            self._loop.run(self._peer.leave())
            if self._life is not None:
                self._life.closed()
        finally:
            self._loop.close()
            self._loop = None

    def drain(self) -> None:
        """Ask this worker to leave after the next committed round: `steps` ends then. From any thread."""
        mesh = self._training
        if self._draining_from is None:
            self._draining_from = mesh.state.version if mesh.state is not None else -1
            if self._life is not None:
                self._life.draining()

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the batches of `loader` until it ends or this worker has drained."""
        for batch in loader:
            if self._has_drained():
                break
            yield batch
        if self._draining_from is not None and self._life is not None:
            self._life.heard(DRAINING, "committed")

    def _has_drained(self) -> bool:
        if self._draining_from is None:
            return False
        if self._life is not None:
            self._life.heard(DRAINING, "runs")
        state = self._training.state
        return state is None or state.version > self._draining_from

    # ------------------------------------------------------------ what it sees

    @property
    def id(self) -> PeerId:
        """This peer's id."""
        return self._running.id

    @property
    def cluster(self) -> ClusterId:
        """The cluster that it belongs to."""
        return self.config.cluster_id

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._running.address

    @property
    def state(self) -> str:
        """Where it is in its life; see `docs/life.md`."""
        return self._life.state if self._life is not None else "INIT"

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self._running.core.leader

    @property
    def members(self) -> list[dict[str, Any]]:
        """The workers of this cluster."""
        return self._ask(lambda peer: members_of(peer.core))

    @property
    def clusters(self) -> list[dict[str, Any]]:
        """The clusters of the mesh."""
        return self._ask(lambda peer: clusters_of(peer.core))

    @property
    def links(self) -> list[dict[str, Any]]:
        """The links between clusters, as their leaders measure them."""
        return self._ask(lambda peer: links_of(peer.core))

    @property
    def routes(self) -> list[dict[str, Any]]:
        """The routes from this cluster, at its leader."""
        return self._ask(lambda peer: routes_of(peer.core))

    def status(self) -> dict[str, Any]:
        """Everything that this peer believes, as plain data."""
        return self._ask(lambda peer: peer.status())

    def stats(self) -> dict[str, Any]:
        """Counters and latencies of this process; times in seconds."""
        return self._ask(_stats)

    def on_event(self, callback: EventCallback) -> None:
        """Have `callback` called with a flat dict (`kind`, `time`, particulars) for everything that happens.

        It runs on the peer's thread: it must be quick, and must not call this peer.
        """
        self._callbacks.append(callback)

    def _tell(self, event: Event) -> None:
        told = {"kind": event.kind, "time": time.time(), **event.fields}
        for callback in self._callbacks:
            callback(told)

    # ------------------------------------------------------------ for policies (`sync.mesh.Mesh`)

    def __getattr__(self, name: str) -> Any:
        """Policies call the methods of `sync.mesh.Mesh`, which a started peer's `TrainingMesh` implements."""
        mesh = self.__dict__.get("_mesh")
        if name in _MESH_METHODS and mesh is not None:
            return getattr(mesh, name)
        if name in _MESH_METHODS:
            raise PeerClosed(f"start the peer before it is used (`with peer:`): {name} needs a running one")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _running(self) -> AsyncPeer:
        if self._peer is None or self._loop is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._peer

    @property
    def _training(self) -> TrainingMesh:
        if self._mesh is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._mesh

    def _ask(self, question: Callable[[AsyncPeer], T]) -> T:
        peer = self._running
        assert self._loop is not None
        return self._loop.call(lambda: question(peer))


_MESH_METHODS = frozenset(name for name in vars(TrainingMesh) if not name.startswith("_") and name != "close")


def _post(loop: LoopThread, telemetry: Telemetry, kind: str, **fields: Any) -> None:
    """Report something from whichever thread it happened in."""
    loop.post(lambda: telemetry.event(kind, **fields))


def _stats(peer: AsyncPeer) -> dict[str, Any]:
    figures = peer.telemetry.snapshot()
    trips = peer.core.m.links.round_trips
    return {
        **figures.counters,
        **figures.gauges,
        "control_round_trip_p50": quantile(trips, 0.5),
        "control_round_trip_p99": quantile(trips, 0.99),
        "loop_lag_p50": quantile(peer.health.lags, 0.5),
        "loop_lag_p99": quantile(peer.health.lags, 0.99),
        "false_suspicions": peer.health.false_suspicions,
        "illegal_transitions": figures.counters.get("illegal_transition", 0),
        "control_connections": len(peer.core.connected()),
    }
