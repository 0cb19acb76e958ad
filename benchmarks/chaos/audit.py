"""The books of the mesh, from what all workers say: one digest per version, and nothing lost or counted twice."""

from __future__ import annotations

from typing import Any

from benchmarks.chaos.crowd import Crowd, Worker

_LONG = 40
"""Samples of what a process takes, two per second, from which growth can be told from a start."""
_MORE_DESCRIPTORS, _MORE_MEMORY = 10, 64 << 20
"""Growth that is a leak; memory is what torch and the allocator keep after their peaks, and a little."""
_MOST_CONNECTIONS = 4.0
"""To each other worker: one of control, one of data, and as many again that cross or are about to close."""


class Audit:
    """What was seen of versions; what is wrong with it is a problem of the crowd."""

    def __init__(self) -> None:
        self._digests: dict[int, dict[str, str]] = {}
        self._books: dict[int, list[int]] = {}
        self._participants: dict[int, set[str]] = {}
        self._gained: dict[tuple[int, int], set[int]] = {}
        """Contributions by (slot, base version)."""
        self._restored: dict[int, int] = {}
        """Versions that have the bytes of an older one, because all holders of those between had died."""
        self._excused: set[tuple[str, int]] = set()
        """Workers and the restore after which their books were found to lack what was lost by it."""

    def event(self, crowd: Crowd, worker: Worker, event: dict[str, Any]) -> None:
        """Take one event of a worker."""
        match event["kind"]:
            case "version":
                self._version(crowd, worker, event)
            case "contribute":
                self._gained.setdefault((event["slot"], event["base"]), set()).add(event["gained"])
            case "round_committed":
                participants = set(event["participants"])
                if self._participants.setdefault(event["version"], participants) != participants:
                    crowd.problem(f"version {event['version']} lists two sets of participants")
            case "state_restored":
                if event["version"] not in self._restored:
                    crowd.tell(f"version {event['lost']} is lost; {event['source']} is {event['version']} now")
                self._restored[event["version"]] = event["source"]
            case "books" if not self._excuse(worker, event["version"]):
                crowd.problem(f"{worker.name} has {event['have']} where it did {event['want']} at v{event['version']}")

    def close(self, crowd: Crowd) -> None:
        """Each version is the one before plus one contribution of every participant; and nobody grew."""
        names = {slot: name for name, slot in crowd.slots.items()}
        for number, books in sorted(self._books.items()):
            if (source := self._restored.get(number)) is not None:
                if books != self._books.get(source, books):
                    crowd.problem(f"version {number} restores {source}, whose books are {self._books[source]}")
            elif (before := self._books.get(number - 1)) is not None:
                self._follows(crowd, names, number, before, books)
        for worker in crowd.workers:
            _grew(crowd, worker, "descriptors", worker.descriptors, _MORE_DESCRIPTORS)
            _grew(crowd, worker, "bytes of memory", worker.memory, _MORE_MEMORY)
            if worker.connections and min(worker.connections[-5:]) > _MOST_CONNECTIONS:
                crowd.problem(f"{worker.name} kept {worker.connections[-5:]} connections for each other worker")

    def _follows(self, crowd: Crowd, names: dict[int, str], number: int, before: list[int], books: list[int]) -> None:
        changes = enumerate(now - then for then, now in zip(before, books, strict=True))
        gains = {slot: gain for slot, gain in changes if gain}
        listed = self._participants.get(number)
        if listed is not None and {names[slot] for slot in gains} != listed:
            crowd.problem(f"version {number} holds {sorted(names[s] for s in gains)}, listed are {sorted(listed)}")
        for slot, gain in gains.items():
            told = self._gained.get((slot, number - 1), set())
            if gain not in told:
                crowd.problem(f"version {number} holds {gain} of {names[slot]}, which contributed {sorted(told)}")

    def _version(self, crowd: Crowd, worker: Worker, event: dict[str, Any]) -> None:
        """A worker is at a version."""
        number = event["version"]
        held = self._digests.setdefault(number, {})
        held[worker.name] = event["digest"]
        if len(set(held.values())) > 1:
            crowd.problem(f"version {number} has {len(set(held.values()))} digests: {held}")
        self._books.setdefault(number, event["books"])
        if number < worker.version:
            crowd.problem(f"{worker.name} went back from version {worker.version} to {number}")

    def _excuse(self, worker: Worker, version: int) -> bool:
        """Whether steps of a worker are lost, with a version that died; once for each."""
        losses = [(worker.name, number) for number in self._restored if number <= version]
        fresh = [loss for loss in losses if loss not in self._excused]
        self._excused.update(fresh)
        return bool(fresh)


def _grew(crowd: Crowd, worker: Worker, what: str, held: list[int], most: int) -> None:
    if len(held) > _LONG and min(held[-5:]) > max(held[5:25]) + most:
        crowd.problem(f"{what} of {worker.name} grew: {held[5:25:5]} ... {held[-5:]}")
