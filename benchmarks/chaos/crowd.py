"""The worker processes as their controller has them: started, stopped, killed, heard, and buried."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.worker import STACKS, TESTIFY, fork
from ictp2p.sync.values import quorum
from ictp2p.types import PeerId

_QUIET = {"alive", "reduce_progress", "contribute", "version", "outer", "ready", "testimony", "status"}
"""Kinds of events that say nothing about why nothing happens."""
_NOISE = {"kind", "time", "plan", "digest", "seconds", "bytes_sent", "bytes_received", "bytes"}
"""Particulars that do not either; nor does the reason for a plan."""
_REMEMBERED = 60
"""Last events that do, of all workers together."""


@dataclass
class Worker:
    """One worker process, as the controller sees it."""

    name: str
    cluster: str
    slot: int
    data: Path
    process: int
    ears: int
    began: float
    errors: Path
    peer: str = ""
    address: str = ""
    leads: bool = False
    """Whether it leads its cluster, as far as it said."""
    version: int = 0
    heard: float = 0.0
    stopped: bool = False
    doomed: bool = False
    """Killed, or told to leave: its end is expected."""
    draining: bool = False
    dumped: bool = False
    code: int | None = None
    descriptors: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    testimony: dict[str, Any] | None = None
    buffer: bytes = b""

    @property
    def running(self) -> bool:
        """Whether it runs, for all that is known."""
        return self.code is None and not self.stopped


class Crowd:
    """All workers of a campaign, and its story.

    Args:
        options: of the command line.
        root: folder for disks and logs.
        rng: chooses addresses and seeds.
        event: told everything that a worker says.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        root: Path,
        rng: random.Random,
        event: Callable[[Worker, dict[str, Any]], None],
    ) -> None:
        self.options, self.root, self.rng, self._event = options, root, rng, event
        self.workers: list[Worker] = []
        self.gone: dict[Path, Worker] = {}
        """The last process of each data folder whose process is dead and may come back."""
        self.slots: dict[str, int] = {}
        self.voters: list[str] = []
        self.newest = self.committed = 0
        self.began = time.monotonic()
        self.problems: list[str] = []
        self.story: list[str] = []
        self.recent: deque[str] = deque(maxlen=_REMEMBERED)
        self.ends: list[str] = []
        self.counts: dict[str, int] = {}
        self.trace = (root / "trace").open("w") if options.trace else None
        self._addresses: dict[Path, str] = {}
        self._number = 0
        self._waking: list[tuple[float, Worker]] = []

    # -- saying

    def tell(self, text: str) -> None:
        """Keep the story, and print it if asked to."""
        line = f"{self.now:7.2f}  v{self.newest:<4} {text}"
        self.story.append(line)
        if self.options.verbose:
            print(line, flush=True)

    def problem(self, text: str) -> None:
        """Something is wrong."""
        self.problems.append(f"{self.now:.2f} s: {text}")
        self.tell(f"PROBLEM {text}")

    @property
    def now(self) -> float:
        """Seconds since the campaign began."""
        return time.monotonic() - self.began

    # -- who is there

    def living(self, *, ready: bool = True) -> list[Worker]:
        """Workers that run."""
        return [w for w in self.workers if w.running and not w.doomed and (w.peer or not ready)]

    def spared(self, *doomed: Worker) -> bool:
        """Whether the newest state, which lives in memory alone, survives in two processes if these end."""
        others = [w for w in self.living() if w not in doomed and w.version >= self.committed]
        return len(others) >= 2

    def quorum_runs(self) -> bool:
        """Whether a quorum of the newest known voters runs now."""
        running = {w.peer for w in self.workers if w.running and w.peer}
        return bool(self.voters) and quorum([PeerId(v) for v in self.voters], [PeerId(p) for p in running])

    # -- doing

    def spawn(self, cluster: str, data: Path | None = None) -> Worker:
        """Start a worker, on a disk that it had before or on a new one."""
        self._number += 1
        folder = data or self.root / f"disk{self._number}"
        seeds = self._seeds()
        # The same address again, as a service has it, or a new one.
        listen = self._addresses.get(folder, "127.0.0.1:0") if self.rng.random() < 0.5 else "127.0.0.1:0"
        slot = self.slots.setdefault(cluster, len(self.slots))
        given = {
            "cluster": cluster,
            "slot": slot,
            "join": seeds,
            "listen": listen,
            "data": str(folder),
            "rate": self.options.rate,
            "ballast": self.options.ballast,
            "pause": self.options.pause,
            "seed": self._number,
        }
        errors = self.root / f"{self._number}.err"
        process, ears = fork(given, errors)
        now = time.monotonic()
        worker = Worker(f"{cluster}/{self._number}", cluster, slot, folder, process, ears, now, errors, heard=now)
        self.workers.append(worker)
        self.gone.pop(folder, None)
        self.tell(f"start {worker.name} pid {process} {'old' if data else 'new'} disk, seeds {len(seeds)}")
        return worker

    def _seeds(self) -> list[str]:
        staying = [w for w in self.workers if w.code is None and w.address and not w.draining]
        seeds = [w.address for w in staying if w.running] or [w.address for w in staying]
        self.rng.shuffle(seeds)
        return seeds[:3]

    def kill(self, worker: Worker, why: str) -> None:
        """SIGKILL, unless the newest state would die with it."""
        if worker.code is None and self.spared(worker):
            self.tell(f"kill {worker.name} ({why})")
            worker.doomed = True
            os.kill(worker.process, signal.SIGKILL)
            self.gone[worker.data] = worker

    def stop(self, worker: Worker, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.tell(f"stop {worker.name} for {seconds:.1f} s")
        worker.stopped = True
        os.kill(worker.process, signal.SIGSTOP)
        self._waking.append((time.monotonic() + seconds, worker))

    def dismiss(self, worker: Worker, how: signal.Signals, what: str) -> None:
        """Have it leave by itself."""
        self.tell(f"{what} {worker.name}")
        worker.draining = worker.doomed = True
        os.kill(worker.process, how)

    def wake(self, *, everybody: bool = False) -> None:
        """SIGCONT whose time has come."""
        now = time.monotonic()
        for due, worker in list(self._waking):
            if due <= now or everybody:
                self._waking.remove((due, worker))
                worker.stopped, worker.heard = False, now
                if worker.code is None:
                    os.kill(worker.process, signal.SIGCONT)
                    self.tell(f"continue {worker.name}")

    def question(self) -> list[Worker]:
        """Have everybody who runs testify: told as an event, and its stacks in its log. Returns who was asked."""
        asked = [worker for worker in self.workers if worker.running]
        for worker in asked:
            worker.testimony = None
            os.kill(worker.process, TESTIFY)
            if not worker.dumped:
                worker.dumped = True
                os.kill(worker.process, STACKS)
        return asked

    def end(self) -> None:
        """Kill whoever is left."""
        for worker in self.workers:
            if worker.code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process, signal.SIGKILL)
                os.waitpid(worker.process, 0)
        if self.trace is not None:
            self.trace.close()

    # -- hearing

    def hear(self, seconds: float) -> None:
        """Listen to everybody, for a moment."""
        self.wake()
        ears = {w.ears: w for w in self.workers if w.ears >= 0}
        for ready in select.select(list(ears), [], [], seconds)[0]:
            self._take(ears[ready])
        for worker in self.workers:
            if worker.code is None:
                self._reap(worker)

    def _take(self, worker: Worker) -> None:
        """Take what it said."""
        try:
            data = os.read(worker.ears, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            os.close(worker.ears)
            worker.ears = -1
            return
        worker.heard = time.monotonic()
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            if self.trace is not None:
                self.trace.write(f"{worker.name} {line.decode()}\n")
            self._note(worker, json.loads(line))

    def _note(self, worker: Worker, event: dict[str, Any]) -> None:
        """What concerns the process itself; the rest is for others."""
        kind = event["kind"]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind not in _QUIET:
            self.recent.append(f"{self.now:7.2f} {worker.name} {kind} {_briefly(event)}")
        match kind:
            case "ready":
                worker.peer, worker.address = event["peer"], event["address"]
                self._addresses[worker.data] = worker.address
            case "leader":
                worker.leads = event["leader"] == worker.peer
            case "contribute":
                worker.leads = True
            case "alive":
                worker.descriptors.append(event["descriptors"])
                worker.memory.append(event["memory"])
            case "testimony":
                worker.testimony = event
            case "failed":
                self.tell(f"{worker.name} failed: {event['error']}: {event['text']}")
                self.ends.append(f"{event['error']}: {event['text']}")
            case "drained":
                worker.doomed = True
        self._event(worker, event)

    def _reap(self, worker: Worker) -> None:
        """Notice its end."""
        process, status = os.waitpid(worker.process, os.WNOHANG)
        if not process:
            return
        while worker.ears >= 0 and select.select([worker.ears], [], [], 0)[0]:
            self._take(worker)
        worker.code = os.waitstatus_to_exitcode(status)
        if worker.ears >= 0:
            os.close(worker.ears)
            worker.ears = -1
        text = worker.errors.read_text()[-3000:] if worker.errors.exists() else ""
        if worker.code not in (0, 1, -signal.SIGKILL) or "Traceback" in text:
            self.problem(f"{worker.name} ended with {worker.code}:\n{text}")
        elif not worker.doomed and worker.code != 0:
            self.tell(f"{worker.name} ended by itself with {worker.code}")
            self.gone[worker.data] = worker
        if worker.draining and not worker.code:
            self.tell(f"{worker.name} left")


def _briefly(event: dict[str, Any]) -> str:
    noise = {*_NOISE, "reason"} if event["kind"] in ("round_opened", "round_committed") else _NOISE
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in noise)
