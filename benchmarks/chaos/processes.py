"""Workers that are processes of this machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.chaos.crowd import Crowd, Worker
from benchmarks.chaos.worker import DRAIN, STACKS, TESTIFY, fork

_SIGNALS = {"drain": DRAIN, "interrupt": signal.SIGINT}


@dataclass
class Process:
    """What belongs to one worker's process."""

    number: int
    """Its process id."""
    ears: int
    """Where it is heard; -1 once it has said its last."""
    errors: Path
    dumped: bool = False
    buffer: bytes = b""


class Processes(Crowd):
    """A crowd of processes, forked from this one.

    Args:
        options: of the command line.
        rng: chooses addresses and seeds.
        event: told everything that a worker says.
        root: folder for disks and logs.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        rng: random.Random,
        event: Callable[[Worker, dict[str, Any]], None],
        root: Path,
    ) -> None:
        super().__init__(options, rng, event)
        torch.optim.SGD([torch.zeros(1)])  # the first one imports 800 modules, which no worker need do then
        self._root = root
        self._began = time.monotonic()
        self._trace = (root / "trace").open("w") if options.trace else None
        self._processes: dict[str, Process] = {}
        """By the worker's name."""
        self._addresses: dict[Path, str] = {}
        self._token = secrets.token_hex()  # addresses are used again, by another campaign on this machine, too

    @property
    def now(self) -> float:
        """Seconds since the campaign began."""
        return time.monotonic() - self._began

    def spawn(self, cluster: str, data: Path | None = None) -> Worker:
        """Start a worker, on a disk that it had before or on a new one."""
        number = len(self.workers) + 1
        folder = data or self._root / f"disk{number}"
        slot = self.slots.setdefault(cluster, len(self.slots))
        where = self._where(cluster)
        new = f"{where['host']}:0"
        # The same address again, as a service has it, or a new one.
        listen = self._addresses.get(folder, new) if self.rng.random() < 0.5 else new
        given = {
            **where,
            "cluster": cluster,
            "token": self._token,
            "slot": slot,
            "join": self._seeds(),
            "listen": listen,
            "data": str(folder),
            "rate": self.options.rate,
            "ballast": self.options.ballast,
            "pause": self.options.pause,
            "seed": number,
        }
        worker = Worker(f"{cluster}/{number}", cluster, slot, folder, self.now)
        errors = self._root / f"{number}.err"
        self._processes[worker.name] = Process(*fork(given, errors), errors)
        self._enlist(worker, again=data is not None)
        return worker

    def _where(self, cluster: str) -> dict[str, Any]:
        """Which addresses its workers have, what kind of network, and its namespace, if it has one of its own."""
        return {"preset": "local", "host": "127.0.0.1", "network": None}

    def _seeds(self) -> list[str]:
        staying = [w for w in self.workers if w.code is None and w.address and not w.draining]
        seeds = [w.address for w in staying if w.running] or [w.address for w in staying]
        self.rng.shuffle(seeds)
        return seeds[:3]

    def lose(self, data: Path) -> None:
        """Remove the folder of a worker that is dead."""
        shutil.rmtree(data, ignore_errors=True)
        del self.gone[data]

    def question(self) -> list[Worker]:
        """Have everybody who runs testify, told as an event; and write its stacks in its log."""
        asked = [worker for worker in self.workers if worker.running]
        for worker in asked:
            process, worker.testimony = self._processes[worker.name], None
            os.kill(process.number, TESTIFY)
            if not process.dumped:
                process.dumped = True
                os.kill(process.number, STACKS)
        return asked

    def end(self) -> None:
        """Kill whoever is left."""
        for worker in self.workers:
            if worker.code is None:
                with contextlib.suppress(ProcessLookupError):
                    self._signal(worker, signal.SIGKILL)
                os.waitpid(self._processes[worker.name].number, 0)
        if self._trace is not None:
            self._trace.close()

    def log(self, worker: Worker) -> str:
        """What it wrote to its log."""
        errors = self._processes[worker.name].errors
        return errors.read_text(errors="replace") if errors.exists() else ""

    def _kill(self, worker: Worker) -> None:
        self._signal(worker, signal.SIGKILL)

    def _stop(self, worker: Worker) -> None:
        self._signal(worker, signal.SIGSTOP)

    def _continue(self, worker: Worker) -> None:
        self._signal(worker, signal.SIGCONT)

    def _dismiss(self, worker: Worker, how: str) -> None:
        self._signal(worker, _SIGNALS[how])

    def _signal(self, worker: Worker, number: signal.Signals) -> None:
        os.kill(self._processes[worker.name].number, number)

    # -- hearing

    def hear(self, seconds: float) -> None:
        """Listen to everybody, for a moment."""
        self.take_back()
        ears = {p.ears: w for w in self.workers if (p := self._processes[w.name]).ears >= 0}
        for ready in select.select(list(ears), [], [], min(seconds, 0.1))[0]:
            self._take(ears[ready], self._processes[ears[ready].name])
        for worker in self.workers:
            if worker.code is None:
                self._reap(worker, self._processes[worker.name])

    def _take(self, worker: Worker, process: Process) -> None:
        """Take what it said."""
        try:
            data = os.read(process.ears, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            os.close(process.ears)
            process.ears = -1
            return
        *lines, process.buffer = (process.buffer + data).split(b"\n")
        for line in lines:
            if self._trace is not None:
                self._trace.write(f"{worker.name} {line.decode()}\n")
            self._note(worker, json.loads(line))
        if worker.address:
            self._addresses[worker.data] = worker.address

    def _reap(self, worker: Worker, process: Process) -> None:
        """Notice its end."""
        number, status = os.waitpid(process.number, os.WNOHANG)
        if not number:
            return
        while process.ears >= 0 and select.select([process.ears], [], [], 0)[0]:
            self._take(worker, process)
        if process.ears >= 0:
            os.close(process.ears)
            process.ears = -1
        code = os.waitstatus_to_exitcode(status)
        text = self.log(worker)[-3000:]
        if code not in (0, 1, -signal.SIGKILL) or "Traceback" in text:
            worker.code = code
            self.problem(f"{worker.name} ended with {code}:\n{text}")
        else:
            self._ended(worker, code)
