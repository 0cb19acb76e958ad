"""What the peer's process asks of the training program besides the result of a round: pieces of states, and modules.

They are answered one after the other in a thread of their own, because to hash a state takes long, and news must not
wait for that. Other peers' patience bounds how long they wait for a training program that holds its interpreter lock.

A piece of a state is large, so this thread waits until it has left before it makes the next one: a process that is
stopped while many want its state would have all that they want in the memory of the program.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ictp2p.errors import PeerClosed, StateError
from ictp2p.handle import messages, to_peer, to_training
from ictp2p.handle.failures import packed
from ictp2p.handle.memory import Arena
from ictp2p.sync.mesh import Receiver

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState

Say = Callable[[int, Any], None]


class Questions:
    """Answers them.

    Args:
        arena: where tensors go that are asked for.
        say: sends a message.
        flush: waits until what was said has left.
    """

    def __init__(self, arena: Arena, say: Say, flush: Callable[[], None]) -> None:
        self._arena = arena
        self._say = say
        self._flush = flush
        self._waiting: queue.SimpleQueue[tuple[int, to_training.ToTraining] | None] = queue.SimpleQueue()
        self._lent: dict[int, list[torch.Tensor]] = {}
        self.state: GlobalState | None = None
        """What others may have."""
        self.receivers: dict[int, Receiver] = {}
        """Where states go, by the number of the request."""
        self.holds: dict[int, Callable[[bytes], Sequence[torch.Tensor]]] = {}
        """What is agreed of modules, by the number of the round's request."""
        threading.Thread(target=self._run, name="ictp2p questions", daemon=True).start()

    def put(self, number: int, question: to_training.ToTraining) -> None:
        """Answer a question, after those before it."""
        self._waiting.put((number, question))

    def answer(self, number: int, value: Any) -> None:
        """Give an answer, from any thread."""
        self._reply(number, to_peer.Answered(messages.raw(value)))

    def close(self) -> None:
        """Answer nothing more."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            number, question = entry
            try:
                self._take(number, question)
            except Exception as error:
                self._reply(number, to_peer.Refused(packed(error)))
            self._flush()

    def _take(self, number: int, question: to_training.ToTraining) -> None:
        match question:
            case to_training.WantsManifest(digest=digest):
                self.answer(number, self._served.manifest(digest))
            case to_training.WantsChunk(digest=digest, index=index):
                self.answer(number, self._served.chunk(digest, index))
            case to_training.Expect(request=request, encoded=encoded, digest=digest):
                receiver = self._receiver(request)
                missing = receiver.expect(encoded, digest)
                self.answer(number, (missing, receiver.incoming))
            case to_training.Take(request=request, index=index, data=data):
                if request in self.receivers:
                    self.receivers[request].take(index, memoryview(data))
            case to_training.Verify(request=request, version=version):
                self._receiver(request).verified(version)
                self.answer(number, None)
            case to_training.WantsModules(request=request, keys=keys):
                self.answer(number, [self._lend(request, key) for key in keys])

    @property
    def _served(self) -> GlobalState:
        if self.state is None:
            raise StateError("no state is served here")
        return self.state

    def _receiver(self, request: int) -> Receiver:
        if request not in self.receivers:
            raise StateError("the state is not wanted any more")
        return self.receivers[request]

    def _lend(self, request: int, key: bytes) -> tuple[messages.TensorRef, ...]:
        """Copy a module to where the peer can reach it; it stays there until the next round asks."""
        if request not in self._lent:
            self._lent = {request: []}
        copies = self._arena.copied(self.holds[request](key))
        self._lent[request] += copies
        return self._arena.refs(copies)

    def _reply(self, number: int, message: to_peer.ToPeer) -> None:
        with contextlib.suppress(PeerClosed):  # then nobody waits for it any more
            self._say(number, message)
