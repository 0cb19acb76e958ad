"""The workers of a campaign as their controller has them, whatever they run in, and the story of what happened."""

from __future__ import annotations

import abc
import argparse
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.lines import Lines
from ictp2p.errors import ConfigError
from ictp2p.sync.values import quorum
from ictp2p.types import PeerId

_QUIET = {"alive", "reduce_progress", "contribute", "version", "outer", "ready", "testimony"}
"""Kinds of events that say nothing about why nothing happens."""
_NOISE = {"kind", "time", "plan", "digest", "seconds", "bytes_sent", "bytes_received", "bytes"}
"""Particulars that do not either; nor does the reason for a plan."""
_REMEMBERED = 60
"""Last events that do, of all workers together."""


@dataclass
class Worker:
    """One life of one worker, as the controller sees it."""

    name: str
    cluster: str
    slot: int
    data: Path
    """Names its disk, which its next life may have."""
    heard: float
    peer: str = ""
    address: str = ""
    leads: bool = False
    """Whether it leads its cluster, as far as it said."""
    version: int = 0
    stopped: bool = False
    doomed: bool = False
    """Killed, or told to leave: its end is expected."""
    draining: bool = False
    code: int | None = None
    """How it ended."""
    descriptors: list[int] = field(default_factory=list)
    """Those beside its connections, which come and go with the other workers."""
    connections: list[float] = field(default_factory=list)
    """For each other worker that there was."""
    memory: list[int] = field(default_factory=list)
    testimony: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.born = self.heard

    @property
    def age(self) -> float:
        """Seconds that it has lived, as far as it was heard."""
        return self.heard - self.born

    @property
    def running(self) -> bool:
        """Whether it runs, for all that is known."""
        return self.code is None and not self.stopped


class Crowd(abc.ABC):
    """All workers of a campaign, and its story.

    Its workers are in networks whose lines can be cut where it has `long_lines`.

    Args:
        options: of the command line.
        rng: chooses.
        event: told everything that a worker says.
    """

    long_lines = False

    def __init__(
        self, options: argparse.Namespace, rng: random.Random, event: Callable[[Worker, dict[str, Any]], None]
    ) -> None:
        self.options, self.rng, self._event = options, rng, event
        self.workers: list[Worker] = []
        self.gone: dict[Path, Worker] = {}
        """The last life of each disk whose worker is dead and may come back."""
        self.slots: dict[str, int] = {}
        self.voters: list[str] = []
        self.newest = self.committed = 0
        self.problems: list[str] = []
        self.story: list[str] = []
        self.recent: deque[str] = deque(maxlen=_REMEMBERED)
        self.ends: list[str] = []
        self.counts: dict[str, int] = {}
        self.lines = Lines()
        self._due: list[tuple[float, Callable[[], None]]] = []
        """What is taken back, and when."""

    # -- what depends on what they run in

    @property
    @abc.abstractmethod
    def now(self) -> float:
        """Seconds since the campaign began."""

    @abc.abstractmethod
    def spawn(self, cluster: str, data: Path | None = None) -> Worker:
        """Start a worker, on a disk that it had before or on a new one."""

    @abc.abstractmethod
    def lose(self, data: Path) -> None:
        """Lose the disk of a worker that is dead."""

    @abc.abstractmethod
    def hear(self, seconds: float) -> None:
        """Let time pass, at most so much, while everybody is listened to."""

    @abc.abstractmethod
    def question(self) -> list[Worker]:
        """Have everybody who runs testify, told as an event. Returns who was asked."""

    @abc.abstractmethod
    def end(self) -> None:
        """Kill whoever is left."""

    @abc.abstractmethod
    def log(self, worker: Worker) -> str:
        """What it wrote beside its events."""

    @abc.abstractmethod
    def _kill(self, worker: Worker) -> None: ...

    @abc.abstractmethod
    def _stop(self, worker: Worker) -> None: ...

    @abc.abstractmethod
    def _continue(self, worker: Worker) -> None: ...

    @abc.abstractmethod
    def _dismiss(self, worker: Worker, how: str) -> None: ...

    def _cut(self, one: str, other: str) -> None:
        """Cut the line between two clusters; a crowd that has `long_lines` can."""
        raise ConfigError(f"cannot cut {one}-{other}: {type(self).__name__} has no lines between clusters")

    def _heal(self, one: str, other: str) -> None:
        raise ConfigError(f"cannot heal {one}-{other}: {type(self).__name__} has no lines between clusters")

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

    # -- who is there

    def living(self, *, ready: bool = True) -> list[Worker]:
        """Workers that run."""
        return [w for w in self.workers if w.running and not w.doomed and (w.peer or not ready)]

    def spared(self, *doomed: Worker) -> bool:
        """Whether the newest state, which lives in memory alone, survives in two processes if these end."""
        others = [w for w in self.living() if w not in doomed and w.version >= self.committed]
        return len(others) >= 2

    def stillborn(self) -> bool:
        """Whether everybody has ended before there was a version: nothing is left that anybody could come back to."""
        return not self.newest and bool(self.workers) and all(w.code is not None for w in self.workers)

    def lasts(self, worker: Worker) -> bool:
        """Whether it is one of those that live as long as the campaign, so that a slow leak shows."""
        return worker in self.workers[: self.options.lasting]

    def quorum_runs(self) -> bool:
        """Whether a quorum of the newest known voters runs now, and can hear each other."""
        return bool(self.ruling())

    def ruling(self) -> set[str]:
        """Name the clusters that hear each other and have a quorum of the newest known voters."""
        running = [w for w in self.workers if w.running and w.peer]
        voters = [PeerId(voter) for voter in self.voters]
        for part in self.lines.parts({w.cluster for w in running}) if voters else ():
            if quorum(voters, [PeerId(w.peer) for w in running if w.cluster in part]):
                return part
        return set()

    # -- doing

    def kill(self, worker: Worker, why: str) -> None:
        """End it at once, unless it is to last or the newest state would die with it."""
        if worker.code is None and not self.lasts(worker) and self.spared(worker):
            self.tell(f"kill {worker.name} ({why})")
            worker.doomed = True
            self._kill(worker)
            self.gone[worker.data] = worker

    def stop(self, worker: Worker, seconds: float) -> None:
        """Have it stand still, and go on later."""
        self.tell(f"stop {worker.name} for {seconds:.1f} s")
        worker.stopped = True
        self._stop(worker)
        self._due.append((self.now + seconds, lambda: self._go_on(worker)))

    def cut(self, pairs: Iterable[tuple[str, str]], seconds: float) -> None:
        """Cut the lines between pairs of clusters, and heal them later.

        Raises:
            ConfigError: there are no lines between clusters here; names the first.
        """
        cut = list(pairs)
        self.tell(f"cut {', '.join(f'{one}-{other}' for one, other in cut)} for {seconds:.1f} s")
        for one, other in cut:
            if self.lines.cut(one, other):
                self._cut(one, other)
        self._due.append((self.now + seconds, lambda: self._mend(cut)))

    def dismiss(self, worker: Worker, how: str) -> None:
        """Have it leave by itself, unless it is to last: `drain` or `interrupt`."""
        if self.lasts(worker):
            return
        self.tell(f"{how} {worker.name}")
        worker.draining = worker.doomed = True
        self._dismiss(worker, how)

    def take_back(self, *, everything: bool = False) -> None:
        """Let those go on, and heal those lines, whose time has come."""
        for due in list(self._due):
            at, do = due
            if at <= self.now or everything:
                self._due.remove(due)
                do()

    def _go_on(self, worker: Worker) -> None:
        worker.stopped, worker.heard = False, self.now
        if worker.code is None:
            self._continue(worker)
            self.tell(f"continue {worker.name}")

    def _mend(self, pairs: Iterable[tuple[str, str]]) -> None:
        for one, other in pairs:
            if self.lines.heal(one, other):
                self._heal(one, other)
                self.tell(f"heal {one}-{other}")
        for worker in self.workers:
            worker.heard = self.now  # whoever could not go on may now

    # -- hearing

    def _enlist(self, worker: Worker, *, again: bool) -> None:
        self.workers.append(worker)
        self.gone.pop(worker.data, None)
        self.tell(f"start {worker.name} on {'its old' if again else 'a new'} disk")

    def _note(self, worker: Worker, event: dict[str, Any]) -> None:
        """What concerns the worker itself; the rest is for others."""
        kind = event["kind"]
        worker.heard = self.now
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind not in _QUIET:
            self.recent.append(f"{self.now:7.2f} {worker.name} {kind} {_briefly(event)}")
        match kind:
            case "ready":
                worker.peer, worker.address = event["peer"], event["address"]
            case "leader":
                worker.leads = event["leader"] == worker.peer
            case "contribute":
                worker.leads = True
            case "alive":
                worker.descriptors.append(event["descriptors"] - event["connections"])
                others = sum(other is not worker and other.code is None for other in self.workers)
                worker.connections.append(event["connections"] / max(1, others))
                worker.memory.append(event["memory"])
            case "testimony":
                worker.testimony = event
            case "failed":
                self.tell(f"{worker.name} failed: {event['error']}: {event['text']}")
                self.ends.append(f"{event['error']}: {event['text']}")
            case "drained":
                worker.doomed = True
        self._event(worker, event)

    def _ended(self, worker: Worker, code: int) -> None:
        worker.code = code
        if not worker.doomed and code != 0:
            self.tell(f"{worker.name} ended by itself with {code}")
            self.gone[worker.data] = worker
        if worker.draining and not code:
            self.tell(f"{worker.name} left")


def _briefly(event: dict[str, Any]) -> str:
    noise = {*_NOISE, "reason"} if event["kind"] in ("round_opened", "round_committed") else _NOISE
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in noise)
