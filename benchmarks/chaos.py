"""Chaos: real workers, killed, stopped, drained, restarted and added at random moments; then the books are checked.

    python benchmarks/chaos.py --seed 7 --seconds 60

The model is a ledger. Every cluster owns one parameter, each inner step adds one to it, and the outer step *sums* what
the clusters contribute. So parameter *k* of the global state counts the inner steps of cluster *k* that the mesh has
committed, in integers that float32 holds exactly, and every worker can prove at any time that no contribution was lost
or counted twice. Afterwards the controller checks that

- each version had one digest, whoever held it, whenever;
- each version is the one before plus one contribution of every listed participant, and of nobody else; or, where
  all holders of it died, it has the bytes of an older one;
- versions went on whenever a quorum of the voters was running, and after everybody was let go again;
- no worker fell silent, ended with anything but an `IctError`, or gathered file descriptors.

Workers are forked from this process, which has imported torch once: a new one is up in moments.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

import ictp2p
from ictp2p.demo.lines import encode
from ictp2p.errors import IctError
from ictp2p.sync.values import quorum
from ictp2p.types import PeerId

TOKEN = "chaos 0123456789abcdef"
SLOTS = 16
"""Most clusters over a campaign: each owns a parameter."""
SYNC_EVERY = 4
HEARD = (
    *("round_opened", "reduce_progress", "round_committed", "round_aborted"),
    *("state_fetched", "state_restored", "group", "group_failed", "outer", "warning"),
)
"""The peer's own events that are passed on, beside the worker's."""


# ---------------------------------------------------------------- a worker


class Books(torch.nn.Module):
    """The ledger, and ballast that makes a round last."""

    def __init__(self, slot: int, ballast: int) -> None:
        super().__init__()
        self.slot = slot
        self.steps = torch.nn.Parameter(torch.zeros(SLOTS))
        self.ballast = torch.nn.Parameter(torch.zeros(ballast))

    def forward(self) -> torch.Tensor:
        """A loss whose gradient is -1 at the own parameter and 0 elsewhere."""
        return -self.steps[self.slot] + 0.0 * self.ballast.sum()


class Count:
    """What a cluster's training knows of itself; it is healed with the parameters, and so has to fit them."""

    def __init__(self) -> None:
        self.opening: int | None = None
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        """As torch has it."""
        return {"opening": self.opening, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As torch has it."""
        self.opening, self.steps = state["opening"], state["steps"]


class Recorder:
    """The peer as the policy sees it, with an outer round that adds up, and that writes down what it brings."""

    def __init__(self, peer: ictp2p.Peer, slot: int, say: Any) -> None:
        self.peer, self.slot, self.say = peer, slot, say
        self.report: Any = lambda: None
        self.adopted: Any = lambda verdict: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.peer, name)

    def outer_round(self, request: Any) -> Any:
        """Sum; the ledger is what comes first in the flat pseudo-gradient."""
        gained = -int(request.inputs[0][self.slot])
        self.say("contribute", base=request.base.version, slot=self.slot, gained=gained)
        return self.peer.outer_round(replace(request, spec=msgspec.structs.replace(request.spec, op="sum")))

    def event(self, kind: str, **fields: Any) -> None:
        """Note something, and report each version when it is there."""
        self.peer.event(kind, **fields)
        if kind == "outer":
            self.adopted(fields["verdict"])
            self.report()


class Ledger(ictp2p.LocalSGD):
    """LocalSGD that writes everything down."""

    def __init__(self, peer: Recorder, model: Books, inner: torch.optim.Optimizer, count: Count) -> None:
        self.books, self.count, self.recorder, self._reported = model, count, peer, 0
        super().__init__(peer, model, inner, SYNC_EVERY, carry=[count])
        peer.report, peer.adopted = self.report, self.adopted

    def adopted(self, verdict: str) -> None:
        """While we were away, our cluster went on without us: its steps are in the state, and we are not behind it."""
        have, held = (int(t[self.books.slot]) for t in (self.books.steps, self.global_parameters()["steps"]))
        if verdict == "ADOPT" and have == held and self.count.opening is not None:
            self.count.opening = max(self.count.opening, have - self.count.steps)

    def _after_step(self, optimizer: object, args: object, kwargs: object) -> None:
        self.count.steps += self.books.steps.grad is not None
        super()._after_step(optimizer, args, kwargs)

    def report(self) -> None:
        """Say version and digest, once for each version."""
        if self.version == self._reported:
            return
        self._reported = self.version
        inside: Any = self.recorder.peer._peer
        tip = inside.core.m.rounds.tip
        self.recorder.say(
            "version",
            version=self.version,
            digest=self.digest(),
            books=[int(n) for n in self.global_parameters()["steps"]],
            voters=list(tip[1].voters) if tip else [],
        )

    def check(self) -> None:
        """The cluster's own parameter is what it began with plus every step since, committed or not."""
        have = int(self.books.steps[self.books.slot])
        if self.count.opening is None:
            self.count.opening = have - self.count.steps
        want = self.count.opening + self.count.steps
        if have != want:
            self.recorder.say("books", have=have, want=want, version=self.version, step=self.progress.step)
            self.count.opening = have - self.count.steps


def work(options: dict[str, Any], out: int) -> int:
    """Be one worker; the exit status."""
    lock = threading.Lock()

    def say(kind: str, **fields: Any) -> None:
        with lock:
            os.write(out, (encode({"kind": kind, "time": time.time(), **fields}) + "\n").encode())

    config = ictp2p.Config.local(
        cluster=options["cluster"],
        token=TOKEN,
        listen=options["listen"],
        join=tuple(options["join"]),
        data_dir=options["data"],
        bulk_rate=options["rate"],
    )
    peer = ictp2p.Peer(config)
    peer.on_event(lambda event: say(**event) if event["kind"] in HEARD else None)
    signal.signal(signal.SIGUSR2, lambda *_: peer.drain())
    signal.signal(signal.SIGWINCH, lambda *_: say("status", **peer.status()))
    torch.set_num_threads(1)
    try:
        with peer:
            say("ready", peer=peer.id, address=str(peer.address))
            _train(options, peer, say)
    except KeyboardInterrupt:
        say("interrupted")
    except IctError as error:
        say("failed", error=type(error).__name__, text=str(error))
        return 1
    return 0


def _train(options: dict[str, Any], peer: ictp2p.Peer, say: Any) -> None:
    model, count = Books(options["slot"], options["ballast"]), Count()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    pause = random.Random(options["seed"])
    with Ledger(Recorder(peer, options["slot"], say), model, inner, count) as policy:
        policy.report()
        said = 0.0
        for _ in peer.steps(iter(int, 1)):
            policy.check()
            time.sleep(pause.uniform(0.0, options["pause"]))
            model().backward()
            inner.step()
            inner.zero_grad()
            policy.report()
            policy.check()
            if time.monotonic() - said > 0.5:
                said = time.monotonic()
                descriptors = sum(1 for _ in Path("/dev/fd").iterdir())
                say("alive", version=policy.version, descriptors=descriptors, threads=threading.active_count())
        say("drained", version=policy.version)


def fork(options: dict[str, Any], errors: Path) -> tuple[int, int]:
    """Start a worker; its process and where it is heard."""
    ears, mouth = os.pipe()
    parent = os.getpid()
    process = os.fork()
    if process:
        os.close(mouth)
        os.set_blocking(ears, False)
        return process, ears
    code = 2
    try:
        os.setsid()
        os.close(ears)
        log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
        code = work(options, mouth)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(3)


# ---------------------------------------------------------------- the controller's memory of one


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
    version: int = 0
    heard: float = 0.0
    stopped: bool = False
    doomed: bool = False
    """Killed, or told to leave: its end is expected."""
    draining: bool = False
    dumped: bool = False
    code: int | None = None
    descriptors: list[int] = field(default_factory=list)
    buffer: bytes = b""

    @property
    def running(self) -> bool:
        """Whether it runs, for all that is known."""
        return self.code is None and not self.stopped


@dataclass
class Seen:
    """What was seen of versions."""

    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    books: dict[int, list[int]] = field(default_factory=dict)
    participants: dict[int, set[str]] = field(default_factory=dict)
    gained: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """Contributions by (slot, base version)."""
    restored: dict[int, int] = field(default_factory=dict)
    """Versions that have the bytes of an older one, because all holders of those between had died."""
    excused: set[tuple[str, int]] = field(default_factory=set)
    """Workers and the restore after which their books were found to lack what was lost by it."""


class Chaos:
    """One campaign."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        self.options, self.root = options, root
        self.rng = random.Random(options.seed)
        self.workers: list[Worker] = []
        self.gone: dict[Path, Worker] = {}
        """The last process of each data folder whose process is dead and may come back."""
        self.addresses: dict[Path, str] = {}
        self.slots: dict[str, int] = {}
        self.seen = Seen()
        self.problems: list[str] = []
        self.story: list[str] = []
        self.voters: list[str] = []
        self.newest = self.committed = 0
        self.moved = self.began = time.monotonic()
        self.ends: list[tuple[str, str]] = []
        self.trap = ""
        """An event whose next teller is harmed."""
        self.number = 0
        self.waking: list[tuple[float, Worker]] = []
        self.counts: dict[str, int] = {}

    # -- saying

    def tell(self, text: str) -> None:
        """Keep the story, and print it if asked to."""
        line = f"{time.monotonic() - self.began:7.2f}  v{self.newest:<4} {text}"
        self.story.append(line)
        if self.options.verbose:
            print(line, flush=True)

    def problem(self, text: str) -> None:
        """Something is wrong."""
        self.problems.append(f"{time.monotonic() - self.began:.2f} s: {text}")
        self.tell(f"PROBLEM {text}")

    # -- workers

    def spawn(self, cluster: str, data: Path | None = None) -> Worker:
        """Start a worker, on a disk that it had before or on a new one."""
        self.number += 1
        slot = self.slots.setdefault(cluster, len(self.slots))
        folder = data or self.root / f"disk{self.number}"
        seeds = [w.address for w in self.workers if w.running and w.address and not w.draining]
        seeds = seeds or [w.address for w in self.workers if w.code is None and w.address and not w.draining]
        self.rng.shuffle(seeds)
        # The same address again, as a service has it, or a new one.
        listen = self.addresses.get(folder, "127.0.0.1:0") if self.rng.random() < 0.5 else "127.0.0.1:0"
        name = f"{cluster}/{self.number}"
        given = {
            "cluster": cluster,
            "slot": slot,
            "join": seeds[:3],
            "listen": listen,
            "data": str(folder),
            "rate": self.options.rate,
            "ballast": self.options.ballast,
            "pause": self.options.pause,
            "seed": self.number,
        }
        errors = self.root / f"{self.number}.err"
        process, ears = fork(given, errors)
        worker = Worker(name, cluster, slot, folder, process, ears, time.monotonic(), errors)
        worker.heard = time.monotonic()
        self.workers.append(worker)
        self.gone.pop(folder, None)
        self.tell(f"start {name} pid {process} {'old' if data else 'new'} disk, seeds {len(seeds[:3])}")
        return worker

    def living(self, *, ready: bool = True) -> list[Worker]:
        """Workers that run."""
        return [w for w in self.workers if w.running and not w.doomed and (w.peer or not ready)]

    def spared(self, *doomed: Worker) -> bool:
        """Whether the newest state, which lives in memory alone, survives in two processes if these end."""
        others = [w for w in self.living() if w not in doomed and w.version >= self.committed]
        return len(others) >= 2

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
        self.waking.append((time.monotonic() + seconds, worker))

    def wake(self, *, everybody: bool = False) -> None:
        """SIGCONT whose time has come."""
        now = time.monotonic()
        for due, worker in list(self.waking):
            if due <= now or everybody:
                self.waking.remove((due, worker))
                worker.stopped, worker.heard = False, now
                if worker.code is None:
                    os.kill(worker.process, signal.SIGCONT)
                    self.tell(f"continue {worker.name}")

    # -- hearing

    def listen(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.wake()
            ears = {w.ears: w for w in self.workers if w.ears >= 0}
            for ready in select.select(list(ears), [], [], min(left, 0.1))[0]:
                self.hear(ears[ready])
            self.reap()
            self.watch()

    def hear(self, worker: Worker) -> None:
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
            event = json.loads(line)
            if self.options.trace:
                self.trace.write(f"{worker.name} {line.decode()}\n")
            self.event(worker, event)

    def event(self, worker: Worker, event: dict[str, Any]) -> None:
        """Take one event."""
        kind = event["kind"]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        match kind:
            case "ready":
                worker.peer, worker.address = event["peer"], event["address"]
                self.addresses[worker.data] = worker.address
            case "version":
                self.version(worker, event)
            case "contribute":
                worker.leads = True
                self.seen.gained.setdefault((event["slot"], event["base"]), set()).add(event["gained"])
            case "round_committed":
                self.committed = max(self.committed, event["version"])
                participants = set(event["participants"])
                if self.seen.participants.setdefault(event["version"], participants) != participants:
                    self.problem(f"version {event['version']} lists two sets of participants")
            case "state_restored":
                if event["version"] not in self.seen.restored:
                    self.tell(f"version {event['lost']} is lost; {event['source']} is {event['version']} now")
                self.seen.restored[event["version"]] = event["source"]
            case "books" if self.excuse(worker, event["version"]):
                pass
            case "books":
                self.problem(f"{worker.name} has {event['have']} where it did {event['want']} at v{event['version']}")
            case "alive":
                worker.descriptors.append(event["descriptors"])
            case "failed":
                self.tell(f"{worker.name} failed: {event['error']}: {event['text']}")
                self.ends.append((worker.name, f"{event['error']}: {event['text']}"))
            case "drained":
                worker.doomed = True
        if self.trap == kind:
            self.spring(worker)

    def excuse(self, worker: Worker, version: int) -> bool:
        """Whether steps of a worker are lost, with a version that died; once for each."""
        losses = [(worker.name, number) for number in self.seen.restored if number <= version]
        fresh = [loss for loss in losses if loss not in self.seen.excused]
        self.seen.excused.update(fresh)
        return bool(fresh)

    def version(self, worker: Worker, event: dict[str, Any]) -> None:
        """A worker is at a version."""
        number, digest = event["version"], event["digest"]
        held = self.seen.digests.setdefault(number, {})
        held[worker.name] = digest
        if len(set(held.values())) > 1:
            self.problem(f"version {number} has {len(set(held.values()))} digests: {held}")
        self.seen.books.setdefault(number, event["books"])
        if number < worker.version:
            self.problem(f"{worker.name} went back from version {worker.version} to {number}")
        worker.version = number
        if number > self.newest:
            self.newest, self.moved, self.voters = number, time.monotonic(), event["voters"]

    def reap(self) -> None:
        """Notice ends."""
        for worker in self.workers:
            if worker.code is not None:
                continue
            process, status = os.waitpid(worker.process, os.WNOHANG)
            if not process:
                continue
            while worker.ears >= 0:
                before = worker.ears
                with contextlib.suppress(OSError):
                    self.hear(worker)
                if worker.ears == before and not select.select([before], [], [], 0)[0]:
                    break
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

    def quorum_runs(self) -> bool:
        """Whether a quorum of the newest known voters runs now."""
        running = {w.peer for w in self.workers if w.running and w.peer}
        return bool(self.voters) and quorum([PeerId(v) for v in self.voters], [PeerId(p) for p in running])

    def watch(self) -> None:
        """Silence and standstill are problems."""
        now = time.monotonic()
        if not self.quorum_runs():
            self.moved = max(self.moved, now)
        if now - self.moved > self.options.patience:
            self.problem(f"no version after {self.newest} for {self.options.patience:g} s although a quorum lives")
            self.dump()
            self.moved = now
        for worker in self.workers:
            silent = worker.running and now - worker.heard > self.options.patience + 15 and not worker.dumped
            if silent and (self.quorum_runs() or worker.draining):
                self.problem(f"{worker.name} pid {worker.process} has been silent for {now - worker.heard:.0f} s")
                self.dump()

    def dump(self) -> None:
        """Have every worker write down where its threads are."""
        for worker in self.workers:
            if worker.running and not worker.dumped:
                worker.dumped = True
                os.kill(worker.process, signal.SIGUSR1)
                os.kill(worker.process, signal.SIGWINCH)
                self.tell(f"{worker.name} leads={worker.leads} version {worker.version}: see {worker.errors}")

    # -- doing harm

    def spring(self, worker: Worker) -> None:
        """A trap that was set for an event."""
        kind, victim, self.trap = self.trap, worker, ""
        if self.rng.random() < 0.25:
            victim = self.rng.choice(self.living() or [worker])
        if victim.running:
            if self.rng.random() < 0.25 and self.spared(victim):
                self.stop(victim, self.rng.uniform(0.5, 8.0))
            else:
                self.kill(victim, f"at {kind}")

    def harm(self) -> None:
        """One random act."""
        acts = {
            "kill": 3, "kill_leader": 2, "kill_coordinator": 2, "kill_two": 1, "kill_cluster": 1, "trap": 5,
            "stop": 3, "stop_leader": 2, "stop_two": 1, "drain": 1, "restart": 8, "grow": 2, "cluster": 1,
            "young": 1, "interrupt": 1,
        }  # fmt: skip
        act = self.rng.choices(list(acts), list(acts.values()))[0]
        living = self.living()
        if len(living) < 2 and act not in ("restart", "grow", "cluster"):
            act = "restart"
        leaders = [w for w in living if w.leads] or living
        first = [w for w in living if self.voters and w.peer == self.voters[0]] or leaders
        match act:
            case "kill":
                self.kill(self.rng.choice(living), "any")
            case "kill_leader":
                self.kill(self.rng.choice(leaders), "leader")
            case "kill_coordinator":
                self.kill(self.rng.choice(first), "coordinator")
            case "kill_two":
                for victim in self.rng.sample(living, 2):
                    self.kill(victim, "two at once")
            case "kill_cluster":
                name = self.rng.choice(living).cluster
                mates = [w for w in living if w.cluster == name]
                if not self.spared(*mates):
                    return
                for victim in mates:
                    self.kill(victim, "whole cluster")
                self.listen(self.rng.choice([0.0, 0.3]))
                for victim in mates:
                    if victim.doomed and len(self.living(ready=False)) < self.options.most:
                        self.spawn(name, victim.data)
            case "trap":
                kinds = ["round_opened", "reduce_progress", "round_committed", "group", "contribute", "version"]
                self.trap = self.rng.choice([*kinds, "state_fetched"])
            case "stop":
                self.stop(self.rng.choice(living), self.rng.uniform(0.5, 8.0))
            case "stop_leader":
                self.stop(self.rng.choice(leaders), self.rng.uniform(0.5, 8.0))
            case "stop_two":
                for victim in self.rng.sample(living, 2):
                    self.stop(victim, self.rng.uniform(0.5, 8.0))
            case "drain" if len({w.cluster for w in living}) > 1:
                name = self.rng.choice(living).cluster
                whole = self.rng.random() < 0.5
                mates = [w for w in living if w.cluster == name][: None if whole else 1]
                for victim in mates if self.spared(*mates) else ():
                    self.tell(f"drain {victim.name}")
                    victim.draining = victim.doomed = True
                    os.kill(victim.process, signal.SIGUSR2)
            case "interrupt":
                victim = self.rng.choice(living)
                if not self.spared(victim):
                    return
                self.tell(f"interrupt {victim.name}")
                victim.draining = victim.doomed = True
                os.kill(victim.process, signal.SIGINT)
            case "restart":
                self.restart()
            case "grow" if len(living) < self.options.most:
                self.spawn(self.rng.choice(living).cluster if living else "a")
            case "cluster" if len(living) < self.options.most and len(self.slots) < SLOTS:
                self.spawn("abcdefghijklmnop"[len(self.slots)])
            case "young" if len(living) < self.options.most:
                worker = self.spawn(self.rng.choice(living).cluster)
                self.listen(self.rng.uniform(0.0, 1.5))
                self.kill(worker, "young")

    def restart(self) -> None:
        """Bring a dead one back; without its disk if the mesh can spare its vote for good."""
        if not self.gone or len(self.living(ready=False)) >= self.options.most:
            return
        data = self.rng.choice(sorted(self.gone))
        worker = self.gone[data]
        if not self.living() and worker.peer not in self.voters:
            return  # whom nobody remembers and who finds nobody would found a mesh of its own
        spared = worker.peer and worker.peer not in self.voters and self.quorum_runs()
        if spared and self.rng.random() < 0.3:
            shutil.rmtree(data, ignore_errors=True)
            del self.gone[data]
            self.tell(f"disk of {worker.name} is lost")
            self.spawn(worker.cluster)
        else:
            self.spawn(worker.cluster, data)

    # -- the campaign

    def run(self) -> None:
        """Found a mesh, harm it, let it recover, and check the books."""
        self.trace = (self.root / "trace").open("w")
        try:
            self.spawn("a")
            while not self.workers[0].address:
                self.listen(0.05)
            for name in ("a", "b", "b", "c", "c", "d")[: self.options.workers - 1]:
                self.spawn(name)
            self.listen(1.0)
            self.await_version(3, 30.0)
            until = time.monotonic() + self.options.seconds
            while time.monotonic() < until and not (self.problems and self.options.stop_at_problem):
                self.harm()
                self.listen(self.rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]) * self.rng.uniform(0.5, 1.5))
            self.trap = ""
            self.recover()
        finally:
            for worker in self.workers:
                if worker.code is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker.process, signal.SIGKILL)
                    os.waitpid(worker.process, 0)
            self.trace.close()
        self.audit()

    def await_version(self, version: int, seconds: float) -> None:
        """Wait until some worker has a version."""
        until = time.monotonic() + seconds
        while self.newest < version:
            if time.monotonic() > until:
                self.problem(f"version {version} did not come within {seconds:g} s")
                self.dump()
                self.listen(1.0)
                return
            self.listen(0.1)

    def recover(self) -> None:
        """Continue everybody, bring everybody back whose vote may be needed; then versions must go on for all."""
        self.tell("recover")
        self.wake(everybody=True)
        self.listen(0.5)
        if not any(w.peer in self.voters for w in self.living()) and self.gone:
            for data in sorted(self.gone):
                if self.gone[data].peer in self.voters:
                    self.spawn(self.gone[data].cluster, data)
                    self.listen(2.0)
        for data in sorted(self.gone):
            if self.gone[data].peer in self.voters or len(self.living(ready=False)) < 3:
                self.spawn(self.gone[data].cluster, data)
        goal = self.newest + 4
        self.await_version(goal, self.options.patience + 15)
        until = time.monotonic() + self.options.patience
        while behind := [w.name for w in self.living(ready=False) if w.version < goal]:
            if time.monotonic() > until:
                self.problem(f"{behind} did not reach version {goal} after the recovery")
                self.dump()
                self.listen(2.0)
                break
            self.listen(0.1)

    def audit(self) -> None:
        """Each version is the one before plus one contribution of every participant."""
        names = {slot: name for name, slot in self.slots.items()}
        for number, books in sorted(self.seen.books.items()):
            if (source := self.seen.restored.get(number)) is not None:
                if books != self.seen.books.get(source, books):
                    self.problem(f"version {number} restores {source}, whose books are {self.seen.books[source]}")
                continue
            before = self.seen.books.get(number - 1)
            if before is None:
                continue
            changes = enumerate(now - then for then, now in zip(before, books, strict=True))
            gains = {slot: gain for slot, gain in changes if gain}
            listed = self.seen.participants.get(number)
            if listed is not None and {names[slot] for slot in gains} != listed:
                self.problem(f"version {number} holds {sorted(names[s] for s in gains)}, listed are {sorted(listed)}")
            for slot, gain in gains.items():
                told = self.seen.gained.get((slot, number - 1), set())
                if gain not in told:
                    self.problem(f"version {number} holds {gain} of {names[slot]}, which contributed {sorted(told)}")
        for worker in self.workers:
            held = worker.descriptors
            if len(held) > 40 and min(held[-5:]) > max(held[5:25]) + 20:
                self.problem(f"descriptors of {worker.name} grew: {held[5:25:5]} ... {held[-5:]}")


def main() -> int:
    """Run campaigns; the exit status says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of harm")
    parser.add_argument("--workers", type=int, default=6, help="to begin with")
    parser.add_argument("--most", type=int, default=8, help="workers at once")
    parser.add_argument("--rate", type=float, default=400_000.0, help="bytes per second of tensor traffic per worker")
    parser.add_argument("--ballast", type=int, default=8_000, help="further parameters")
    parser.add_argument("--pause", type=float, default=0.04, help="longest inner step, seconds")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds until a standstill is a problem")
    parser.add_argument("--stop-at-problem", action="store_true")
    parser.add_argument("--trace", action="store_true", help="keep all events")
    parser.add_argument("--keep", help="folder for logs, kept")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    root = Path(options.keep or tempfile.mkdtemp(prefix="ictp2p-chaos-"))
    root.mkdir(parents=True, exist_ok=True)
    chaos = Chaos(options, root)
    chaos.run()
    ends = {f"{text}" for _, text in chaos.ends}
    print(f"seed {options.seed}: {chaos.newest} versions, {len(chaos.workers)} workers, {len(chaos.ends)} typed ends")
    for text in sorted(ends):
        print(f"  ended: {text}")
    print(f"  {dict(sorted(chaos.counts.items()))}")
    for text in chaos.problems:
        print(f"  PROBLEM {text}")
    if chaos.problems and not options.verbose:
        print("\n".join(chaos.story))
    if not options.keep and not chaos.problems:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if chaos.problems else 0


if __name__ == "__main__":
    sys.exit(main())
