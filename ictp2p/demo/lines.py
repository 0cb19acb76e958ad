"""JSON lines between the controller and its workers: one flat object per line, events up, commands down.

Up, on the worker's standard output: the peer's own events as they are (`kind`, `time`, ...) and the worker's:
`ready`, `step`, `version`, `validation`, `drained`, `stopped`, `failed`. Down, on its standard input, `{"do": ...}`:
`go` (begin training), `drain`, `stop` with a `version` (train until exactly this one is committed, report, wait)
and `exit`. Nothing here imports torch: the controller reads, it does not train.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from io import TextIOBase
from typing import Any, TextIO

Event = dict[str, Any]


def encode(event: Event) -> str:
    """One line, without its end. Bytes become hex and what JSON has no form for becomes its text."""
    return json.dumps(event, default=_plain, separators=(",", ":"))


def decode(line: str) -> Event | None:
    """The object in `line` if it has a text `kind`, else None: the line is somebody's chatter."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


class Events:
    """The worker's way up. Safe from any thread: the peer's events come from its own."""

    def __init__(self, stream: TextIO | TextIOBase) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    @classmethod
    def take_stdout(cls) -> Events:
        """Keep standard output for events, and send whatever else would be printed there to standard error.

        Gloo prints its connections from C++, past `sys.stdout`, so the descriptor itself has to move.
        """
        own = os.dup(1)
        os.dup2(2, 1)
        return cls(os.fdopen(own, "w", buffering=1))

    def __call__(self, event: Event) -> None:
        """Write a whole event at once."""
        line = encode(event) + "\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()

    def say(self, kind: str, **fields: object) -> None:
        """Write an event of our own, dated now."""
        self({"kind": kind, "time": time.time(), **fields})


class Commands:
    """The worker's ear: a thread reads commands, so that one is heard while training waits for others.

    When the line goes dead the controller is gone, and nobody is left who would end this process: it ends itself.
    """

    def __init__(self, stream: TextIO, orphaned: Callable[[], None] = lambda: os._exit(3)) -> None:
        self._stream = stream
        self._orphaned = orphaned
        self._queue: queue.Queue[Event] = queue.Queue()
        self._handlers: dict[str, Callable[[], None]] = {}

    def on(self, name: str, handler: Callable[[], None]) -> None:
        """Have command `name` run `handler` in the reading thread, instead of being queued."""
        self._handlers[name] = handler

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def take(self) -> Event | None:
        """The next queued command, or None if there is none now."""
        return None if self._queue.empty() else self._queue.get()

    def wait(self) -> Event:
        """The next queued command, however long it takes: the controller's deadline, or its end, ends the wait."""
        return self._queue.get()

    def _read(self) -> None:
        for line in self._stream:
            command = json.loads(line)
            handler = self._handlers.get(command["do"])
            if handler is None:
                self._queue.put(command)
            else:
                handler()
        self._orphaned()


def take_stdin() -> Commands:
    """Commands from standard input."""
    return Commands(sys.stdin)
