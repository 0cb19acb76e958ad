"""Workers that lease samples and get SIGKILL between two of their steps, and start again from their disks.

Each worker checks in every state that it lands on that the parameters hold those samples, once per epoch, that the
leases call done (`tally.Watched`). What is left to see here is that nothing of this depends on the one that died: an
epoch ends without it, and it gets samples again when it is back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Process, explained

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]
FIRST = "a/0"
OTHERS = ("a/1", "b/0", "c/0")


class Mesh:
    """Workers by name, whose folders outlive them."""

    def __init__(self, folder: Path) -> None:
        self.running: dict[str, Process] = {}
        self.lives: list[Process] = []
        self._folder = folder
        self._peers: dict[str, str] = {}

    def start(self, name: str, join: str = "") -> None:
        plain = name.replace("/", "")
        errors = self._folder / f"{plain} life {len(self.lives)}.err"
        disk = str(self._folder / plain)
        self.running[name] = Process(name, "tests.tally_worker", name[0], disk, join, stderr=errors)
        self.lives.append(self.running[name])

    def ready(self, name: str) -> str:
        """Wait until it is in the mesh; gives its address."""
        line = self.running[name].until("ready")
        self._peers[line["peer"]] = name
        return str(line["address"])

    def kill_between_steps(self, name: str) -> dict[str, Any]:
        """Kill a worker that has trained what it has not brought yet; gives its last words."""
        victim = self.running[name]
        victim.ask("between")
        words = victim.until("between")
        victim.process.kill()
        del self.running[name]
        return words

    def leader_of(self, worker: str) -> str:
        """Who leads a worker's cluster, as it said last."""
        agreed = [line for line in self.running[worker].told if line["what"] == "agreed"]
        return self._peers[agreed[-1]["leader"]]


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    made = Mesh(tmp_path)
    try:
        yield made
    finally:
        for process in made.lives:
            process.end()


def trained(line: dict[str, Any]) -> bool:
    return bool(line["trained"])


def test_every_sample_once_per_epoch_whoever_is_killed_between_its_steps(mesh: Mesh) -> None:
    with explained(mesh.running):
        mesh.start(FIRST)
        address = mesh.ready(FIRST)
        for name in OTHERS:
            mesh.start(name, address)
        addresses = {name: mesh.ready(name) for name in OTHERS}
        for worker in mesh.running.values():
            worker.until("agreed", where=trained)
        for victim in (mesh.leader_of("a/1"), "b/0"):  # one that its mate inherits from, and a whole cluster
            last = mesh.kill_between_steps(victim)
            for worker in mesh.running.values():
                worker.until("agreed", where=lambda line, last=last: line["epoch"] > last["epoch"] + 1)
            mesh.start(victim, addresses["c/0"])
            mesh.ready(victim)
            mesh.running[victim].until("agreed", where=trained)
        for worker in mesh.running.values():
            worker.ask("leave")
        for worker in mesh.running.values():
            worker.until("left")
    digests = defaultdict(set)
    for line in (line for process in mesh.lives for line in process.said if line["what"] == "agreed"):
        digests[line["version"]].add(line["digest"])
    assert all(len(found) == 1 for found in digests.values()), "equal versions are equal states"
