"""What keeps a connection from sending although its transport takes more: memory, a pace, or a ceiling.

Three things may say *not yet*, each for a reason of its own. Memory that both ends share is full: what does not fit
would go over the connection at thrice the price, and the reader is about to free some. A pace was asked for: what a
plan gives one flow of a line, so that the others on it have theirs (`Bucket`, and the kernel packet by packet, since a
chunk at a time fills queues). And all connections of a peer may have to keep under one ceiling (`limit`). What is
small passes all three, which its connection sees to: a heartbeat of a full line is no less a heartbeat.

Whoever says *not yet* also says when to ask again, so that nobody polls: the reader's word, a timer, or a turn. The
pause is our choice and says nothing about the line, so the next frame is marked for it (`Outbound.starve`).

This is asked before each frame, and told of each that has left; the latter through `bucket` and `ceiling` themselves,
which costs a connection with neither of them no call at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ictp2p.bulk.limit import Ceiling, Sender
from ictp2p.bulk.outbound import Outbound
from ictp2p.bulk.pacing import Bucket
from ictp2p.bulk.renewal import Renewal

PACKETS = 1.1
"""Times a pace, what the kernel may send: headers, a seal, and what the pauses between two chunks of ours cost."""


class Throttle:
    """One connection's.

    Args:
        sender: the connection, which is pumped when it may send again.
        outbound: its writing half.
        renewal: has the kernel pace its packets.
        clock: monotonic seconds.
    """

    def __init__(self, sender: Sender, outbound: Outbound, renewal: Renewal, clock: Callable[[], float]) -> None:
        self.bucket: Bucket | None = None
        """Paces us, if anything does. To be told of each frame that has left."""
        self.ceiling: Ceiling | None = None
        """What tensors keep under, if there is one. To be told of each of their frames that has left."""
        self._sender: Sender | None = sender
        self._outbound = outbound
        self._renewal = renewal
        self._clock = clock
        self._packets_paced = False
        self._timer: asyncio.TimerHandle | None = None

    def pace(self, rate: float | None) -> None:
        """Send at most `rate` bytes/s from now on; None: as fast as it goes."""
        if self._sender is None or (rate is None and self.bucket is None):
            return
        if self._timer is not None:  # of the pace before: a chunk at a hundredth of this one may have taken minutes
            self._timer.cancel()
            self._timer = None
        self.bucket = None if rate is None else Bucket()
        if self.bucket is not None:
            self.bucket.set(rate, self._clock())
        if rate is not None or self._packets_paced:
            self._packets_paced = self._renewal.pace(None if rate is None else PACKETS * rate)
        self._sender.pump()

    def holds_back(self) -> bool:
        """Say whether to wait: for shared memory, for the pace, or for our turn under the ceiling."""
        if self._outbound.crowded():
            return True
        bucket, ceiling = self.bucket, self.ceiling
        if bucket is None and ceiling is None:
            return False
        delay = 0.0 if bucket is None else bucket.delay(self._clock())
        if delay and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)
        if not delay and (ceiling is None or self._sender is None or ceiling.admits(self._sender)):
            return False
        self._outbound.starve()
        return True

    def end(self) -> None:
        """The connection has ended: it waits for nothing."""
        if self._timer is not None:
            self._timer.cancel()
        if self.ceiling is not None and self._sender is not None:
            self.ceiling.forget(self._sender)
        self._timer = self._sender = None  # in a cycle its buffers would stay until the garbage collector comes

    def _wake(self) -> None:
        self._timer = None
        if self._sender is not None:
            self._sender.pump()
