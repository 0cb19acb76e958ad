"""Workers of a simulated world: the same policies, peers and books, on virtual time, and every run can be repeated."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.chaos import testimony
from benchmarks.chaos.books import Books, Count, Ledger, Recorder
from benchmarks.chaos.crowd import Crowd, Worker
from benchmarks.chaos.worker import HEARD
from ictp2p.errors import IctError, PeerClosed
from sim.faults import Pause, Resume
from sim.host import Host
from sim.invariants import Breach
from sim.trace import Entry
from sim.training import Training
from sim.world import World

_SLICE = 0.1
"""Virtual seconds after which the controller takes what was said."""


class Simulated(Crowd):
    """A crowd in a world of its own."""

    def __init__(
        self, options: argparse.Namespace, rng: random.Random, event: Callable[[Worker, dict[str, Any]], None]
    ) -> None:
        super().__init__(options, rng, event)
        self._world = World(options.seed)
        self._world.links(delay=0.0005, bandwidth=1e8)
        self._world.trace.subscribers.append(self._traced)
        self._lives: dict[str, Worker] = {}
        """The newest life on each host."""
        self._said: list[tuple[Worker, dict[str, Any]]] = []

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._world.now

    def spawn(self, cluster: str, data: Path | None = None) -> Worker:
        """Boot a host, one that ran before or a new one."""
        world = self._world
        slot = self.slots.setdefault(cluster, len(self.slots))
        if cluster not in world.clusters:
            world.cluster(cluster, workers=0, at=None, program=self._program)
        host = world.host(cluster, at=None) if data is None else world.hosts[str(data)]
        name = host.name if not host.lives else f"{host.name}:{host.lives + 1}"
        worker = self._lives[host.name] = Worker(name, cluster, slot, Path(host.name), self.now)
        self._enlist(worker, again=data is not None)
        world.restart(host.name)
        return worker

    def lose(self, data: Path) -> None:
        """Whose disk is lost never comes back."""
        del self.gone[data]

    def hear(self, seconds: float) -> None:
        """Let virtual time pass, and take what was said meanwhile."""
        self.take_back()
        due = min((at for at, _ in self._due), default=self.now + _SLICE)
        try:
            self._world.run_to(min(self.now + min(seconds, _SLICE), max(due, self.now + 1e-3)))
        except Breach as breach:
            self.problem(str(breach))
            raise
        self._deliver()

    def question(self) -> list[Worker]:
        """Look into everybody who runs."""
        asked = [worker for worker in self.workers if worker.running]
        for worker in asked:
            peer = self._host(worker).peer
            believed = testimony.beliefs(peer) if worker.peer and peer is not None else {"silent": "it is not started"}
            self._said.append((worker, {"kind": "testimony", "threads": {}, "beliefs": believed}))
        self._deliver()
        return asked

    def end(self) -> None:
        """End the world."""
        self._world.close()

    def log(self, worker: Worker) -> str:
        """Nothing: all that it says are events."""
        return ""

    def _kill(self, worker: Worker) -> None:
        self._world.crash(self._host(worker).name)
        self._ended(worker, -9)

    def _stop(self, worker: Worker) -> None:
        self._world.inject(Pause(self._host(worker).name))

    def _continue(self, worker: Worker) -> None:
        self._world.inject(Resume(self._host(worker).name))

    def _dismiss(self, worker: Worker, how: str) -> None:
        if how == "interrupt":
            self._leave(self._host(worker))

    def _leave(self, host: Host) -> None:
        self._world.at(0.0, lambda: self._world.supervisor.leave(host))

    def _host(self, worker: Worker) -> Host:
        return self._world.hosts[str(worker.data)]

    # -- hearing

    def _traced(self, entry: Entry) -> None:
        """On the simulated loop: something happened at a host."""
        worker = self._lives.get(entry.host)
        host = self._world.hosts.get(entry.host)
        if worker is None or host is None or worker.code is not None:
            return
        if entry.kind == "joined" and host.peer is not None:
            self._said.append((worker, {"kind": "ready", "peer": host.peer.id, "address": str(host.peer.address)}))
        elif entry.kind in HEARD:
            self._said.append((worker, {"kind": entry.kind, **entry.fields}))

    def _deliver(self) -> None:
        while self._said:
            self._note(*self._said.pop(0))  # also of those who died since: they had said it
        for worker in self.workers:
            if worker.code is None and self._lives[str(worker.data)] is worker and self._has_left(worker):
                self._ended(worker, 0)

    def _has_left(self, worker: Worker) -> bool:
        return worker.draining and not self._host(worker).alive

    # -- training

    def _program(self, training: Training) -> None:
        """What each worker runs; see `worker`."""
        host = training.host
        worker = self._lives[host.name]
        try:
            self._train(worker, training)
        except PeerClosed:
            return
        except IctError as error:
            self._said.append((worker, {"kind": "failed", "error": type(error).__name__, "text": str(error)}))
        self._leave(host)

    def _train(self, worker: Worker, training: Training) -> None:
        def say(kind: str, **fields: Any) -> None:
            self._said.append((worker, {"kind": kind, **fields}))

        pause = random.Random(f"{self.options.seed} {worker.name}")
        model, count = Books(worker.slot, self.options.ballast), Count()
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        with Ledger(Recorder(training, worker.slot, say), model, inner, count) as policy:
            policy.report()
            drained_from: int | None = None
            while drained_from is None or policy.version <= drained_from:
                drained_from = policy.version if worker.draining and drained_from is None else drained_from
                policy.check()
                training.compute(0.002 + pause.uniform(0.0, self.options.pause))
                model().backward()
                inner.step()
                inner.zero_grad()
                policy.report()
                policy.check()
            say("drained", version=policy.version)
