"""Workers that get SIGKILL in the middle of an all-reduce. Their values are powers of two, so a sum names its parts."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
WORKER = Path(__file__).with_name("collective_worker.py")
VALUES = {"a/0": 1, "a/1": 2, "a/2": 4, "b/0": 8, "b/1": 16}
ROUNDS = 6


class Worker:
    def __init__(self, name: str, join: str) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        arguments = [name[0], str(VALUES[name]), str(sum(VALUES.values())), "2", str(ROUNDS), join]
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=WORKER.parent.parent,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, what: str, seconds: float = 60.0, **fields: Any) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            self.told.append(line)
            if line["what"] == what and all(line[key] == value for key, value in fields.items()):
                return line

    def sums(self) -> dict[int, float]:
        return {line["number"]: line["sum"] for line in self.told if line["what"] == "reduced"}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))


@pytest.fixture
def workers() -> Iterator[dict[str, Worker]]:
    started: dict[str, Worker] = {}
    try:
        for name in VALUES:
            first = next(iter(started.values()), None)
            started[name] = Worker(name, first.told[-1]["address"] if first else "")
            if first is None:
                started[name].until("ready")
        yield started
    finally:
        for worker in started.values():
            worker.process.kill()
            worker.process.communicate()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_worker_killed_in_the_middle_of_an_all_reduce(workers: dict[str, Worker], role: str) -> None:
    """The round is repeated without it: nothing of the others' is lost or counted twice, and nobody sees an error."""
    ids = {name: worker.told[-1]["peer"] if name == "a/0" else "" for name, worker in workers.items()}
    for name in list(workers)[1:]:
        ids[name] = workers[name].until("ready")["peer"]
    leader = workers["a/0"].until("reduced", number=1)["leader"]
    names = {peer: name for name, peer in ids.items()}
    led_by = names[leader]
    victim = led_by if role == "leader" else next(n for n in ("a/1", "a/2", "a/0") if n != led_by)
    workers[led_by].until("progress", fraction=pytest.approx(0.3, abs=0.2))
    workers[victim].process.kill()
    killed = time.monotonic()

    survivors = {name: worker for name, worker in workers.items() if name != victim}
    for worker in survivors.values():
        worker.until("done")
    whole = sum(VALUES.values())
    sums = {tuple(sorted(worker.sums().items())) for worker in survivors.values()}
    assert len(sums) == 1, "every survivor got the same sums"
    found = dict(next(iter(sums)))
    assert list(found) == list(range(ROUNDS))
    assert set(found.values()) == {whole, whole - VALUES[victim]}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    after = min(
        line["at"]
        for worker in survivors.values()
        for line in worker.told
        if line["what"] == "reduced" and line["sum"] < whole
    )
    assert after - killed < 8.0
