"""The disk of a simulated host, and how a process sees it.

A disk outlives the processes that write to it, and a crash may come at any write: `before` is called while the value
is not durable yet, `after` once it is. Every save is durable when it returns, as those of `ictp2p.disk.FileDisk` are,
and a disk that takes time over it holds up its process, heartbeats and all.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.errors import StateError
from sim.loop import Process, SimLoop


class Disk:
    """What one host keeps."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.saves = 0
        self.seconds = 0.0
        """How long each save takes; its process stands meanwhile."""
        self.full_at: int | None = None
        """The number of the save from which on all are refused."""
        self.before: Callable[[], None] | None = None
        """Called before a value is written; may end the process."""
        self.after: Callable[[], None] | None = None
        """Called once it is durable; may end the process."""
        self.saved: Callable[[str, bytes], None] | None = None
        """Told what is durable from now on."""

    def load(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self.values.get(key)


class Mounted:
    """A disk as one process sees it (`ictp2p.disk.Disk`): once that is dead, it writes no more.

    Nor does the process go on: what follows a write counts on it.
    """

    def __init__(self, disk: Disk, process: Process, loop: SimLoop) -> None:
        self._disk = disk
        self._process = process
        self._loop = loop

    def load(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._disk.load(key)

    def save(self, key: str, value: bytes) -> None:
        """Write a value, if the process lives to see it.

        Raises:
            StateError: the disk is full, or the process has died over it.
        """
        if self._process.alive and self._disk.before is not None:
            self._disk.before()
        if self._process.alive:
            self._write(key, bytes(value))
        if not self._process.alive:
            raise StateError(f"cannot write {key}: the process is dead")

    def _write(self, key: str, value: bytes) -> None:
        disk = self._disk
        if disk.full_at is not None and disk.saves + 1 >= disk.full_at:
            raise StateError(f"cannot write {key}: No space left on device")
        disk.values[key] = value
        disk.saves += 1
        if disk.seconds:
            self._loop.block(self._process, disk.seconds)
        if disk.saved is not None:
            disk.saved(key, value)
        if disk.after is not None:
            disk.after()
