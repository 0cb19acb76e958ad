"""One round between two threads: the peer has it with the mesh, the training thread works for it.

What the round needs of the training side (publish a range, begin again, finish the result) is put into an inbox by the
peer and done by the training thread, one after the other, because the tensors and the process group are that thread's.
While there is nothing to do it shows that it lives. Whatever ends the round early, nothing refers to the caller's
tensors any more when `run` returns.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from ictp2p.concurrency.threads import Inbox
from ictp2p.handle import Handle
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.values import Participant

IDLE = 0.5
"""Seconds between two `idle` calls: half of what policies are promised."""
_LET_GO = 5.0
"""Seconds that a round which was given up has to let go of the caller's tensors; it takes moments."""


class Conversation:
    """One outer round: the peer asks, the training thread answers. To the peer it is the round's `Attempts`."""

    def __init__(self, peer: Handle, request: RoundRequest) -> None:
        self._peer = peer
        self._request = request
        self._inbox: Inbox[Callable[[], None]] = peer.threads.inbox()
        self._over = peer.threads.event()

    def run(self) -> Outcome:
        """Take the round to its end."""
        future = self._peer.reduce(self._request, self)
        future.add_done_callback(lambda _: self._inbox.put(lambda: None))
        try:
            while not future.done():
                self._turn()
            return self._peer.wait(future)
        except BaseException:
            future.cancel()
            self._over.wait(_LET_GO)
            raise
        finally:
            del future  # as in `LoopThread.wait`

    # ------------------------------------------------------------ on the peer's thread

    def restarted(self, attempt: int, parts: Sequence[Participant]) -> None:
        """An attempt begins."""
        self._inbox.put(lambda: self._request.restarted(attempt, parts))

    def progress(self, start: int, stop: int) -> None:
        """Some elements hold their result."""
        self._inbox.put(lambda: self._request.progress(start, stop))

    def complete(self, answer: Callable[[bytes], None]) -> None:
        """All do: have the training thread finish the result."""
        self._inbox.put(lambda: answer(self._request.finish()))

    def over(self) -> None:
        """Nothing refers to the tensors any more, and another round may be asked for."""
        self._over.set()

    def _turn(self) -> None:
        try:
            act = self._inbox.get(timeout=IDLE)
        except queue.Empty:
            act = self._request.idle
        act()
