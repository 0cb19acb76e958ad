"""Has the process of a peer killed if what is asked of it takes too long, so that whoever asks does not wait for ever.

A process that is stopped answers nothing. The thread that watches is there from the beginning, and sleeps: it is wanted
most where no other can be had any more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ictp2p.concurrency.interrupts import Condition


class Watchdog:
    """Watches for one line. `close` it.

    Args:
        name: of its thread.
        bite: told in words what took too long, in that thread.
    """

    def __init__(self, name: str, bite: Callable[[str], None]) -> None:
        self._bite = bite
        self._changed = Condition()
        self._watched: dict[object, tuple[float, str]] = {}
        """When what is under way is due, and what to say if it is late."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def limited(self, seconds: float, what: str) -> Iterator[None]:
        """Bite if what is done meanwhile takes longer."""
        here = object()
        try:
            self._tell(
                lambda: self._watched.update({here: (time.monotonic() + seconds, f"{what} within {seconds:g} s")})
            )
            yield
        finally:
            self._watched.pop(here, None)

    def close(self) -> None:
        """End the watch."""

        def end() -> None:
            self._closed = True

        self._tell(end)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _tell(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for here, (due, what) in list(self._watched.items()):
                    if due <= now and self._watched.pop(here, None) is not None:
                        self._bite(what)
                waits = [due - now for due, _ in list(self._watched.values())]
                self._changed.wait(min(waits, default=None))
