"""One campaign: found a mesh, harm it, let it recover, and check the books."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from benchmarks.chaos.audit import Audit
from benchmarks.chaos.crowd import Crowd, Worker
from benchmarks.chaos.harm import Harm
from benchmarks.chaos.inquest import Inquest


class Campaign:
    """Leads it, and watches that versions go on."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.crowd = Crowd(options, root, self.rng, self._event)
        self.inquest = Inquest(self.crowd)
        self._audit = Audit()
        self._harm = Harm(self.crowd, self.listen)
        self._moved = time.monotonic()
        self._asked = False

    def run(self) -> None:
        """All of it."""
        crowd = self.crowd
        try:
            self._found()
            until = time.monotonic() + self.options.seconds
            while time.monotonic() < until and not (crowd.problems and self.options.stop_at_problem):
                self._harm.act()
                self.listen(self.rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]) * self.rng.uniform(0.5, 1.5))
            self._harm.trap = ""
            self._recover()
        finally:
            crowd.end()
        self._audit.close(crowd)

    def listen(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.crowd.hear(min(left, 0.1))
            self._watch()

    def _found(self) -> None:
        self.crowd.spawn("a")
        while not self.crowd.workers[0].address:
            self.listen(0.05)
        for name in ("a", "b", "b", "c", "c", "d")[: self.options.workers - 1]:
            self.crowd.spawn(name)
        self.listen(1.0)
        self._await_version(3, 30.0)

    def _event(self, worker: Worker, event: dict[str, Any]) -> None:
        crowd = self.crowd
        self._audit.event(crowd, worker, event)
        if event["kind"] == "round_committed":
            crowd.committed = max(crowd.committed, event["version"])
        if event["kind"] == "version":
            worker.version = event["version"]
            if worker.version > crowd.newest:
                crowd.newest, crowd.voters, self._moved = worker.version, event["voters"], time.monotonic()
                self._asked = False
        self._harm.event(worker, event)

    def _watch(self) -> None:
        """Silence and standstill are problems."""
        now, crowd, patience = time.monotonic(), self.crowd, self.options.patience
        if not crowd.quorum_runs():
            self._moved = max(self._moved, now)
        stands = now - self._moved
        if stands > patience / 2 and not self._asked:
            self._asked = True  # what is waited for half-way says more than what is tried at the end
            self.inquest.hold(f"no version after {crowd.newest} for {stands:.0f} s")
        if stands > patience:
            self._moved, self._asked = now, False
            self._fail(f"no version after {crowd.newest} for {patience:g} s although a quorum lives")
        for worker in crowd.workers:
            silent = worker.running and now - worker.heard > patience + 15 and not worker.dumped
            if silent and (crowd.quorum_runs() or worker.draining):
                self._fail(f"{worker.name} pid {worker.process} has been silent for {now - worker.heard:.0f} s")

    def _fail(self, text: str) -> None:
        self.crowd.problem(text)
        self.inquest.hold(text)

    def _await_version(self, version: int, seconds: float) -> None:
        """Wait until some worker has a version."""
        until = time.monotonic() + seconds
        while self.crowd.newest < version:
            if time.monotonic() > until:
                self._fail(f"version {version} did not come within {seconds:g} s")
                return
            self.listen(0.1)

    def _recover(self) -> None:
        """Continue everybody, bring everybody back whose vote may be needed; then versions must go on for all."""
        crowd = self.crowd
        crowd.tell("recover")
        crowd.wake(everybody=True)
        self.listen(0.5)
        self._bring_back()
        goal = crowd.newest + 4
        self._await_version(goal, self.options.patience + 15)
        until = time.monotonic() + self.options.patience
        while behind := [w.name for w in crowd.living(ready=False) if w.version < goal]:
            if time.monotonic() > until:
                self._fail(f"{behind} did not reach version {goal} after the recovery")
                break
            self.listen(0.1)

    def _bring_back(self) -> None:
        crowd = self.crowd
        if not any(w.peer in crowd.voters for w in crowd.living()):
            for data in sorted(crowd.gone):
                if crowd.gone[data].peer in crowd.voters:
                    crowd.spawn(crowd.gone[data].cluster, data)
                    self.listen(2.0)
        for data in sorted(crowd.gone):
            if crowd.gone[data].peer in crowd.voters or len(crowd.living(ready=False)) < 3:
                crowd.spawn(crowd.gone[data].cluster, data)
