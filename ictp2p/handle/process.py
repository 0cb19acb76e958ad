"""A peer in a process of its own: a training program that keeps its interpreter lock to itself cannot starve it.

See `handle.Handle` for what each method does. Whatever waits here ends when the process does, with a `PeerClosed` that
says how it ended.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import torch

from ictp2p.config import Config
from ictp2p.errors import PeerClosed
from ictp2p.handle import Attempts, Ended, EventCallback, News, Subscriber, Where, messages, news, to_peer, to_training
from ictp2p.handle.failures import unpacked
from ictp2p.handle.line import Line
from ictp2p.handle.memory import Arena
from ictp2p.handle.questions import Questions
from ictp2p.handle.staging import StagedRound
from ictp2p.participation import Outcome
from ictp2p.sync.devices import Device
from ictp2p.sync.mesh import Receiver, RoundRequest
from ictp2p.sync.roster import Generation
from ictp2p.sync.values import Close, Open, StateRef
from ictp2p.threads import Threads
from ictp2p.types import Address, ClusterId, PeerId

if TYPE_CHECKING:
    from ictp2p.sync.state import GlobalState

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Request(Generic[T]):
    """What was asked of the peer. It stays until the peer has answered, though nobody may wait for it any more."""

    kind: Any
    future: Future[T]
    keeps: object = None
    """Memory that the peer may write to until then."""
    last: Callable[[], None] | None = None
    """Called before the answer is given."""


class ProcessHandle:
    """See `handle.Handle`.

    Args:
        config: of the peer.
        tell: given its events.

    Raises:
        StateError: the data folder is in use by another process, or corrupt.
        PeerClosed: the process ended before there was a peer in it.
    """

    def __init__(self, config: Config, tell: EventCallback) -> None:
        self.config = config
        self.threads = Threads()
        self._tell = tell
        self._facts = to_training.Facts()
        self._subscribers: list[Subscriber] = []
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request[Any]] = {}
        self._rounds: dict[int, StagedRound] = {}
        self._lock = threading.Lock()
        self._error: PeerClosed | None = None
        self._where: Where | None = None
        self._said: dict[type, Any] = {}
        self._held: torch.Tensor | None = None
        self.line = Line(f"ictp2p {config.cluster}", self._heard, self._over)
        self._arena = Arena(
            lambda number, size, descriptor: self.line.send(0, to_peer.Map(number, size), descriptor),
            lambda number: self.line.send(0, to_peer.Unmap(number)),
            self.threads,
        )
        self._questions = Questions(self._arena, self._say)
        try:
            self.id = PeerId(self._ask(to_peer.Begin(config, torch.get_num_threads()), str))
        except BaseException:
            self.close()
            raise

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one that the handle was made in."""
        return self.line.left_behind

    @property
    def address(self) -> Address:
        """Where the peer listens."""
        return Address.parse(self._facts.address)

    @property
    def host(self) -> str:
        """The numeric address of this worker's interface."""
        return self._facts.host

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster."""
        return self._facts.leader

    @property
    def clusters(self) -> int:
        """How many clusters are alive."""
        return self._facts.clusters

    @property
    def agreed(self) -> StateRef | None:
        """The agreed global state."""
        return self._facts.agreed

    def clock(self) -> float:
        """Monotonic seconds: one clock for all processes of a machine."""
        return time.monotonic()

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Join the mesh."""
        self._ask(to_peer.Start(), None)

    def leave(self) -> None:
        """Leave the mesh politely; a process that is gone has left."""
        if self._error is None:
            self._ask(to_peer.Leave(), None)

    def close(self) -> None:
        """End the process."""
        self._arena.close()
        self.line.close()
        self._questions.close()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have all later news given to `subscriber`."""
        self._subscribers.append(subscriber)

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for an answer."""
        try:
            return future.result(timeout)
        except CancelledError:
            raise PeerClosed("the peer was closed") from None

    # ------------------------------------------------------------ what it sees, and is told

    def view(self, name: str) -> Any:
        """Plain data for people."""
        return self._ask(to_peer.View(name), Any)

    def event(self, kind: str, /, **fields: Any) -> None:
        """Note something for telemetry."""
        with contextlib.suppress(PeerClosed):
            self._say(0, to_peer.Note(kind, fields))

    def show(self, where: Where) -> None:
        """Have the peer's status say where the worker is in its life."""
        self._where = where

    # ------------------------------------------------------------ rosters

    def equip(self, device: Device) -> None:
        """Say what the training thread computes on."""
        self._ask(to_peer.Equip(device), None)

    def wants(self, ready: bool, device: Device) -> None:
        """Say whether a training thread wants into the cluster's group."""
        self._ask(to_peer.Wants(ready, device), None)

    def boundary(self, step: int) -> None:
        """Everybody stands at a step boundary."""
        self._ask(to_peer.Boundary(step), None)

    def failed(self, generation: Generation, library: str = "") -> None:
        """A collective of that generation broke here, or its library did not come up."""
        self._ask(to_peer.GroupFailed(generation, library), None)

    # ------------------------------------------------------------ the state

    def set_training(self, training: bool, config: bytes | None = None) -> None:
        """Say whether rounds should wait for this cluster."""
        self._ask(to_peer.SetTraining(training, config), None)

    def offer(self, digest: bytes) -> None:
        """Offer a state to begin with."""
        self._ask(to_peer.Offer(digest), None)

    def serve_state(self, state: GlobalState) -> None:
        """Answer other peers' questions for `state` from now on."""
        self._questions.state = state
        self._ask(to_peer.Waiting(), tuple[bool, str])  # once this is answered, the peer has been told of the state

    def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
        """Receive an agreed state."""
        number = next(self._numbers)
        self._questions.receivers[number] = state
        return self._request(to_peer.FetchState(ref, state.own), None, number, last=lambda: self._received(number))

    def _received(self, number: int) -> None:
        self._questions.receivers.pop(number, None)

    # ------------------------------------------------------------ rounds

    def reduce(self, request: RoundRequest, attempts: Attempts) -> Future[Outcome]:
        """Bring a contribution. What the peer cannot reach is copied to where it can."""
        number = next(self._numbers)
        inputs, outputs = self._reached(request.inputs, filled=True), self._reached(request.outputs, filled=False)
        self._rounds[number] = StagedRound(attempts, request.outputs, outputs, inputs)
        self._questions.holds[number] = request.holds
        message = to_peer.Reduce(
            request.spec,
            request.base,
            request.weight,
            self._refs(inputs),
            self._refs(outputs),
            request.patient,
            request.note,
        )
        return self._request(message, Outcome, number)

    def give_up(self) -> None:
        """Fail the contribution that stands; with the process gone, none does."""
        with contextlib.suppress(PeerClosed):
            self._ask(to_peer.GiveUp(), None)

    def waiting(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for."""
        found: tuple[bool, str] = self._ask(to_peer.Waiting(), tuple[bool, str])
        return found

    def taking_part(self) -> list[ClusterId]:
        """The clusters that rounds wait for."""
        found: list[ClusterId] = self._ask(to_peer.TakingPart(), list[ClusterId])
        return found

    # ------------------------------------------------------------ results of calls, and messages

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes in shared memory."""
        return self._arena.empty(nbytes)

    def hold_answer(self, digest: bytes, result: torch.Tensor) -> None:
        """Keep a result for whoever asks."""
        (reached,) = self._reached([result], filled=True)
        self._say(0, to_peer.HoldAnswer(digest, self._ref(reached)))
        self._held = reached  # in place of the one before, whose memory may be used again

    def fetch_answer(self, opened: Open, close: Close, result: torch.Tensor) -> Future[None]:
        """Have the result of a committed round."""
        (reached,) = self._reached([result], filled=False)

        def deliver() -> None:
            if reached is not result:
                result.copy_(reached)

        return self._request(to_peer.FetchAnswer(opened, close, self._ref(reached)), None, keeps=reached, last=deliver)

    def send(self, body: torch.Tensor, shapes: bytes, target: ClusterId, tag: int, timeout: float) -> Future[None]:
        """Offer a message."""
        (reached,) = self._reached([body], filled=True)
        message = to_peer.Post(self._ref(reached), shapes, target, tag, timeout)
        return self._request(message, None, keeps=reached)

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
        room = self.empty(nbytes)
        message = to_peer.Receive(self._ref(room), shapes, source, tag, timeout)
        return self._request(message, None, keeps=room, last=lambda: deliver(room))

    # ------------------------------------------------------------ asking

    def _ask(self, message: to_peer.ToPeer, kind: Any) -> Any:
        """Ask, and wait for the answer; an interrupt of the waiting thread cancels the question."""
        future = self._request(message, kind)
        try:
            return self.wait(future)
        except BaseException:
            future.cancel()
            raise

    def _request(
        self,
        message: to_peer.ToPeer,
        kind: Any,
        number: int | None = None,
        *,
        keeps: object = None,
        last: Callable[[], None] | None = None,
    ) -> Future[Any]:
        number = next(self._numbers) if number is None else number
        future: Future[Any] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._requests[number] = _Request(kind, future, keeps, last)
        self._say(number, message)
        future.add_done_callback(lambda done: self._cancelled(number) if done.cancelled() else None)
        return future

    def _cancelled(self, number: int) -> None:
        with contextlib.suppress(PeerClosed):
            self.line.send(number, to_peer.Cancel())

    def _say(self, number: int, message: to_peer.ToPeer) -> None:
        """Say it, after whatever has changed of what the peer is to know."""
        if self._where is not None and type(message) is not to_peer.Begin:
            state, inside = self._where()
            self._first(to_peer.Where(state, dict(inside)))
        if self._questions.state is not None:
            self._first(to_peer.Holds(*self._questions.state.held()))
        self.line.send(number, message)

    def _first(self, message: to_peer.ToPeer) -> None:
        if self._said.get(type(message)) != message:
            self._said[type(message)] = message
            self.line.send(0, message)

    def _reached(self, tensors: Sequence[torch.Tensor], *, filled: bool) -> list[torch.Tensor]:
        """The tensors, or copies of those that do not lie in shared memory; without their content if not `filled`."""
        strange = [t for t in tensors if self._arena.ref(t) is None]
        copies = iter(self._arena.staged(strange))
        found = [next(copies) if any(t is s for s in strange) else t for t in tensors]
        if filled:
            with torch.no_grad():
                for copy, tensor in zip(found, tensors, strict=True):
                    if copy is not tensor:
                        copy.copy_(tensor)
        return found

    def _refs(self, tensors: Sequence[torch.Tensor]) -> tuple[messages.TensorRef, ...]:
        return tuple(map(self._ref, tensors))

    def _ref(self, reached: torch.Tensor) -> messages.TensorRef:
        ref = self._arena.ref(reached)
        assert ref is not None, "it was reached"
        return ref

    # ------------------------------------------------------------ hearing, in the thread of the line

    def _heard(self, number: int, message: to_training.ToTraining) -> None:
        match message:
            case to_training.Reply(value=value):
                self._answered(number, value)
            case to_training.Failed(failure=failure):
                self._settle(number, error=unpacked(failure))
            case to_training.Facts():
                self._facts = message
            case to_training.Told(kind=kind, fields=fields):
                self._guarded(lambda: self._tell(kind, fields))
            case to_training.Restarted():
                self._rounds[number].restarted(message)
            case to_training.Progress(start=start, stop=stop):
                self._rounds[number].progress(start, stop)
            case to_training.Over():
                self._questions.holds.pop(number, None)
                self._rounds.pop(number).over()
            case to_training.Complete(request=request):
                self._rounds[request].complete(lambda digest: self._questions.answer(number, digest))
            case _ if (told := news.unpacked(message)) is not None:
                self._publish(told)
            case _:
                self._questions.put(number, message)

    def _answered(self, number: int, value: msgspec.Raw) -> None:
        request = self._requests[number]
        try:
            if request.last is not None:
                request.last()
            found = None if request.kind is None else msgspec.msgpack.decode(value, type=request.kind)
        except Exception as error:
            self._settle(number, error=error)
        else:
            self._settle(number, found)

    def _settle(self, number: int, value: Any = None, error: Exception | None = None) -> None:
        with self._lock:
            request = self._requests.pop(number)
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
            if error is None:
                request.future.set_result(value)
            else:
                self._questions.receivers.pop(number, None)
                request.future.set_exception(error)

    def _publish(self, told: News) -> None:
        for subscriber in self._subscribers:
            self._guarded(lambda subscriber=subscriber: subscriber(told))  # type: ignore[misc]

    def _guarded(self, tell: Callable[[], object]) -> None:
        """Whoever listens must not be able to break the line."""
        try:
            tell()
        except Exception:
            _log.exception("a listener failed on what its peer told")

    def _over(self, error: PeerClosed) -> None:
        """The process has ended."""
        with self._lock:
            self._error = error
            requests, self._requests = self._requests, {}
        for round_ in self._rounds.values():
            self._guarded(round_.over)
        for request in requests.values():
            with contextlib.suppress(InvalidStateError):
                request.future.set_exception(error)
        self._publish(Ended(error))
