"""What is left of a run: one JSON document for programs, pictures and `replay`, and tables made from it for people.

The document holds how the run was asked for (scenario, seed, settings, or the whole of a user's file), so that it can
be played again, and the hash of its trace, which tells whether the second run took the same course.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ictp2p.errors import ConfigError
from ictp2p.outputs import written
from ictp2p.tables import Table
from sim.host import Host
from sim.scenario import Scenario
from sim.stage import Attempt, Check, Stage, describe
from sim.world import World

FORMAT = 1
"""Of the document."""
_ROWS = 30  # rows of a table that people are shown; the document has them all


def document(scenario: Scenario, stage: Stage, given: Mapping[str, object]) -> dict[str, Any]:
    """Write down a run."""
    return {
        "format": FORMAT,
        "scenario": scenario.name,
        "document": dict(scenario.document) if scenario.document is not None else None,
        "seed": stage.seed,
        "settings": dict(given),
        "ok": stage.ok,
        "breach": stage.breach,
        "checks": [_check(check) for check in stage.checks],
        "wall_seconds": stage.seconds,
        **(_course(stage) if stage.opened else {}),
    }


def save(told: Mapping[str, Any], path: Path) -> None:
    """Write a document to a file.

    Raises:
        OSError: there was no room for it, say; the message names the file.
    """
    with written(path):
        path.write_text(json.dumps(told, indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read a document.

    Raises:
        ConfigError: the file cannot be read, or is no report of a run.
    """
    try:
        told = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"report {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no report of a simulated run: {error}") from error
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("scenario"), str):
        raise ConfigError(f"{path} is no report of a simulated run in format {FORMAT}")
    if not isinstance(told.get("seed"), int) or not isinstance(told.get("settings"), dict):
        raise ConfigError(f"{path}: seed={told.get('seed')!r} or settings={told.get('settings')!r} cannot be")
    return told


def summary(told: Mapping[str, Any]) -> list[Table]:
    """Tables for people."""
    shown = [_run_table(told)]
    if told.get("clusters"):
        shown.append(_table("clusters", ("cluster", "state", "workers", "leader", "version"), told["clusters"]))
    if told.get("faults"):
        faults = [{"at": f"{row['at']:.1f} s", "what": row["what"]} for row in told["faults"]]
        shown.append(_table("faults", ("at", "what"), faults))
    if told.get("rounds"):
        shown.append(_rounds_table(told["rounds"]))
    shown.append(_checks_table(told["checks"]))
    return shown


def _course(stage: Stage) -> dict[str, Any]:
    world = stage.world
    stage.committed()
    return {
        "virtual_seconds": world.now,
        "trace": world.trace.digest(),
        "messages": world.trace.deliveries,
        "bytes": sum(world.internet.bytes_sent.values()),
        "version": world.version(),
        "clusters": [_cluster(world, name) for name in world.clusters],
        "hosts": [_host(world, host) for host in world.every_host()],
        "rounds": [_round(attempt) for attempt in stage.attempts.values()],
        "faults": [{"at": at, "what": describe(fault)} for at, fault in world.history],
        "plan": world.plan().to_list(),
        "notes": [{"at": at, "text": text} for at, text in stage.notes],
        "snapshots": [
            {"label": s.label, "at": s.at, "clusters": s.clusters, "links": s.links, "routes": s.routes}
            for s in stage.snapshots
        ],
    }


def _check(check: Check) -> dict[str, Any]:
    return {"what": check.what, "ok": check.ok, "seen": check.seen, "wanted": check.wanted}


def _cluster(world: World, name: str) -> dict[str, Any]:
    hosts = world.of(name)
    up = [host for host in hosts if host.alive and not host.gone]
    versions = world.versions()
    return {
        "cluster": name,
        "state": "up"
        if up
        else "left"
        if any(h.gone for h in hosts)
        else "down"
        if any(h.lives for h in hosts)
        else "to come",
        "workers": f"{len(up)}/{len(hosts)}",
        "leader": world.leaders().get(name, "-"),
        "version": max((versions[host.name] for host in hosts if host.name in versions), default=0),
    }


def _host(world: World, host: Host) -> dict[str, Any]:
    """When a host ran, and when it led, as intervals of true time."""
    up: list[list[float]] = []
    leads: list[list[float]] = []
    mine: set[str] = set()
    for entry in world.trace.of("boot", "started", "leader", "crash", host=host.name):
        match entry.kind:
            case "boot":
                up.append([entry.at, world.now])
            case "started":
                mine.add(entry.fields["peer"])
            case "crash":
                _end(up, entry.at, world.now)
                _end(leads, entry.at, world.now)
            case "leader" if entry.fields["leader"] in mine:
                _end(leads, entry.at, world.now)
                leads.append([entry.at, world.now])
            case "leader":
                _end(leads, entry.at, world.now)
    return {"host": host.name, "cluster": host.cluster, "up": up, "leads": leads}


def _end(intervals: list[list[float]], at: float, still: float) -> None:
    """Close the last interval, if it is open."""
    if intervals and intervals[-1][1] == still:
        intervals[-1][1] = at


def _round(attempt: Attempt) -> dict[str, Any]:
    plan = attempt.plan
    done = attempt.ended is not None
    return {
        "round": attempt.round,
        "attempt": attempt.attempt,
        "opened": attempt.opened,
        "ended": attempt.ended,
        "seconds": attempt.seconds if done else None,
        "version": attempt.version,
        "outcome": "committed" if attempt.version is not None else "aborted" if attempt.aborted else "open",
        "participants": list(attempt.participants),
        "plan": plan.kind if plan is not None else "",
        "planned": plan.seconds if plan is not None else None,
        "bound": plan.bound if plan is not None else None,
        "reason": attempt.aborted or attempt.reason,
    }


def _run_table(told: Mapping[str, Any]) -> Table:
    rows = [("scenario", str(told["scenario"])), ("seed", str(told["seed"]))]
    if told["settings"]:
        rows.append(("settings", " ".join(f"{key}={value}" for key, value in told["settings"].items())))
    if "virtual_seconds" in told:
        speed = told["virtual_seconds"] / max(told["wall_seconds"], 1e-9)
        rows += [
            ("virtual time", f"{told['virtual_seconds']:.1f} s, {speed:.0f} times as fast as the clock"),
            ("messages", f"{told['messages']}, {told['bytes'] / 1e6:.1f} MB sent"),
            ("state version", str(told["version"])),
            ("trace", told["trace"]),
        ]
    return Table("run", (), tuple(rows))


def _rounds_table(rounds: list[dict[str, Any]]) -> Table:
    heads = ("round", "opened", "outcome", "version", "clusters", "seconds", "plan", "planned", "bound")
    rows = [
        {
            **row,
            "round": f"{row['round']}.{row['attempt']}",
            "opened": f"{row['opened']:.1f} s",
            "clusters": len(row["participants"]),
            "seconds": _number(row["seconds"]),
            "planned": _number(row["planned"]),
            "bound": _number(row["bound"]),
        }
        for row in rounds
    ]
    return _table("rounds", heads, rows)


def _checks_table(checks: list[dict[str, Any]]) -> Table:
    rows = [{**check, "": "ok" if check["ok"] else "NOT SEEN"} for check in checks]
    return _table("checks", ("", "what", "seen", "wanted"), rows)


def _table(title: str, heads: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    left = len(rows) - _ROWS
    if left > 0:
        title = f"{title} (the last {_ROWS} of {len(rows)})"
        rows = rows[left:]
    return Table(title, heads, tuple(tuple(_cell(row.get(head)) for head in heads) for row in rows))


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
