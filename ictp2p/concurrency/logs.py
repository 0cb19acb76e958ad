"""Logging from where nothing may be raised and nothing may wait: a peer's loop, and what reads its line.

What becomes of a log record is the program's affair: a handler of its own may raise (a disk that is full, a value that
does not serialize), or block (a pipe that nobody reads, a terminal that was stopped). On the loop the one would end in
the middle of a protocol, and the other hold up the heartbeat until the others take this peer for dead. So records are
handed to a thread, which is started with the first, and what a handler raises there stays there. Of those that wait,
only so many are kept: then the handlers are stuck, and memory is worth more than what they would have written.

What others say comes into these records, with errors and reasons. So a warning is one line, and moves no terminal.

Whoever wants what was logged to be written waits for it (`flush`), as the end of the process does for a while.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import sys
import threading

from ictp2p.errors import printable

_ROOM = 1000
"""Records that wait for the handlers at most."""
_PATIENCE = 2.0
"""Seconds that the end of the process waits for what was logged to be written."""


def warning(logger: logging.Logger, text: str, *args: object) -> None:
    """Log a warning."""
    _desk.take(logger, logging.WARNING, printable(text % args if args else text))


def exception(logger: logging.Logger, text: str, *args: object) -> None:
    """Log the exception that is being handled, with its traceback."""
    _desk.take(logger, logging.ERROR, text % args if args else text, error=True)


def flush(seconds: float = _PATIENCE) -> bool:
    """Wait until all that was logged so far is written; whether it is."""
    return _desk.flush(seconds)


class Desk:
    """Takes records, and has a thread handle them in their order."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[logging.Logger, logging.LogRecord] | threading.Event] = (
            queue.SimpleQueue()
        )
        self._lost = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # reentrant: a signal's handler may close a peer, and log, in the middle of this

    def take(self, logger: logging.Logger, level: int, text: str, *, error: bool = False) -> None:
        """Take a record, if anybody wants one of its level and there is room; never raises, never waits."""
        if not logger.isEnabledFor(level):
            return
        if self._waiting.qsize() >= _ROOM:
            self._lost += 1
            return
        raised = sys.exc_info() if error else None
        record = logger.makeRecord(logger.name, level, *_caller(), text, (), raised)
        if self._started():
            self._waiting.put((logger, record))
        else:
            _handle(logger, record)  # no more threads can be had: better late than never

    def flush(self, seconds: float) -> bool:
        """Wait until all that it has taken is handled; whether it is."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._waiting.put(done)
        return done.wait(seconds)

    def _started(self) -> bool:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="ictp2p log", daemon=True)
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            return self._thread is not None

    def _run(self) -> None:
        while True:
            match self._waiting.get():
                case (logger, record):
                    _handle(logger, record)
                    del record  # it may know an error, and that its frames
                    self._own_up(logger)
                case done:
                    done.set()

    def _own_up(self, logger: logging.Logger) -> None:
        lost, self._lost = self._lost, 0
        if lost:
            text = f"{lost} records were dropped, for {_ROOM} others waited for the handlers of this log"
            _handle(logger, logger.makeRecord(logger.name, logging.WARNING, __file__, 0, text, (), None))


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    with contextlib.suppress(BaseException):  # `sys.exit` as well: it would end the thread, and nothing more be logged
        logger.handle(record)


def _caller() -> tuple[str, int]:
    """Who logs: the first frame outside of this module."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_desk = Desk()


def _forked() -> None:
    """A fork has no threads but its own: what waited is the parent's to write."""
    global _desk
    _desk = Desk()


os.register_at_fork(after_in_child=_forked)
atexit.register(flush)  # with the import, and so called after what closes peers
