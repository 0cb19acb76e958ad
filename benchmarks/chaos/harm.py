"""What is done to the mesh: one random act after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.books import SLOTS
from benchmarks.chaos.crowd import Crowd, Worker

_ACTS = {
    "kill": 3, "kill_leader": 2, "kill_coordinator": 2, "kill_two": 1, "kill_cluster": 1, "trap": 5,
    "stop": 3, "stop_leader": 2, "stop_two": 1, "drain": 1, "restart": 8, "grow": 2, "cluster": 1,
    "young": 1, "interrupt": 1,
}  # fmt: skip
"""Acts and how often they are done."""
_CUTS = {"cut": 4, "isolate": 4, "split": 1}
"""Acts where lines are long: two clusters that do not hear each other, one that hears nobody, two halves."""
_SETS = ("restart", "grow", "cluster")
"""What can be done where nobody lives."""
_TRAPS = ("round_opened", "reduce_progress", "round_committed", "group", "contribute", "version", "state_fetched")
"""Events whose next teller may be harmed."""


class Harm:
    """Does harm to a crowd; `listen` lets time pass meanwhile."""

    def __init__(self, crowd: Crowd, listen: Callable[[float], None]) -> None:
        self._crowd, self._rng, self._listen = crowd, crowd.rng, listen
        self.trap = ""
        """An event whose next teller is harmed."""

    def event(self, worker: Worker, event: dict[str, Any]) -> None:
        """Somebody said something: it may have been the trap."""
        if self.trap == event["kind"]:
            self._spring(worker)

    def act(self) -> None:
        """One random act."""
        acts = {**_ACTS, **(_CUTS if self._crowd.long_lines else {})}
        act = self._rng.choices(list(acts), list(acts.values()))[0]
        living = self._crowd.living()
        if len(living) < 2 and act not in _SETS:
            act = "restart"
        if act in (*_SETS, "young"):
            self._add(act, living)
        elif act in _CUTS:
            self._cut(act, sorted({w.cluster for w in living}))
        elif act.startswith("kill"):
            self._kill(act, living)
        elif act.startswith("stop"):
            some = {"stop_leader": [w for w in living if w.leads] or living}.get(act, living)
            for victim in self._rng.sample(some, 2 if act == "stop_two" else 1):
                self._crowd.stop(victim, self._rng.uniform(0.5, 8.0))
        elif act == "trap":
            self.trap = self._rng.choice(_TRAPS)
        else:
            self._dismiss(act, living)

    def _spring(self, worker: Worker) -> None:
        kind, victim, self.trap = self.trap, worker, ""
        if self._rng.random() < 0.25:
            victim = self._rng.choice(self._crowd.living() or [worker])
        if victim.running:
            if self._rng.random() < 0.25 and self._crowd.spared(victim):
                self._crowd.stop(victim, self._rng.uniform(0.5, 8.0))
            else:
                self._crowd.kill(victim, f"at {kind}")

    def _kill(self, act: str, living: list[Worker]) -> None:
        leaders = [w for w in living if w.leads] or living
        first = [w for w in living if w.peer in self._crowd.voters[:1]] or leaders
        match act:
            case "kill":
                self._crowd.kill(self._rng.choice(living), "any")
            case "kill_leader":
                self._crowd.kill(self._rng.choice(leaders), "leader")
            case "kill_coordinator":
                self._crowd.kill(self._rng.choice(first), "coordinator")
            case "kill_two":
                for victim in self._rng.sample(living, 2):
                    self._crowd.kill(victim, "two at once")
            case "kill_cluster":
                self._kill_cluster(self._rng.choice(living).cluster, living)

    def _kill_cluster(self, name: str, living: list[Worker]) -> None:
        mates = [w for w in living if w.cluster == name]
        if not self._crowd.spared(*mates):
            return
        for victim in mates:
            self._crowd.kill(victim, "whole cluster")
        self._listen(self._rng.choice([0.0, 0.3]))
        for victim in mates:
            if victim.doomed and len(self._crowd.living(ready=False)) < self._crowd.options.most:
                self._crowd.spawn(name, victim.data)

    def _cut(self, act: str, clusters: list[str]) -> None:
        if len(clusters) < 2:
            return
        self._rng.shuffle(clusters)
        beside = {"cut": 1, "isolate": 1, "split": len(clusters) // 2}[act]
        here, there = clusters[:beside], clusters[beside:]
        pairs = [(a, b) for a in here for b in (there[:1] if act == "cut" else there)]
        self._crowd.cut(pairs, self._rng.choice([1.0, 6.0, 24.0]) * self._rng.uniform(0.5, 1.5))

    def _dismiss(self, act: str, living: list[Worker]) -> None:
        if act == "interrupt":
            victim = self._rng.choice(living)
            if self._crowd.spared(victim):
                self._crowd.dismiss(victim, "interrupt")
            return
        if len({w.cluster for w in living}) < 2:
            return
        name = self._rng.choice(living).cluster
        whole = self._rng.random() < 0.5
        mates = [w for w in living if w.cluster == name][: None if whole else 1]
        for victim in mates if self._crowd.spared(*mates) else ():
            self._crowd.dismiss(victim, "drain")

    def _add(self, act: str, living: list[Worker]) -> None:
        crowd = self._crowd
        if act == "restart":
            self._restart()
        elif len(living) >= crowd.options.most or (act == "cluster" and len(crowd.slots) >= SLOTS):
            return
        elif act == "cluster":
            crowd.spawn("abcdefghijklmnop"[len(crowd.slots)])
        else:
            worker = crowd.spawn(self._rng.choice(living).cluster if living else "a")
            if act == "young":
                self._listen(self._rng.uniform(0.0, 1.5))
                crowd.kill(worker, "young")

    def _missed(self) -> list[Path]:
        """The disks of voters, if no quorum of them runs: drawn from all the dead, they may not come up for minutes."""
        if self._crowd.quorum_runs():
            return []
        return [data for data, worker in sorted(self._crowd.gone.items()) if worker.peer in self._crowd.voters]

    def _restart(self) -> None:
        """Bring a dead one back; without its disk if the mesh can spare its vote for good."""
        crowd = self._crowd
        if not crowd.gone or len(crowd.living(ready=False)) >= crowd.options.most:
            return
        data = self._rng.choice(self._missed() or sorted(crowd.gone))
        worker = crowd.gone[data]
        if not crowd.living() and worker.peer not in crowd.voters:
            return  # whom nobody remembers and who finds nobody would found a mesh of its own
        spared = worker.peer and worker.peer not in crowd.voters and crowd.quorum_runs()
        if spared and self._rng.random() < 0.3:
            crowd.lose(data)
            crowd.tell(f"disk of {worker.name} is lost")
            crowd.spawn(worker.cluster)
        else:
            crowd.spawn(worker.cluster, data)
