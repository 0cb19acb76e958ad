"""One round between two threads: the event loop has it with the mesh, the training thread works for it.

What the round needs of the training side (publish a range, begin again, finish the result) is put into an inbox by the
loop and done by the training thread, one after the other, because the tensors and the process group are that thread's.
While there is nothing to do it shows that it lives. Whatever ends the round early, nothing refers to the caller's
tensors any more when `run` returns.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable

from ictp2p.async_peer import AsyncPeer
from ictp2p.participation import Outcome, Reduction
from ictp2p.sync.mesh import RoundRequest
from ictp2p.threads import Beside, Inbox

IDLE = 0.5
"""Seconds between two `idle` calls: half of what policies are promised."""
_LET_GO = 5.0
"""Seconds that a round which was given up has to let go of the caller's tensors; it takes moments."""


class Conversation:
    """One outer round: the loop asks, the training thread answers."""

    def __init__(self, loop: Beside, peer: AsyncPeer, request: RoundRequest) -> None:
        self._loop = loop
        self._peer = peer
        self._request = request
        self._inbox: Inbox[Callable[[], None]] = loop.threads.inbox()
        self._over = loop.threads.event()

    def run(self) -> Outcome:
        """Take the round to its end."""
        request = self._request
        work = Reduction(
            request.spec,
            request.inputs,
            request.outputs,
            weight=request.weight,
            base=request.base,
            finish=self._finish,
            progress=lambda start, stop: self._inbox.put(lambda: request.progress(start, stop)),
            restarted=lambda attempt, parts: self._inbox.put(lambda: request.restarted(attempt, parts)),
            note=request.note,
            holds=request.holds,
            patient=request.patient,
        )
        future = self._loop.submit(self._reduce(work))
        future.add_done_callback(lambda _: self._inbox.put(lambda: None))
        try:
            while not future.done():
                self._turn()
            return self._loop.wait(future)
        except BaseException:
            future.cancel()
            self._over.wait(_LET_GO)
            raise

    async def _reduce(self, work: Reduction) -> Outcome:
        """On the loop: once this has ended, nothing refers to the tensors, and another round may be asked for."""
        try:
            return await self._peer.reduce(work)
        finally:
            self._over.set()

    def _turn(self) -> None:
        try:
            act = self._inbox.get(timeout=IDLE)
        except queue.Empty:
            act = self._request.idle
        act()

    async def _finish(self) -> bytes:
        """On the loop: have the training thread finish the result, and wait for its digest."""
        loop = asyncio.get_running_loop()
        digest: asyncio.Future[bytes] = loop.create_future()

        def finish() -> None:
            found = self._request.finish()
            loop.call_soon_threadsafe(_set_unless_done, digest, found)

        self._inbox.put(finish)
        return await digest


def _set_unless_done(future: asyncio.Future[bytes], value: bytes) -> None:
    if not future.done():
        future.set_result(value)
