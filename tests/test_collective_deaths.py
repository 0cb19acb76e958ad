"""Workers that get SIGKILL in the middle of an all-reduce. Their values are powers of two, so a sum names its parts."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
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
TESTIMONY = 40
TOO_MANY = ("reduce_progress", "route")


class Worker:
    """One process, what it told so far, and what of it was read."""

    def __init__(self, name: str, join: str, stderr: Path) -> None:
        self.name = name
        self.stderr = stderr
        self.said: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        arguments = [name[0], str(VALUES[name]), str(sum(VALUES.values())), "2", join]
        with stderr.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=WORKER.parent.parent,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, what: str, seconds: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Read on until it tells that.

        Raises:
            Silent: it failed, or did not tell it in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Silent(f"{self.name} did not tell {what!r} {fields or ''} within {seconds:g} s") from None
            self.told.append(line)
            if line["what"] == "failed":
                raise Silent(f"{self.name} failed: {line['error']}")
            if line["what"] == what and all(line[key] == value for key, value in fields.items()):
                return line

    def sums(self) -> list[float]:
        return [line["sum"] for line in self.told if line["what"] == "reduced"]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            self.said.append(told)
            self._lines.put(told)

    def testify(self) -> str:
        """The newest of what it said, where its threads are, and its errors."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)  # it goes on; meanwhile it writes where it is
        said = [f"  {json.dumps(line)[:300]}" for line in self.said if line.get("kind") not in TOO_MANY]
        errors = self.stderr.read_text().splitlines()
        return "\n".join([f"{self.name} (exit {self.process.poll()}):", *said[-TESTIMONY:], *errors[-3 * TESTIMONY :]])


class Silent(AssertionError):
    """A worker did not tell what it should have."""


@contextlib.contextmanager
def explained(workers: dict[str, Worker]) -> Iterator[None]:
    """Have a failure say what all workers said."""
    try:
        yield
    except Silent as error:
        pytest.fail("\n".join([str(error), *(worker.testify() for worker in workers.values())]), pytrace=False)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[dict[str, Worker]]:
    started: dict[str, Worker] = {}
    try:
        with explained(started):
            for name in VALUES:
                first = next(iter(started.values()), None)
                address = first.told[-1]["address"] if first else ""
                started[name] = Worker(name, address, tmp_path / f"{name.replace('/', '')}.err")
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
    with explained(workers):
        kill_and_compare(workers, role)


def kill_and_compare(workers: dict[str, Worker], role: str) -> None:
    ids = {name: worker.told[-1]["peer"] if name == "a/0" else "" for name, worker in workers.items()}
    for name in list(workers)[1:]:
        ids[name] = workers[name].until("ready")["peer"]
    leader = workers["a/0"].until("reduced")["leader"]
    names = {peer: name for name, peer in ids.items()}
    led_by = names[leader]
    victim = led_by if role == "leader" else next(n for n in ("a/1", "a/2", "a/0") if n != led_by)
    workers[led_by].until("progress", fraction=pytest.approx(0.3, abs=0.2))
    workers[victim].process.kill()

    survivors = {name: worker for name, worker in workers.items() if name != victim}
    for worker in survivors.values():
        worker.until("done")
    whole = sum(VALUES.values())
    sums = {tuple(worker.sums()) for worker in survivors.values()}
    assert len(sums) == 1, "every survivor got the same sums"
    found = list(next(iter(sums)))
    assert set(found) == {whole, whole - VALUES[victim]}
    assert found == sorted(found, reverse=True)
