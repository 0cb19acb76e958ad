"""The training program's end of the connection to its peer's process, and the life of that process.

A thread starts the process and reads what it says; it is a daemon, and the process dies with it (`child`). Writing is
done by whoever has something to say, and what there is no room for by another thread (`outbox`).

A program that ends without closing its peer hangs up before the interpreter is taken apart: after that no thread reads
any more, and what closes the peer even later, the `__del__` of an object say, would wait for ever for an answer.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ictp2p.concurrency import logs
from ictp2p.concurrency.descriptors import spare_standard_streams
from ictp2p.concurrency.forks import made_alone, undivided
from ictp2p.concurrency.loop_thread import check_waits_elsewhere
from ictp2p.errors import PeerClosed
from ictp2p.handle import framing, messages, to_training
from ictp2p.handle.outbox import Outbox
from ictp2p.handle.watchdog import Watchdog

_log = logging.getLogger(__name__)

_END = 5.0
"""Seconds that the process has to end once nobody talks to it any more; it takes moments."""
_READ = 1 << 16


class Line:
    """A connection to a new process.

    Args:
        name: for people.
        heard: given the number and content of each message, in the thread that reads.
        ended: given why nothing more will come, once.
    """

    def __init__(
        self, name: str, heard: Callable[[int, to_training.ToTraining], None], ended: Callable[[PeerClosed], None]
    ) -> None:
        self._heard, self._ended = heard, ended
        spare_standard_streams()  # it is given its own standard streams, and its end of the line by its number
        with undivided():  # a fork that kept their end would keep ours from hearing of the process's death
            self._ours, self._theirs = socket.socketpair()
            made_alone(lambda: self._theirs)
        self._outbox = Outbox(self._ours)
        self._closing = False
        self._killed = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._writer = threading.Thread(target=self._outbox.run, name=f"{name} writer", daemon=True)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._watchdog = Watchdog(f"{name} watchdog", self._kill)
            self._begin()
        except BaseException:
            for end in (self._ours, self._theirs):
                end.close()
            raise
        _OPEN[self] = None

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one that holds the line."""
        return os.getpid() != self._owner

    @property
    def process(self) -> int | None:
        """The id of the other process, once it runs."""
        return self._process.pid if self._process is not None else None

    def send(self, number: int, message: Any, descriptor: int | None = None) -> None:
        """Say something, without waiting for room; a descriptor that goes along is closed here.

        Raises:
            PeerClosed: this process is another one's fork.
        """
        if self.left_behind:
            raise PeerClosed(f"the peer belongs to process {self._owner}, from which this one was forked")
        self._outbox.put(messages.encode(number, message), descriptor)

    def flush(self) -> None:
        """Wait until what was said has left; see `Outbox.flush`."""
        self._outbox.flush()

    def check_waits_elsewhere(self) -> None:
        """See that this is not the thread that reads, which would wait for what it has to read itself.

        Raises:
            LocalProtocolError: it is.
        """
        check_waits_elsewhere(self._thread, "the peer")

    def limited(self, seconds: float, what: str) -> AbstractContextManager[None]:
        """Kill the process if what is done meanwhile takes longer: it ends with a `PeerClosed` that says so."""
        return self._watchdog.limited(seconds, what)

    def close(self) -> None:
        """Hang up, and wait for the end of the process."""
        if self.left_behind:
            return
        self._closing = True
        _OPEN.pop(self, None)
        self._cut()
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _END)
        self._watchdog.close()

    def _kill(self, what: str) -> None:
        self._killed = f"did not {what}, and "
        if self._process is not None:
            self._process.kill()
        self._cut()  # who waits for a disk does not die of it, and nobody is to wait for that

    def _cut(self) -> None:
        """Neither who reads nor who waits for room waits any more."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def _begin(self) -> None:
        try:
            self._writer.start()
            self._thread.start()
        except BaseException:
            self._outbox.close()
            self._watchdog.close()
            raise

    # ------------------------------------------------------------ reading, in the thread of the line

    def _run(self) -> None:
        try:
            try:
                self._process = self._start()
            finally:
                self._theirs.close()
            with self._ours.makefile("rb", buffering=_READ) as incoming:
                self._read(cast("BinaryIO", incoming))
            why = ""
        except ConnectionError:  # it ended with something unread
            why = ""
        except BaseException as error:  # `sys.exit` as well: nobody else tells those who wait
            logs.exception(_log, "a peer's process is given up")
            why = f" after {type(error).__name__}: {error}"
        self._cut()
        self._outbox.close()
        self._writer.join(_END)
        with contextlib.suppress(OSError):
            self._ours.close()
        fate = self._fate()
        self._ended(PeerClosed("the peer is closed" if self._closing else f"the peer's process {fate}{why}"))

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process; from this thread, since it is killed when the thread that started it ends."""
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "ictp2p.handle.child", str(self._theirs.fileno()), str(self._owner)],
            stdin=subprocess.DEVNULL,
            pass_fds=[self._theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,
        )

    def _read(self, incoming: BinaryIO) -> None:
        while len(header := incoming.read(framing.HEADER.size)) == framing.HEADER.size:
            length, number = framing.checked(header)
            body = incoming.read(length)
            if len(body) < length:
                return
            self._heard(number, to_training.decode(body))

    def _fate(self) -> str:
        """How the process ended, in words; it does, for nobody talks to it any more.

        One that waits for its disk within the kernel dies of no signal until that answers (signal(7), D in ps(1)). It
        says nothing more either, so whoever waits is told; it ends when its disk answers.
        """
        process = self._process
        if process is None:
            return "could not be started"
        try:
            status = process.wait(_END)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                status = process.wait(_END)
            except subprocess.TimeoutExpired:
                return f"{self._killed}was killed, but has not ended: it waits for its disk"
        if status >= 0:
            return f"ended with status {status}"
        return f"{self._killed}was ended by {_name(-status)} (status {status})"


def _name(number: int) -> str:
    """What a signal is called; Python has names for the first and the last of the real-time ones alone."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


_OPEN: dict[Line, None] = {}


@atexit.register  # with the import, and so called after whatever a script registers to close its peer
def _hang_up() -> None:
    for line in tuple(_OPEN):
        line.close()
