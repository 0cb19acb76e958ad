"""A peer in a process of its own: a training program that keeps its interpreter lock to itself cannot starve it.

See `handle.Handle` for what each method does. Whatever waits here ends when the process does, with a `PeerClosed` that
says how it ended.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ictp2p.concurrency import logs
from ictp2p.concurrency.threads import Threads
from ictp2p.config import Config
from ictp2p.errors import ConfigError, PeerClosed
from ictp2p.handle import CLOSING, Attempts, Ended, EventCallback, News, Subscriber, Where, news, to_peer, to_training
from ictp2p.handle.failures import silent, unpacked
from ictp2p.handle.line import Line
from ictp2p.handle.memory import Arena, check_shared
from ictp2p.handle.questions import Questions
from ictp2p.handle.requests import Requests
from ictp2p.handle.staging import StagedRound
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.mesh import Receiver, RoundRequest
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Generation
from ictp2p.sync.values import Close, Open, StateRef
from ictp2p.types import Address, ClusterId, PeerId

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState

T = TypeVar("T")
_log = logging.getLogger(__name__)


def _check(config: Config) -> None:
    """See that a peer of this configuration can live in another process here."""
    check_shared()
    try:
        (config.data_dir or "").encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"data_dir {config.data_dir!r} is not valid with isolation = 'process': its name is not UTF-8, as what the "
            "two processes say to each other is; use 'thread', or another folder"
        ) from None


class ProcessHandle:
    """See `handle.Handle`.

    Args:
        config: of the peer.
        tell: given its events.

    Raises:
        ConfigError: two processes cannot share memory here, or the name of the data folder is not text.
        StateError: the data folder is in use by another process, or corrupt.
        PeerClosed: the process ended before there was a peer in it.
    """

    def __init__(self, config: Config, tell: EventCallback) -> None:
        _check(config)
        self.config = config
        self.threads = Threads()
        self._tell = tell
        self._facts = to_training.Facts()
        self._subscribers: list[Subscriber] = []
        self._requests = Requests(self._say, lambda number: self.line.send(number, to_peer.Cancel()))
        self._rounds: dict[int, StagedRound] = {}
        self._where: Where | None = None
        self._said: dict[type, Any] = {}
        self._held: torch.Tensor | None = None
        self.line = Line(f"ictp2p {config.cluster}", self._heard, self._over)
        self._arena = Arena(
            lambda number, size, descriptor: self.line.send(0, to_peer.Map(number, size), descriptor),
            lambda number: self.line.send(0, to_peer.Unmap(number)),
            self.threads,
        )
        try:
            self._questions = Questions(self._arena, self._say, self.line.flush)
        except BaseException:  # there is no other thread to be had, say
            self.line.close()
            raise
        try:
            self.id = PeerId(self._ask(to_peer.Begin(config), str))
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
        if not self._facts.address:
            raise PeerClosed("the peer is not running yet: start it, and wait until it has started")
        return Address.parse(self._facts.address)

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

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh the chain goes back to."""
        return self._facts.lineage

    def clock(self) -> float:
        """Monotonic seconds: one clock for all processes of a machine."""
        return time.monotonic()

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Join the mesh."""
        self._ask(to_peer.Start(), None)

    def hand_over(self) -> Future[None]:
        """Have others hold the agreed state."""
        return self._requests.ask(to_peer.HandOver(), None)

    def leave(self) -> None:
        """Leave the mesh politely; a process that is gone has left.

        Raises:
            PeerClosed: the process ended meanwhile, or had to be killed, for it did not answer.
        """
        if self._requests.error is None:
            with self._closing("leave"):
                self._ask(to_peer.Leave(), None)

    def close(self) -> None:
        """End the process."""
        self.line.close()  # first: that the memory is given back need be said to nobody then
        self._arena.close()
        self._questions.close()
        self._held = None

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have all later news given to `subscriber`."""
        self._subscribers.append(subscriber)

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for an answer."""
        if not future.done():
            self.line.check_waits_elsewhere()
        try:
            return future.result(timeout)
        except CancelledError:
            raise PeerClosed("the peer was closed") from None
        finally:
            del future  # as in `LoopThread.wait`

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

    def wants(self, ready: bool, device: Device, calls: bool = False) -> None:
        """Say whether a training thread wants into the cluster's group."""
        self._ask(to_peer.Wants(ready, device, calls), None)

    def wants_out(self, device: Device) -> None:
        """Say that none wants into it any more."""
        self._requests.ask(to_peer.Wants(False, device, False), None)
        told = self._requests.ask(to_peer.SetTraining(False), None)
        with contextlib.suppress(TimeoutError):
            self.wait(told, self.config.global_timeouts.connect)

    def attends(self, stage: Stage, generation: Generation) -> None:
        """What the training thread is at: it waits for a later roster, meets the others of one, or yields to them."""
        self._ask(to_peer.Attends(stage, generation), None)

    def boundary(self, step: int) -> None:
        """Everybody stands at a step boundary."""
        self._ask(to_peer.Boundary(step), None)

    def failed(self, generation: Generation, breach: Breach) -> None:
        """The group of that generation broke here."""
        self._ask(to_peer.GroupFailed(generation, breach), None)

    # ------------------------------------------------------------ the state

    def set_training(self, training: bool) -> None:
        """Say whether rounds should wait for this cluster."""
        self._ask(to_peer.SetTraining(training), None)

    def offer(self, digest: bytes) -> None:
        """Offer a state to begin with."""
        self._ask(to_peer.Offer(digest), None)

    def serve_state(self, state: GlobalState) -> None:
        """Answer other peers' questions for `state` from now on."""
        self._questions.state = state
        self._ask(to_peer.Waiting(), tuple[bool, str])  # once this is answered, the peer has been told of the state

    def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
        """Receive an agreed state."""
        number, receivers = self._requests.number(), self._questions.receivers
        receivers[number] = state
        message = to_peer.FetchState(ref, state.own)
        return self._requests.ask(message, None, number, after=lambda: receivers.pop(number))

    # ------------------------------------------------------------ rounds

    def reduce(self, request: RoundRequest, attempts: Attempts) -> Future[Outcome]:
        """Bring a contribution. What the peer cannot reach is copied to where it can."""
        number = self._requests.number()
        inputs = self._arena.reached(request.inputs, filled=True)
        outputs = self._arena.reached(request.outputs, filled=False)
        self._rounds[number] = StagedRound(attempts, request.outputs, outputs, inputs)
        self._questions.holds[number] = request.holds
        message = to_peer.Reduce(
            request.spec,
            request.base,
            request.weight,
            self._arena.refs(inputs),
            self._arena.refs(outputs),
            request.patient,
            request.slack,
            request.newcomer,
            request.note,
            request.among,
        )
        try:
            return self._requests.ask(message, Outcome, number)
        except BaseException:  # the peer never hears of it, and says nothing more of it
            self._rounds.pop(number, None)
            self._questions.holds.pop(number, None)
            raise

    def give_up(self) -> None:
        """Fail the contribution that stands, before leaving; with the process gone, none does."""
        with contextlib.suppress(PeerClosed), self._closing("give up its calls"):
            self._ask(to_peer.GiveUp(), None)

    def waiting(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for."""
        found: tuple[bool, str] = self._soon(to_peer.Waiting(), tuple[bool, str])
        return found

    def taking_part(self) -> list[ClusterId]:
        """The clusters that rounds wait for."""
        found: list[ClusterId] = self._soon(to_peer.TakingPart(), list[ClusterId])
        return found

    # ------------------------------------------------------------ results of calls, and messages

    def empty(self, nbytes: int) -> torch.Tensor:
        """Flat bytes in shared memory."""
        return self._arena.empty(nbytes)

    def hold_answer(self, digest: bytes, result: torch.Tensor) -> None:
        """Keep a result for whoever asks."""
        (reached,) = self._arena.reached([result], filled=True)
        self._say(0, to_peer.HoldAnswer(digest, self._arena.placed(reached)))
        self._held = reached  # in place of the one before, whose memory may be used again

    def fetch_answer(self, opened: Open, close: Close, result: torch.Tensor) -> Future[None]:
        """Have the result of a committed round."""
        (reached,) = self._arena.reached([result], filled=False)

        def deliver() -> None:
            if reached is not result:
                result.copy_(reached)

        message = to_peer.FetchAnswer(opened, close, self._arena.placed(reached))
        return self._requests.ask(message, None, keeps=reached, last=deliver)

    def send(self, body: torch.Tensor, shapes: bytes, target: ClusterId, tag: int, timeout: float) -> Future[None]:
        """Offer a message."""
        (reached,) = self._arena.reached([body], filled=True)
        message = to_peer.Post(self._arena.placed(reached), shapes, target, tag, timeout)
        return self._requests.ask(message, None, keeps=reached)

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
        message = to_peer.Receive(self._arena.placed(room), shapes, source, tag, timeout)
        return self._requests.ask(message, None, keeps=room, last=lambda: deliver(room))

    # ------------------------------------------------------------ asking

    def _closing(self, what: str) -> AbstractContextManager[None]:
        """Ask something before the end; whoever wants to end does not wait for a process that is stopped."""
        return self.line.limited(self.config.global_timeouts.connect + CLOSING, what)

    def _soon(self, message: to_peer.ToPeer, kind: Any) -> Any:
        """Ask what any peer answers at once that does not stand still."""
        seconds = self.config.global_timeouts.connect
        try:
            return self._ask(message, kind, seconds)
        except TimeoutError:
            raise silent(seconds) from None

    def _ask(self, message: to_peer.ToPeer, kind: Any, seconds: float | None = None) -> Any:
        """Ask, and wait for the answer, no longer than that; an interrupt of the waiting thread takes it back."""
        future = self._requests.ask(message, kind)
        try:
            return self.wait(future, seconds)
        except BaseException:
            future.cancel()
            raise
        finally:
            del future

    def _say(self, number: int, message: to_peer.ToPeer) -> None:
        """Say it, after whatever has changed of what the peer is to know."""
        if self._where is not None and type(message) is not to_peer.Begin:
            state, inside = self._where()
            self._first(to_peer.Where(state, dict(inside)))
        if self._questions.state is not None:
            served = self._questions.state
            self._first(to_peer.Holds(*served.held(), served.may_be_agreed))
        self.line.send(number, message)

    def _first(self, message: to_peer.ToPeer) -> None:
        if self._said.get(type(message)) != message:
            self.line.send(0, message)
            self._said[type(message)] = message  # now, for an interrupt may come before: twice is as good as once

    # ------------------------------------------------------------ hearing, in the thread of the line

    def _heard(self, number: int, message: to_training.ToTraining) -> None:
        match message:
            case to_training.Reply(value=value):
                self._requests.answered(number, value)
            case to_training.Failed(failure=failure) if not number:  # nobody waits for what was only said
                raise unpacked(failure)
            case to_training.Failed(failure=failure):
                self._requests.failed(number, unpacked(failure))
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

    def _publish(self, told: News) -> None:
        for subscriber in self._subscribers:
            self._guarded(lambda subscriber=subscriber: subscriber(told))  # type: ignore[misc]

    def _guarded(self, tell: Callable[[], object]) -> None:
        """Whoever listens must not be able to break the line."""
        try:
            tell()
        except BaseException:  # `sys.exit` as well: it would end the thread that reads
            logs.exception(_log, "a listener failed on what its peer told")

    def _over(self, error: PeerClosed) -> None:
        """The process has ended."""
        self._requests.refuse(error)
        for round_ in tuple(self._rounds.values()):  # in one step: who brings another one, in vain, may do so now
            self._guarded(round_.over)
        self._requests.end(error)
        self._publish(Ended(error))
