"""A state that is lent to whoever fetches it, and taken back.

A fetch runs beside the training thread: chunks come on the event loop, and what takes long, hashing all of a state,
runs in a thread of its own, which nothing can stop. So a fetch that was given up, by a deadline or because there is a
newer state to fetch, may still be at work in the state when its owner goes on with that: it would write old chunks
over new ones, or commit what nobody waits for any more. Hence its owner takes the state back first. What is under way
in it ends, and what comes later is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ictp2p.errors import StateError
from ictp2p.sync.mesh import Receiver
from ictp2p.sync.state.manifest import Manifest


class Lent:
    """Receives for another receiver (`sync.mesh.Receiver`) until that is taken back.

    Args:
        receiver: what is lent.
    """

    def __init__(self, receiver: Receiver) -> None:
        self.own = receiver.own
        self._receiver = receiver
        self._using = threading.Lock()
        self._back = False

    @property
    def incoming(self) -> Manifest:
        """The manifest of the state that is expected."""
        return self._receiver.incoming

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state; say which of its chunks are not here already."""
        with self._used():
            return self._receiver.expect(encoded, digest)

    def take(self, index: int, data: memoryview) -> None:
        """Take a chunk of the expected state. One that comes too late is dropped: its connection is not to blame."""
        with self._using:
            if not self._back:
                self._receiver.take(index, data)

    def verified(self, version: int) -> None:
        """Commit the expected state."""
        with self._used():
            self._receiver.verified(version)

    def take_back(self) -> None:
        """Wait until nobody is at work in it, which takes at most as long as hashing it, and let nobody in any more."""
        with self._using:
            self._back = True

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._using:
            if self._back:
                raise StateError("the state that was to be received is not wanted any more")
            yield
