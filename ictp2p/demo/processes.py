"""Worker processes: started, heard, signalled, and always reaped.

Each worker runs in a session of its own, so that Ctrl-C in the terminal reaches only the controller, which then
ends the workers in its own order. Two threads per worker read its output: a pipe that nobody empties would stop
the worker. Events of all workers meet in one queue, in the order in which they were read; everything else that a
worker prints is kept as its last words, to be quoted when it fails.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TextIO

from ictp2p.demo import lines
from ictp2p.demo.lines import Event

_LAST_WORDS = 15
"""Lines kept of each of a worker's two outputs: one must not drown the other."""


class Worker:
    """One worker process."""

    def __init__(self, name: str, cluster: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        """`cluster/number`, unique within a run."""
        self.cluster = cluster
        self.peer: str | None = None
        """The peer's id, once the worker is ready."""
        self.address: str | None = None
        """Where its peer listens, once it is ready."""
        self.started_at = time.time()
        self.may_end = False
        """Whether its end is part of the story."""
        self._printed: deque[str] = deque(maxlen=_LAST_WORDS)
        self._complained: deque[str] = deque(maxlen=_LAST_WORDS)
        self._threads: list[threading.Thread] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            encoding="utf-8",
            errors="replace",
            bufsize=1,
            start_new_session=True,
        )

    def __repr__(self) -> str:
        return f"<Worker {self.name} pid={self._process.pid} exit={self.exit_code}>"

    @property
    def exit_code(self) -> int | None:
        """Its exit status, negative for a signal, None while it runs."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """The end of what it printed that was no event."""
        return "\n".join((*self._printed, *self._complained))

    def listen(self, heard: queue.SimpleQueue[tuple[Worker, Event]]) -> None:
        """Read what it says from now on; its last event is `exited`."""
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        chatter = threading.Thread(target=self._read_chatter, args=(process.stderr,), daemon=True)
        events = threading.Thread(target=self._read_events, args=(process.stdout, chatter, heard), daemon=True)
        self._threads = [chatter, events]
        for thread in self._threads:
            thread.start()

    def tell(self, **command: object) -> None:
        """Send a command. One that is already dead does not hear it; that it died is told by `exited`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(lines.encode(command) + "\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to it alone."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Have it killed if it still runs, stopped or not, with everything it started."""
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for its end, and leave neither zombie, thread nor pipe behind."""
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read_chatter(self, stream: TextIO) -> None:
        for line in stream:
            self._complained.append(line.rstrip())

    def _read_events(
        self, stream: TextIO, chatter: threading.Thread, heard: queue.SimpleQueue[tuple[Worker, Event]]
    ) -> None:
        for line in stream:
            event = lines.decode(line)
            if event is None:
                self._printed.append(line.rstrip())
            else:
                heard.put((self, event))
        chatter.join()  # its last words and its exit status are there before its end is told
        code = self._process.wait()
        heard.put((self, {"kind": "exited", "time": time.time(), "code": code}))
