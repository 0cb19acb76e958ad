"""Simulated worlds of one worker in each cluster, behind lines as a benchmark wants them; and rows as they come."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sim import World
from sim.host import Host

T = TypeVar("T")
Access = Mapping[str, Any]
"""What `World.cluster` takes of a cluster's own line: `up` and `down` in bytes/s, `nat`."""
Line = tuple[float, float]
"""Bytes/s of one direction between two clusters, and its delay in seconds."""


def world(seed: int) -> World:
    """Make one over wide areas whose tensors are sizes only, and that nobody audits."""
    return World(seed=seed, profile="wan", elide=True, audit=False)


def built(made: World, clusters: Mapping[str, Access], line: Callable[[int, int], Line]) -> list[Host]:
    """Put clusters into a world, and a line for each direction of each two; their hosts, in that order."""
    names = list(clusters)
    for name, access in clusters.items():
        made.cluster(name, workers=1, train=False, **access)
    for a, b in itertools.permutations(range(len(names)), 2):
        bandwidth, delay = line(a, b)
        made.link(names[a], names[b], bandwidth=bandwidth, delay=delay, one_way=True)
    return [host for name in names for host in made.of(name)]


def met(made: World, hosts: Sequence[Host], within: float) -> None:
    """Let them run until everybody knows everybody, within so many virtual seconds."""
    made.run_until(lambda: all(h.peer and len(h.peer.core.directory.peers) == len(hosts) for h in hosts), within=within)


def together(made: World, works: Sequence[tuple[Host, Coroutine[Any, Any, T]]], within: float) -> float:
    """Have each of some hosts do its work, all at once; the virtual seconds until the last has done it."""
    began, ended, tasks = made.now, [made.now], list[asyncio.Task[T]]()
    for host, work in works:
        assert host.process is not None
        task = made.loop.create_task(work, context=host.process.context)
        task.add_done_callback(lambda _: ended.append(made.now))  # the world is looked at only so often
        tasks.append(task)
    made.run_until(lambda: len(ended) > len(tasks), within=within, what="everybody has the result")
    for task in tasks:
        task.result()
    return ended[-1] - began


def told(row: Mapping[str, Any], file: Path | None) -> None:
    """Show a row as soon as it is there, and append it to the file, if there is one."""
    line = json.dumps(row)
    print(line, file=sys.stderr, flush=True)
    if file is not None:
        with file.open("a") as out:
            out.write(line + "\n")
