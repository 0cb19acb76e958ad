"""Why the mesh stands still: every worker is asked, and what they answer is written down short, with names for ids."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.chaos.crowd import Crowd, Worker

_PATIENCE = 3.0
"""Seconds that everybody together has to answer; a worker gives its own loop less."""
_EVENTS = 24
"""Last events of all workers that are told."""
_LINE = 170
"""Most characters of an event."""


class Inquest:
    """Asks, and keeps the last two reports: of the middle of a standstill and of its end, say."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._reports: list[str] = []

    def hold(self, why: str) -> None:
        """Ask everybody now."""
        crowd = self._crowd
        asked = crowd.question()
        until = crowd.now + _PATIENCE
        while crowd.now < until and any(w.testimony is None and w.code is None for w in asked):
            crowd.hear(0.1)
        events = [f"  {line[:_LINE]}" for line in list(crowd.recent)[-_EVENTS:]]
        heads = [f"  {_head(w)}" for w in asked]
        depths = [line for w in asked for line in _depths(w)]
        text = "\n".join(["last events:", *events, f"at {crowd.now:.1f} s, {why}:", *heads, *depths])
        self._reports = [*self._reports[-1:], self._named(text)]

    def told(self) -> str:
        """The reports, the essence last; empty if nobody was ever asked."""
        return "\n".join(self._reports)

    def _named(self, text: str) -> str:
        """Names instead of ids, and short ids for whom nobody knows."""
        for worker in self._crowd.workers:
            if worker.peer:
                text = text.replace(worker.peer, worker.name)
        return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{24,}\b", r"\1", text)


def _head(worker: Worker) -> str:
    """What it believes and waits for."""
    if worker.testimony is None:
        return f"{worker.name} did not answer"
    b: dict[str, Any] = worker.testimony["beliefs"]
    if "silent" in b:
        return f"{worker.name} v{worker.version}: {b['silent']}"
    sees = [f"{name}={leader}@{term}{_unless_alive(status)}" for name, status, leader, term in b["clusters"]]
    mates = [f"{peer}{_unless_alive(status)}" for peer, status in b["members"]]
    leads = f"LEADS {b['office']}" if b["leading"] else f"follows {b['leader']}"
    group = "none" if b["roster"] is None else f"{b['roster'][0]}.{b['roster'][1]} of {' '.join(b['roster'][2])}"
    return (
        f"{worker.name} v{b['holds']} {b['phase'] or b['life']}, {leads} @{b['term']}, group {group};"
        f" slot {b['slot']} {b['decision']} {b['round']}.{b['attempt']} of v{b['state_version']},"
        f" voters {' '.join(b['voters'] or ())}, coordinator {b['coordinator']}; WAITS {b['waiting']};"
        f" bound {b['bound']}, stands={b['stands']} call={b['call']}; sees {' '.join(sees)}; mates {' '.join(mates)};"
        f" suspects {' '.join(b['suspects']) or 'nobody'}; connected {' '.join(b['connected'])}"
    )


def _unless_alive(status: str) -> str:
    return "" if status == "alive" else f" {status}"


def _depths(worker: Worker) -> list[str]:
    """Where its threads and tasks are."""
    if worker.testimony is None:
        return []
    threads = [f"  {worker.name} {name}: {way}" for name, way in worker.testimony["threads"].items()]
    tasks = "; ".join(worker.testimony["beliefs"].get("tasks", []))
    return [*threads, *([f"  {worker.name} tasks: {tasks}"] if tasks else [])]
