"""Processes of a test that may die: what each told, when it was silent, and where all of them stood then."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import forked

TESTIMONY = 40
TOO_MANY = ("reduce_progress", "route")


class Silent(AssertionError):
    """A process did not tell what it should have."""


class Process:
    """A module of the tests that runs on its own, what it said so far, and what of it was read (`telling`)."""

    def __init__(self, name: str, module: str, *arguments: str, stderr: Path) -> None:
        self.name = name
        self.said: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self._stderr = stderr
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with stderr.open("w") as errors:
            self.process = forked.Fork("-m", module, *arguments, stderr=errors)
        threading.Thread(target=self._read, daemon=True).start()

    def until(
        self,
        what: str,
        seconds: float = 60.0,
        where: Callable[[dict[str, Any]], bool] = lambda line: True,
        **fields: Any,
    ) -> dict[str, Any]:
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
            if line["what"] == what and all(line[key] == value for key, value in fields.items()) and where(line):
                return line

    def ask(self, line: str) -> None:
        """Write a line to it."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill it, and leave nothing of it."""
        self.process.kill()
        self.process.communicate()

    def _read(self) -> None:
        try:
            for line in self.process.stdout:
                told = json.loads(line)
                self.said.append(told)
                self._lines.put(told)
        except ValueError:  # who is killed may be in the middle of a line, and `end` closes what is read
            if self.process.wait(10) >= 0:
                raise

    def testify(self) -> str:
        """The newest of what it said, where its threads are, and its errors."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)  # it goes on; meanwhile it writes where it is
        said = [f"  {json.dumps(line)[:300]}" for line in self.said if line.get("kind") not in TOO_MANY]
        errors = self._stderr.read_text().splitlines()
        return "\n".join([f"{self.name} (exit {self.process.poll()}):", *said[-TESTIMONY:], *errors[-3 * TESTIMONY :]])


@contextlib.contextmanager
def explained(processes: Mapping[str, Process]) -> Iterator[None]:
    """Have a failure say what all processes said."""
    try:
        yield
    except Silent as error:
        pytest.fail("\n".join([str(error), *(process.testify() for process in processes.values())]), pytrace=False)
