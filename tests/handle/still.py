"""Threads that wait for nothing: time goes on when a test says so."""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.concurrency.threads import Event, Thread, Threads


class Hours:
    """Waits as long as the test says."""

    def __init__(self, act: Callable[[float], bool]) -> None:
        self.over = False
        self._act = act

    def set(self) -> None:
        self.over = True

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        return self.over or self._act(timeout)


class Nobody:
    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return False


class Still(Threads):
    """Threads that run when the test says so."""

    def __init__(self) -> None:
        self.started: list[Callable[[], None]] = []
        self.meanwhile: Callable[[float], bool] = lambda seconds: False

    def event(self) -> Event:
        return Hours(lambda seconds: self.meanwhile(seconds))

    def start(self, run: Callable[[], None], name: str) -> Thread:
        self.started.append(run)
        return Nobody()
