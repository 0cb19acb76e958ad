"""A collective under way, as torch and its C++ callers want to wait for it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from ictp2p.concurrency.interrupts import Event
from ictp2p.concurrency.loop_thread import beside
from ictp2p.torch_backend.errors import GroupClosed, again
from ictp2p.uncompiled import uncompiled

_FOREVER = timedelta(0)
"""What torch's callers give when they name no timeout (`kNoTimeout`)."""


_thread = threading.local()


def calls_back() -> bool:
    """Whether this thread runs callbacks of futures: threads of different ranks do so in different orders."""
    return getattr(_thread, "calls_back", False)


_Work: Any = dist.Work


@uncompiled
class GroupWork(_Work):  # type: ignore[misc]
    """Ends once, on the event loop's thread; may be waited for in any other.

    Callbacks of futures (DDP's communication hooks) run in a thread of their own: they may take long, and must not hold
    up the connections. Who waits waits for them too, as on Gloo: what they do to the tensors has been done then. In a
    callback a wait is for the call alone, or two of them, or one and itself, would wait for each other.
    """

    def __init__(self, name: str, results: Sequence[Tensor]) -> None:
        """Begin; `name` is for people, `results` what `result` and the future give."""
        super().__init__()
        self._name = name
        self._results = list(results)
        self._over = False
        """Whether it has come to something; its future may have yet to."""
        self._ended = Event()
        """Set when its future has, too."""
        self._told = Event()
        """Set when all that hung on its future has been called, too."""
        self._error: BaseException | None = None
        self._lock = threading.RLock()  # reentrant: a signal handler may ask of, or end, what its thread asks of
        self._futures: tuple[Any, Future[Any]] | None = None
        """The one that we fulfil, and the one that hangs on it and is shown."""
        self._source = -1
        self._process = os.getpid()

    def __repr__(self) -> str:
        state = "under way" if not self._over else f"failed: {self._error}" if self._error else "done"
        return f"<{self._name} {state}>"

    def finish(self, error: BaseException | None = None, source: int = -1) -> None:
        """End it: well, or with an error. `source` is the rank that a message came from."""
        with self._lock:
            if self._over:
                return
            self._error, self._source, self._over = error, source, True
            futures = self._futures
        if futures is None:
            self._ended.set()
            self._told.set()
            return
        call_back = functools.partial(self._call_back, futures[0])
        try:
            beside(call_back)
        except RuntimeError:  # this process has no more threads: better here than never
            call_back()

    def _call_back(self, future: Any) -> None:
        _thread.calls_back = True
        try:
            future.set_result(self._results)
        finally:
            _thread.calls_back = False
            self._told.set()

    def _end(self) -> Event:
        """What this thread waits for."""
        return self._ended if calls_back() else self._told

    # ------------------------------------------------------------ torch.distributed.Work

    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        """Wait until it has ended, and what hung on its future by then has been called.

        Args:
            timeout: how long; by default as long as the collective's own deadline lets it take.

        Raises:
            dist.DistError: it failed (`RankLost`, `RankTimeout`), or is still under way when `timeout` is over.
            GroupClosed: the group was shut down, or this process was forked while it was under way.
        """
        if not (end := self._end()).is_set():  # what is done is so in a fork as well
            self._check_process()
            if not end.wait(timeout.total_seconds() if timeout > _FOREVER else None):
                raise dist.DistBackendError(f"{self._name} is still under way after {timeout.total_seconds():g} s")
        if self._error is not None:
            raise again(self._error)
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait: results come from the host."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, either way."""
        return self._end().is_set()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._end().is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Why it failed."""
        return self._error if self._end().is_set() else None

    def result(self) -> list[Tensor]:
        """The tensors that it filled in."""
        return self._results

    def source_rank(self) -> int:
        """The rank that a received message came from."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Future[Any]:
        """A future of the tensors. Its error, if it fails, is torch's own with our words: futures carry no types.

        Raises:
            GroupClosed: this process was forked.
        """
        self._check_process()
        fresh: Any = Future()  # made before it is looked whether there is one: a handler may ask in between
        shown: Future[Any] = fresh.then(self._unwrapped)
        shown.add_done_callback(self._has_ended)  # the first that is called
        futures = fresh, shown
        with self._lock:
            if self._over and self._futures is None:
                fresh.set_result(self._results)  # before anybody sees it: a handler may wait for it
            if self._futures is None:  # no handler comes between this and the next step
                self._futures = futures
            return self._futures[1]

    def _has_ended(self, _: object) -> None:
        self._ended.set()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise GroupClosed(f"{self._name} began in process {self._process}, from which this one was forked")

    def _unwrapped(self, future: Any) -> Any:
        """Fail the future that hangs on ours: only a callback that raises can, from Python."""
        if self._error is not None:
            raise again(self._error)
        return future.value()
