"""A peer on an event loop beside its training threads, in one process: tensors are passed as they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.collectives.group.rendezvous import open_store
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.concurrency.threads import Beside, Threads
from ictp2p.config import Config
from ictp2p.errors import PeerClosed
from ictp2p.handle import CLOSING, Attempts, EventCallback, Subscriber, Where
from ictp2p.handle.failures import silent
from ictp2p.handle.reuse import Private
from ictp2p.handle.service import PeerService
from ictp2p.runtime.reduction import Outcome, Reduction
from ictp2p.sync.mesh import Receiver, RoundRequest
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Generation
from ictp2p.sync.values import Close, Open, StateRef
from ictp2p.types import Address, ClusterId, PeerId

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState

T = TypeVar("T")


class ThreadHandle:
    """See `handle.Handle`.

    Args:
        loop: where the peer runs.
        service: the peer's end.
    """

    def __init__(self, loop: Beside, service: PeerService) -> None:
        self.loop = loop
        self.service = service
        self._peer = service.peer
        self._memory = Private(loop.threads, keep=1)

    @property
    def threads(self) -> Threads:
        """What training threads wait with."""
        return self.loop.threads

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one that the loop runs in."""
        return isinstance(self.loop, LoopThread) and self.loop.left_behind

    @property
    def config(self) -> Config:
        """What the peer was made with."""
        return self._peer.config

    @property
    def id(self) -> PeerId:
        """The peer's id."""
        return self._peer.id

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._peer.address

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster."""
        return self._peer.leader

    @property
    def clusters(self) -> int:
        """How many clusters are alive."""
        return len(self._peer.core.m.mesh.alive()) if self._peer.assembled else 0

    @property
    def agreed(self) -> StateRef | None:
        """The agreed global state."""
        return self._peer.agreed_state

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh the chain goes back to."""
        return self._peer.lineage

    def clock(self) -> float:
        """Monotonic seconds."""
        return self._peer.clock()

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Join the mesh."""
        self._finish(self.loop.submit(self.service.start))

    def hand_over(self) -> Future[None]:
        """Have others hold the agreed state."""
        return self.loop.submit(self._peer.hand_over)

    def leave(self) -> None:
        """Leave the mesh politely; a loop that has ended, with the program, has left.

        Raises:
            PeerClosed: it did not leave in time, for it stands still.
        """
        seconds = self._closing
        try:
            with contextlib.suppress(PeerClosed):
                self._finish(self.loop.submit(self._peer.leave), seconds)
        except TimeoutError:
            raise PeerClosed(f"the peer did not leave within {seconds:g} s") from None

    def close(self) -> None:
        """End the loop, if it is our own, and with it the peer, if it has not left."""
        self._memory.close()
        if isinstance(self.loop, LoopThread):
            self.loop.close(self._peer.close)
        self.service.end()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have all later news given to `subscriber`, on the loop."""
        self.service.subscribe(subscriber)

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for an answer."""
        try:
            return self.loop.wait(future, timeout)
        finally:
            del future  # as in `LoopThread.wait`

    # ------------------------------------------------------------ what it sees, and is told

    def view(self, name: str) -> Any:
        """Plain data for people."""
        return self.loop.call(lambda: self.service.view(name))

    def event(self, kind: str, /, **fields: Any) -> None:
        """Note something for telemetry."""
        self.loop.post(lambda: self._peer.telemetry.event(kind, **fields))

    def show(self, where: Where) -> None:
        """Have the peer's status say where the worker is in its life."""
        self._peer.life = where

    # ------------------------------------------------------------ rosters

    def equip(self, device: Device) -> None:
        """Say what the training thread computes on."""
        self.loop.call(lambda: self._peer.equip(device))

    def wants(self, ready: bool, device: Device, calls: bool = False) -> None:
        """Say whether a training thread wants into the cluster's group."""
        self.loop.call(lambda: self.service.wants(ready, device, calls))

    def wants_out(self, device: Device) -> None:
        """Say that none wants into it any more."""

        async def tell() -> None:
            self.service.wants(False, device, False)
            self._peer.set_training(False)

        told = self.loop.submit(tell)
        with contextlib.suppress(TimeoutError):
            self.loop.wait(told, self.config.global_timeouts.connect)

    def attends(self, stage: Stage, generation: Generation) -> None:
        """What the training thread is at: it waits for a roster later than a generation, or meets others in one."""
        self.loop.call(lambda: self.service.attends(stage, generation))

    def boundary(self, step: int) -> None:
        """Everybody stands at a step boundary."""
        self.loop.call(lambda: self.service.boundary(step))

    def failed(self, generation: Generation, breach: Breach) -> None:
        """The group of that generation broke here."""
        self.loop.call(lambda: self.service.failed(generation, breach))

    # ------------------------------------------------------------ the state

    def set_training(self, training: bool) -> None:
        """Say whether rounds should wait for this cluster."""
        self.loop.call(lambda: self._peer.set_training(training))

    def offer(self, digest: bytes) -> None:
        """Offer a state to begin with."""
        self._finish(self.loop.submit(lambda: self.service.offer(digest)))

    def serve_state(self, state: GlobalState) -> None:
        """Answer other peers' questions for `state` from now on."""
        self.loop.call(lambda: self._peer.serve_state(state))

    def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
        """Receive an agreed state."""
        return self.loop.submit(lambda: self._peer.fetch_state(ref, state))

    # ------------------------------------------------------------ rounds

    def reduce(self, request: RoundRequest, attempts: Attempts) -> Future[Outcome]:
        """Bring a contribution."""
        began: list[bool] = []

        def unbegun() -> None:  # in the loop's turn, by which it has begun, or never does
            if not began:
                attempts.over()

        future = self.loop.submit(lambda: self._reduce(request, attempts, began))
        future.add_done_callback(lambda done: self.loop.post(unbegun) if done.cancelled() else None)
        return future

    async def _reduce(self, request: RoundRequest, attempts: Attempts, began: list[bool]) -> Outcome:
        began.append(True)
        work = Reduction(
            request.spec,
            request.inputs,
            request.outputs,
            weight=request.weight,
            base=request.base,
            finish=lambda: _digest(attempts),
            progress=attempts.progress,
            restarted=attempts.restarted,
            note=request.note,
            holds=lambda keys: _held(request, keys),
            patient=request.patient,
            slack=request.slack,
            newcomer=request.newcomer,
            among=request.among,
        )
        try:
            return await self._peer.reduce(work)
        finally:
            attempts.over()

    def give_up(self) -> None:
        """Fail the contribution that stands; with the loop gone, none does."""
        with contextlib.suppress(PeerClosed, TimeoutError):
            self.loop.call(self._peer.participation.closed, self._closing)

    def waiting(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for."""
        return self._soon(self.service.waiting)

    def taking_part(self) -> list[ClusterId]:
        """The clusters that rounds wait for."""
        return self._soon(self.service.taking_part)

    # ------------------------------------------------------------ results of calls, and messages

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes."""
        return self._memory.empty(nbytes)

    def hold_answer(self, digest: bytes, result: torch.Tensor) -> None:
        """Keep a result for whoever asks."""
        self.service.answers.hold(digest, result)

    def fetch_answer(self, opened: Open, close: Close, result: torch.Tensor) -> Future[None]:
        """Have the result of a committed round."""
        return self.loop.submit(lambda: self.service.answers.fetch(opened, close, result))

    def send(self, body: torch.Tensor, shapes: bytes, target: ClusterId, tag: int, timeout: float) -> Future[None]:
        """Offer a message."""
        return self.loop.submit(lambda: self.service.messages.send(body, shapes, target, tag, timeout))

    def receive(
        self,
        nbytes: int,
        shapes: bytes,
        source: ClusterId,
        tag: int,
        timeout: float,
        deliver: Callable[[torch.Tensor], None],
    ) -> Future[None]:
        """Ask for a message."""

        async def receive() -> None:
            deliver(await self.service.messages.receive(nbytes, shapes, source, tag, timeout))

        return self.loop.submit(receive)

    @property
    def _closing(self) -> float:
        """Seconds for which the end of the peer is waited for."""
        return self.config.global_timeouts.connect + CLOSING

    def _soon(self, act: Callable[[], T]) -> T:
        """Ask what any peer answers at once that does not stand still."""
        seconds = self.config.global_timeouts.connect
        try:
            return self.loop.call(act, seconds)
        except TimeoutError:
            raise silent(seconds) from None

    def _finish(self, future: Future[T], seconds: float | None = None) -> T:
        """Wait for it, no longer than that; an interrupt of the waiting thread cancels it."""
        try:
            return self.loop.wait(future, seconds)
        except BaseException:
            future.cancel()
            raise
        finally:
            del future


def beside(config: Config, tell: EventCallback) -> ThreadHandle:
    """Make a peer on a loop in a thread of its own; `tell` is given its events.

    Raises:
        StateError: the data folder is in use by another process, or corrupt.
    """
    loop = LoopThread(f"ictp2p {config.cluster}")
    made: list[AsyncPeer] = []

    def make() -> AsyncPeer:
        made.append(AsyncPeer(config, open_store=open_store))
        return made[0]

    async def end() -> None:
        for peer in made:  # the loop ends what it is in the middle of: an interrupted wait for it does not undo it
            await peer.close()

    try:
        peer = loop.call(make)
        loop.call(lambda: peer.telemetry.subscribe(lambda event: tell(event.kind, event.fields)))
        return ThreadHandle(loop, loop.call(lambda: PeerService(peer)))
    except BaseException:
        loop.close(end)
        raise


async def _held(request: RoundRequest, keys: Sequence[bytes]) -> dict[bytes, Sequence[torch.Tensor]]:
    return {key: request.holds(key) for key in keys}


def _digest(attempts: Attempts) -> Awaitable[bytes]:
    """On the loop: have the result finished, and wait for its digest."""
    loop = asyncio.get_running_loop()
    digest: asyncio.Future[bytes] = loop.create_future()
    attempts.complete(lambda found: _tell_from_elsewhere(loop, digest, found))
    return digest


def _tell_from_elsewhere(loop: asyncio.AbstractEventLoop, digest: asyncio.Future[bytes], found: bytes) -> None:
    loop.call_soon_threadsafe(lambda: None if digest.done() else digest.set_result(found))
