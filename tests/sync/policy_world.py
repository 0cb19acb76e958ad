"""An in-process mesh for the policies: threads for workers, exact sums, and faults by script."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.rosters.roster import Roster
from ictp2p.sync.state.global_state import GlobalState
from tests.sync.fake_group import DEADLINE, Exchange, Killed
from tests.sync.fake_mesh import FakeMesh


@dataclass
class Cluster:
    expected: int
    ready: list[str] = field(default_factory=list)
    roster: Roster | None = None
    exchange: Exchange | None = None
    pending: bool = False


class World:
    """Clusters of workers. `faults` maps (worker, operation, how many before it) to what to raise there."""

    def __init__(self, **sizes: int) -> None:
        self.changed = threading.Condition()
        self.clusters = {name: Cluster(size) for name, size in sizes.items()}
        self.version, self.digest = 0, b""
        self.lineage = b""
        self.contributors: dict[int, set[str]] = {}
        self.states: dict[str, GlobalState] = {}
        self.contributions: dict[str, RoundRequest] = {}
        self.weights: dict[int, dict[str, float]] = {}
        """By the number of the round, what the clusters said that they bring."""
        self.votes: dict[str, bytes] = {}
        self.met: set[str] = set()
        self.absent: dict[int, set[str]] = {}
        """By the number of the round, the clusters that it goes on without."""
        self.members: dict[int, list[str]] = {}
        """By the number of the round, the clusters that it waits for: those that were there when it began."""
        self.sums = False
        """Whether a round sums contributions, so that a model can be a tally, instead of averaging them."""
        self.aborts: set[int] = set()
        self.restarts: set[int] = set()
        self.rounds = 0
        self.faults: dict[tuple[str, str, int], Callable[[], BaseException]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.dead: set[str] = set()
        self.late: dict[str, int] = {}
        """Workers that come once so many rounds have ended; the next one waits for them, however slow the machine."""
        self.events: list[tuple[str, str, dict[str, object]]] = []
        self.results: dict[str, Any] = {}
        self.clock: Callable[[str], float] = lambda worker: time.monotonic()
        self.seconds: Callable[[str], float] = lambda cluster: 0.0
        """How long a round took, as the leader of a cluster measured it."""
        self.errors: dict[str, BaseException] = {}

    def fault(self, worker: str, operation: str) -> None:
        count = self.counts.get((worker, operation), 0)
        self.counts[worker, operation] = count + 1
        made = self.faults.get((worker, operation, count))
        if made is None:
            return
        raised = made()
        if isinstance(raised, Killed):
            self.kill(worker)
        raise raised

    def kill(self, worker: str) -> None:
        with self.changed:
            self.dead.add(worker)
            self.late.pop(worker, None)
            self.leave(worker)

    def leave(self, worker: str) -> None:
        cluster = self.clusters[worker.split("/")[0]]
        if worker in cluster.ready:
            cluster.ready.remove(worker)
            if cluster.exchange is not None and cluster.roster is not None and worker in cluster.roster.members:
                self.renew(cluster, f"{worker} is gone")

    def renew(self, cluster: Cluster, reason: str) -> None:
        """The next roster: the sitting leader first, then the others by name."""
        if cluster.exchange is not None:
            cluster.exchange.abort(reason)
        number = cluster.roster.number + 1 if cluster.roster else 1
        if cluster.ready:
            cluster.roster = Roster(1, number, tuple(cluster.ready), "127.0.0.1:1", 0)
            cluster.exchange = Exchange(len(cluster.ready))
        cluster.pending = False
        self.changed.notify_all()

    def run(self, **bodies: Callable[[FakeMesh], Any]) -> dict[str, Any]:
        """Run workers named `cluster_0`, `cluster_1`, each in a thread; their results by name."""
        threads = [self.start(name, body) for name, body in bodies.items()]
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a worker hangs"
        for error in self.errors.values():
            raise error
        return self.results

    def gone(self, name: str) -> bool:
        cluster = self.clusters[name]
        return cluster.roster is not None and not cluster.ready

    def start(self, name: str, body: Callable[[FakeMesh], Any], after: int = 0) -> threading.Thread:
        """Run a worker in a thread, once so many rounds have ended."""
        worker, cluster = name.replace("_", "/"), name.split("_")[0]
        if after:
            self.late[worker] = after

        def work() -> None:
            with self.changed:
                over = lambda: self.rounds >= after or all(map(self.gone, self.clusters))  # noqa: E731
                assert self.changed.wait_for(over, 2 * DEADLINE)
                self.clusters.setdefault(cluster, Cluster(1))
            try:
                self.results[name] = body(FakeMesh(self, worker))
            except Killed:
                pass
            except BaseException as error:
                self.errors[name] = error
                self.kill(worker)

        thread = threading.Thread(target=work, name=name)
        thread.start()
        return thread
