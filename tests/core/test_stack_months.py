"""What a peer keeps of those who are gone for good: a mesh runs for months, and each job may be a cluster by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from ictp2p.core import forgetting
from ictp2p.types import PeerId
from tests.core.control_planes import Host, World, mesh

FORGET = 2.0
BOUNDED = ("_homes", "agreement._history._log", "agreement._history._lessons", "_prober._failed", "_table._absent")
"""Where former workers are remembered, so many of them; the last decisions; and what is renewed before it is used."""
_LEAVES = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, Random)


def parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What one thing refers to, by the names of its attributes."""
    if isinstance(thing, dict):
        yield from ((".keys", key) for key in thing)
        yield from (("", value) for value in thing.values())
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from (("", value) for value in thing)
    elif not isinstance(thing, _LEAVES):
        slots = [c.__dict__.get("__slots__", ()) for c in type(thing).__mro__]
        fields = getattr(type(thing), "__struct_fields__", ())
        names = [*getattr(thing, "__dict__", ()), *fields, *(name for each in slots for name in each)]
        yield from ((f".{name}", getattr(thing, name)) for name in names if hasattr(thing, name))


def places(root: object, words: set[str]) -> set[str]:
    """The attributes under which any of these words stand."""
    found, seen, ahead = set(), set[int](), deque([("", root)])
    while ahead:
        path, thing = ahead.popleft()
        if isinstance(thing, str) and thing in words:
            found.add(path)
        elif id(thing) not in seen:
            seen.add(id(thing))
            ahead.extend((path + name, part) for name, part in parts(thing))
    return found


def end(world: World, worker: Host, how: str) -> None:
    if how == "left":
        world.do(worker, worker.core.leave(world.now))
        world.run(0.05)
    worker.alive = False
    if how == "silent":
        world.run(8.0)
    world.kill(worker)


def test_nothing_stays_of_clusters_and_workers_that_are_gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "_LAST", 0)
    world = World(forget_after=FORGET)
    hosts = mesh(world, "a", "b", workers=2)
    seeds = [world.id(host) for group in hosts.values() for host in group]
    gone: set[str] = set()
    for number, how in enumerate(("killed", "left", "silent") * 3):
        name = f"job{number}"
        workers = [world.add(name, seed=seeds[number % 4]) for _ in range(1 + number % 2)]
        world.run((3.0, 0.6)[number % 2])
        gone.update((name, *map(world.id, workers)))
        for worker in workers:
            end(world, worker, how)
    world.run(52 * FORGET + 200.0)
    for seed in seeds:
        kept = places(world.hosts[PeerId(seed)].core, gone)
        assert not [place for place in kept if not any(each in place for each in BOUNDED)]
