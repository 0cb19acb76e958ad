"""What the calls of one peer share: the queue that keeps their order, and what outlasts each of them.

A call is a value that knows how to run (`rounds`, `parts`, `state`); the queue gives each its turn in a thread of its
own, so that `async_op` changes nothing about the order. What stays from call to call is the account of rounds
(`chronicle`), the results that others may still ask for, and the copy of the shared state that is served to them.

A policy wants the cluster's group for itself, as calls do. So a policy that begins has the calls leave it, and is
refused while one is under way.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import Tensor

from ictp2p.calls.chronicle import Chronicle, Past
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.runner import Call, Runner
from ictp2p.calls.state import SharedState, SyncState, fingerprint
from ictp2p.calls.tensors import Bundle
from ictp2p.errors import ConfigError, LocalProtocolError, PeerClosed, RoundTimeout, shown
from ictp2p.handle import Handle
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId
from ictp2p.work import Work, WorkQueue, checked_timeout

R = TypeVar("R")
_CLOSING = 5.0
"""Seconds that a call has to end when the peer closes."""
_LOOK = 0.05
"""Seconds between two looks at who takes part."""


class CallEngine:
    """What the calls of one peer share: the queue, the runner and the shared state.

    Args:
        peer: the peer.
        mesh: its training side.
    """

    def __init__(self, peer: Handle, mesh: TrainingMesh) -> None:
        self.mesh = mesh
        self.form = peer.config.global_timeouts.form
        self.patience = peer.config.global_timeouts.complete
        self.cluster = peer.config.cluster_id
        self.chronicle = Chronicle(peer.id, self.cluster, peer.threads)
        self.past = Past(self.chronicle, peer)
        self.peer = peer
        self._runner = Runner(mesh, self.chronicle, self._patience)
        self._queue: WorkQueue | None = None
        self._closed = False
        self._lock = threading.RLock()  # reentrant: a signal handler may close the peer in the middle of this
        self._shared: SharedState | None = None
        mesh.evict = self._evict
        peer.subscribe(self.chronicle.notice)

    def submit(self, name: str, make: Callable[[], Call[R]]) -> Work[R]:
        """Queue a call; it is made, and its tensors read, when its turn comes."""
        return self.submit_all(name, lambda run: run(make()))

    def submit_all(self, name: str, body: Callable[[Any], R]) -> Work[R]:
        """Queue several calls that make one: `body` is given what runs each of them.

        Raises:
            PeerClosed: the peer was closed, or lives in the process that this one was forked from.
        """
        if self.peer.left_behind:  # before the locks, which a thread may have held that was not forked along
            raise PeerClosed(f"{name}: the peer lives in the process that this one was forked from")
        with self._lock:
            if self._closed:
                raise PeerClosed(f"{name}: the peer is closed")
            queue = self._open_queue()
            return queue.submit(name, lambda: body(self._runner.together()))

    def sync(self, state: Mapping[str, Tensor]) -> SyncState:
        """A call of `sync_state`; what the mirror of the last one holds stays, if the tensors are alike."""
        shared = SharedState(state)
        if self._shared is not None and self._shared.items == shared.items:
            shared = self._shared
        if self.mesh.global_state is not shared.mirror:  # it is new, or a policy has had its own state served since
            self.mesh.serve_state(shared.mirror)
        self._shared = shared
        self._runner.version = lambda: shared.held
        self._runner.lesson = lambda: shared.answer(fingerprint(shared))
        return SyncState(self.mesh, self.chronicle, shared, state)

    def send(self, bundle: Bundle, target: ClusterId, tag: int, timeout: float) -> Work[None]:
        """Offer a message; beside the queue, for it waits for others."""
        sending = self.peer.send(bundle.copied(), bundle.brief, target, tag, timeout)
        return Work(f"send to {target}", sending, self.peer.wait)

    def receive(self, bundle: Bundle, source: ClusterId, tag: int, timeout: float) -> Work[None]:
        """Ask for a message; it is written into the tensors on the peer's thread."""
        receiving = self.peer.receive(bundle.nbytes, bundle.brief, source, tag, timeout, bundle.deliver)
        return Work(f"recv from {source}", receiving, self.peer.wait)

    def gather(self, clusters: int, timeout: float) -> None:
        """Wait until so many clusters take part.

        Raises:
            ConfigError: there is no such number, or no such time.
            RoundTimeout: fewer do after `timeout` seconds; it names them. Or this peer itself stands still.
        """
        try:
            wanted = 0 if isinstance(clusters, bool) else operator.index(clusters)
        except TypeError:  # an array of several has the method, and no number
            wanted = 0
        if wanted < 1:
            raise ConfigError(f"clusters = {shown(clusters)} is not valid: it must be a whole number, at least 1")
        timeout = checked_timeout(timeout)
        end = self.peer.clock() + timeout
        self.peer.taking_part()  # has a deadline of its own, which what a peer that stands still is told has not
        self.mesh.take_part()
        while len(found := self.peer.taking_part()) < wanted:
            left = end - self.peer.clock()
            if left <= 0:
                names = ", ".join(found) or "none"
                raise RoundTimeout(f"{len(found)} of {shown(wanted)} clusters take part after {timeout:g} s: {names}")
            self.chronicle.wait(min(_LOOK, left))

    def close(self) -> None:
        """Fail what waits and what runs with `PeerClosed`."""
        with self._lock:
            self._closed = True
            if self._queue is not None:
                self.peer.give_up()
                self._queue.close(_CLOSING)
            self._runner.end()

    def _open_queue(self) -> WorkQueue:
        if self._queue is None:
            self._queue = WorkQueue(f"ictp2p calls {self.cluster}", self._runner.leave, self.peer)
            if self._closed:  # by a handler, which found no queue
                self._queue.close(0.0)
        return self._queue

    def _patience(self) -> Deadline:
        return Deadline(self.patience, self.peer.waiting, self.peer.clock)

    def _evict(self) -> None:
        """A policy wants the group."""
        with self._lock:
            if self._queue is None:
                return
            if not self._queue.idle:
                raise LocalProtocolError("collective calls are under way: wait for them before a policy begins")
            self._queue.submit("leave", self._runner.leave, anyway=True).wait(_CLOSING)
