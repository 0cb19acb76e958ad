"""One campaign: found a mesh, harm it, let it recover, and check the books."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

from benchmarks.chaos.audit import Audit
from benchmarks.chaos.crowd import Crowd, Worker
from benchmarks.chaos.harm import Harm
from benchmarks.chaos.inquest import Inquest
from sim.invariants import Breach

Event = Callable[[Worker, dict[str, Any]], None]
Gather = Callable[[argparse.Namespace, random.Random, Event], Crowd]
FOLLOWERS = ("a", "b", "b", "c", "c", "d")
"""Clusters of the workers that a campaign begins with, after the founder."""
_FAR = 5.0
"""Times as seldom is harm done where deaths are noticed later: else nobody ever has the time to recover."""
_LINES = 12
"""Last lines of a worker's log that are told."""


class Stillborn(Exception):
    """Everybody ended before the first version."""


class Campaign:
    """Leads it, and watches that versions go on."""

    def __init__(self, options: argparse.Namespace, gather: Gather) -> None:
        """Take the options of the command line, and what makes the crowd."""
        self.options = options
        self.rng = random.Random(options.seed)
        self.crowd = gather(options, self.rng, self._event)
        self.inquest = Inquest(self.crowd)
        self._audit = Audit()
        self._harm = Harm(self.crowd, self.listen)
        self._moved = 0.0
        self._asked: set[str] = set()
        """Who was asked since a version came, or `mesh`."""
        self.longest = 0.0
        """Seconds of the longest standstill while a quorum ran."""

    def run(self) -> None:
        """All of it."""
        crowd = self.crowd
        try:
            self._found()
            until = crowd.now + self.options.seconds
            while self._harmed(until) and not (crowd.problems and self.options.stop_at_problem):
                self._harm.act()
                pause = self.rng.choice([0.0, 0.1, 0.5, 1.0, 2.0]) * self.rng.uniform(0.5, 1.5)
                self.listen(pause * (_FAR if crowd.long_lines else 1.0))
            self._harm.trap = ""
            self._recover()
        except (Breach, Stillborn):
            pass  # the crowd has told of it
        except KeyboardInterrupt:
            crowd.tell("interrupted")  # what there is by now is told
        finally:
            crowd.end()
        self._audit.close(crowd)

    def _harmed(self, until: float) -> bool:
        """Whether harm goes on: until a time, or until so many rounds are there."""
        return self.crowd.newest < self.options.rounds if self.options.rounds else self.crowd.now < until

    def listen(self, seconds: float) -> None:
        """Let time pass."""
        until = self.crowd.now + seconds
        while (left := until - self.crowd.now) > 0:
            self.crowd.hear(left)
            if self.crowd.stillborn():
                self._bury()
            self._watch()

    def _bury(self) -> None:
        """Say what the last one wrote, or what they said as they ended; there is nothing to wait for."""
        crowd, last = self.crowd, self.crowd.workers[-1]
        words = crowd.log(last).splitlines()[-_LINES:] or crowd.ends[-1:] or ["it said nothing"]
        crowd.problem("\n".join(["every worker ended before the first version", f"log of {last.name}:", *words]))
        raise Stillborn

    def _found(self) -> None:
        self.crowd.spawn("a")
        while not self.crowd.workers[0].address:
            self.listen(0.05)
        for name in FOLLOWERS[: self.options.workers - 1]:
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
                crowd.newest, crowd.voters, self._moved = worker.version, event["voters"], crowd.now
                self._asked.clear()
        self._harm.event(worker, event)

    def _watch(self) -> None:
        """Silence and standstill are problems."""
        crowd, patience = self.crowd, self.options.patience
        ruling = crowd.ruling()
        if not ruling:
            self._moved = crowd.now
        stands = crowd.now - self._moved
        self.longest = max(self.longest, stands)
        if stands > patience / 2 and "mesh" not in self._asked:
            self._asked.add("mesh")  # what is waited for half-way says more than what is tried at the end
            self.inquest.hold(f"no version after {crowd.newest} for {stands:.0f} s")
        if stands > patience:
            self._moved = crowd.now
            self._asked.clear()
            self._fail(f"no version after {crowd.newest} for {patience:g} s although a quorum lives")
        for worker in crowd.workers:
            silent = worker.running and crowd.now - worker.heard > patience + 15 and worker.name not in self._asked
            if silent and (worker.cluster in ruling or worker.draining):
                self._asked.add(worker.name)
                self._fail(f"{worker.name} has been silent for {crowd.now - worker.heard:.0f} s")

    def _fail(self, text: str) -> None:
        self.crowd.problem(text)
        self.inquest.hold(text)

    def _await_version(self, version: int, seconds: float) -> None:
        """Wait until some worker has a version."""
        until = self.crowd.now + seconds
        while self.crowd.newest < version:
            if self.crowd.now > until:
                self._fail(f"version {version} did not come within {seconds:g} s")
                return
            self.listen(0.1)

    def _recover(self) -> None:
        """Continue everybody, bring everybody back whose vote may be needed; then versions must go on for all."""
        crowd = self.crowd
        crowd.tell("recover")
        crowd.take_back(everything=True)
        self.listen(0.5)
        self._bring_back()
        goal = crowd.newest + 4
        self._await_version(goal, self.options.patience + 15)
        until = crowd.now + self.options.patience
        while behind := [w.name for w in crowd.living(ready=False) if w.version < goal]:
            if crowd.now > until:
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
