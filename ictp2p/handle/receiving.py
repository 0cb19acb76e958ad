"""The training program's receiver of a state, as the peer's process sees it: chunks go on to where the state is.

While a state is fetched its training thread waits for it, so what waits here to be taken is little. What is expected
and what is verified is hashed over there, by whoever holds the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ictp2p.handle import to_training
from ictp2p.sync.state.manifest import Manifest

Ask = Callable[[to_training.ToTraining], Coroutine[Any, Any, msgspec.Raw]]
Say = Callable[[int, to_training.ToTraining], None]


class RemoteReceiver:
    """See `sync.mesh.Receiver`.

    Args:
        ask: puts a question to the training program, on the loop.
        say: tells it something.
        loop: the loop.
        number: of its request.
        own: whether every provider holds a state of its own.
    """

    incoming: Manifest

    def __init__(self, ask: Ask, say: Say, loop: asyncio.AbstractEventLoop, number: int, own: bool) -> None:
        self._put, self._say, self._loop, self._number = ask, say, loop, number
        self.own = own

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """In a thread: prepare to receive a state."""
        answer = self._ask(to_training.Expect(self._number, encoded, digest))
        missing, self.incoming = msgspec.msgpack.decode(answer, type=tuple[list[int], Manifest])
        return missing

    def take(self, index: int, data: memoryview) -> None:
        """On the loop: hand a chunk on."""
        self._say(self._number, to_training.Take(self._number, index, bytes(data)))

    def verified(self, version: int) -> None:
        """In a thread: commit the state."""
        self._ask(to_training.Verify(self._number, version))

    def _ask(self, question: to_training.ToTraining) -> msgspec.Raw:
        return asyncio.run_coroutine_threadsafe(self._put(question), self._loop).result()
