"""The peer as its training program holds it: one narrow interface, wherever the peer lives.

Tensors, the process group and the policies belong to the training program; sockets, machines and agreement to the
peer. Between the two pass plain values, tensors and callbacks, and nothing else: no object of one side is reached into
by the other. So the peer may run on an event loop in a thread (`handle.thread`) or in a process of its own
(`handle.process`), and nobody above `Handle` can tell which. `service` is the other end of both: what a peer does for
whoever trains with it, on its loop.

What happens without being asked for comes as news, in the order in which the machines told it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ictp2p.concurrency.threads import Threads
from ictp2p.config import Config
from ictp2p.errors import PeerClosed
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.mesh import Receiver, RoundRequest
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Generation, Roster
from ictp2p.sync.rounds.notices import StateAdvanced
from ictp2p.sync.values import Close, Open, Participant, StateRef
from ictp2p.types import Address, ClusterId, PeerId

if TYPE_CHECKING:
    from torch import Tensor

    from ictp2p.runtime.reduction import Outcome
    from ictp2p.sync.state.global_state import GlobalState

T = TypeVar("T")
EventCallback = Callable[[str, Mapping[str, Any]], None]
"""Takes the kind of an event and its particulars."""
Where = Callable[[], tuple[str, Mapping[str, str]]]
"""Says where the worker is in its life: at the top level, and by table inside."""

CLOSING = 30.0
"""Seconds that a peer has to leave, beyond those that it waits for others; it takes moments."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The machine is about to be told whether a training thread wants a group: earlier news did not know that."""

    ready: bool


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A roster that this worker is in."""

    roster: Roster
    well: tuple[str, ...]
    """The workers of the cluster that are alive and not suspected."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A roster that this worker is not in."""

    roster: Roster


@dataclass(frozen=True, slots=True)
class NewcomerWaits:
    """At the leader: somebody wants into the group."""


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker of this cluster is dead, or has left."""

    worker: str
    status: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The peer is gone, though nobody closed it."""

    error: PeerClosed


News = Asking | Regrouped | LeftOut | NewcomerWaits | WorkerGone | StateAdvanced | Decided | Ended
Subscriber = Callable[[News], None]


class Attempts(Protocol):
    """Follows a contribution through the attempts at its round. Called by the peer's thread: to be quick."""

    def restarted(self, attempt: int, parts: Sequence[Participant]) -> None:
        """An attempt begins, with these participants: what was reported of an earlier one is void."""
        ...

    def progress(self, start: int, stop: int) -> None:
        """The elements `[start, stop)` of the outputs hold their result."""
        ...

    def complete(self, answer: Callable[[bytes], None]) -> None:
        """All outputs do. `answer`, from any thread, takes the digest to vote for."""
        ...

    def over(self) -> None:
        """Nothing refers to the tensors any more, and nothing more will be told."""
        ...


class Handle(Protocol):
    """A peer, for its training program. From any thread but the peer's; what the peer answers with is raised as it is.

    Whatever asks the peer raises `PeerClosed` once the peer has ended. A peer that stands still (its process is
    stopped, or its disk) answers nobody, and what asks it waits until it goes on. So what is asked when the deadline of
    a call is over, and what ends the peer, have deadlines of their own.
    """

    @property
    def threads(self) -> Threads:
        """What training threads wait with."""
        ...

    @property
    def left_behind(self) -> bool:
        """Whether this process was forked from the one that the handle was made in."""
        ...

    @property
    def config(self) -> Config:
        """What the peer was made with."""
        ...

    @property
    def id(self) -> PeerId:
        """The peer's id."""
        ...

    # What may be read at any time without asking.

    @property
    def address(self) -> Address:
        """Where it listens, once it is started."""
        ...

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster."""
        ...

    @property
    def clusters(self) -> int:
        """How many clusters are alive."""
        ...

    @property
    def agreed(self) -> StateRef | None:
        """The agreed global state, if a chain is known."""
        ...

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh the chain goes back to; empty if none is known."""
        ...

    def clock(self) -> float:
        """Monotonic seconds."""
        ...

    # Its life.

    def start(self) -> None:
        """Join the mesh; see `AsyncPeer.start`."""
        ...

    def hand_over(self) -> Future[None]:
        """Have others hold the agreed state before this peer leaves; see `AsyncPeer.hand_over`."""
        ...

    def leave(self) -> None:
        """Leave the mesh politely. Raises `PeerClosed` if the peer stands still, or ends meanwhile."""
        ...

    def close(self) -> None:
        """End wherever it lives, and every wait with `PeerClosed`."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have all later news given to `subscriber`, on a thread of the peer's: to be quick."""
        ...

    def wait(self, future: Future[T], timeout: float | None = None) -> T:
        """Wait for an answer. Raises `TimeoutError` after so many seconds."""
        ...

    # What it sees, and is told.

    def view(self, name: str) -> Any:
        """Plain data for people: one of `service.VIEWS`."""
        ...

    def event(self, kind: str, /, **fields: Any) -> None:
        """Note something for telemetry; does not wait."""
        ...

    def show(self, where: Where) -> None:
        """Have the peer's status say where the worker is in its life."""
        ...

    # Rosters.

    def equip(self, device: Device) -> None:
        """Say what the training thread computes on."""
        ...

    def wants(self, ready: bool, device: Device, calls: bool = False) -> None:
        """Say whether a training thread wants into the cluster's group. `Asking` goes ahead of what follows.

        `calls`: one of those that make collective calls, and not of a policy; never are both in one.
        """
        ...

    def wants_out(self, device: Device) -> None:
        """Say that no training thread wants into the group any more, and so that rounds need not wait either.

        A peer that stands still is waited for no longer than `global_timeouts.connect`; it hears it once it goes on.
        """
        ...

    def attends(self, stage: Stage, generation: Generation) -> None:
        """What the training thread is at: it waits for a later roster, meets the others of one, or yields to them."""
        ...

    def boundary(self, step: int) -> None:
        """At the leader: everybody stands before inner step `step`."""
        ...

    def failed(self, generation: Generation, breach: Breach) -> None:
        """The group of that generation broke here."""
        ...

    # The state.

    def set_training(self, training: bool) -> None:
        """Say whether rounds should wait for this cluster."""
        ...

    def offer(self, digest: bytes) -> None:
        """Offer a state to begin with."""
        ...

    def serve_state(self, state: GlobalState) -> None:
        """Answer other peers' questions for `state` from now on."""
        ...

    def fetch_state(self, ref: StateRef, state: Receiver) -> Future[None]:
        """Receive an agreed state; see `AsyncPeer.fetch_state`."""
        ...

    # Rounds.

    def reduce(self, request: RoundRequest, attempts: Attempts) -> Future[Outcome]:
        """Bring a contribution; see `Participation.reduce`. To cancel the future withdraws it."""
        ...

    def give_up(self) -> None:
        """Fail the contribution that stands with `PeerClosed`, unless the peer stands still."""
        ...

    def waiting(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for. Raises `RoundTimeout` if the peer stands still."""
        ...

    def taking_part(self) -> list[ClusterId]:
        """The clusters that rounds wait for. Raises `RoundTimeout` if the peer stands still."""
        ...

    # Results of calls, and messages.

    def empty(self, nbytes: int) -> Tensor:
        """Flat bytes, not initialised, that the peer reaches without a copy."""
        ...

    def hold_answer(self, digest: bytes, result: Tensor) -> None:
        """Keep a result, which nobody writes to any more, for whoever asks, in place of the one before."""
        ...

    def fetch_answer(self, opened: Open, close: Close, result: Tensor) -> Future[None]:
        """Have the result of a committed round in `result`. Raises `RoundMissed`."""
        ...

    def send(self, body: Tensor, shapes: bytes, target: ClusterId, tag: int, timeout: float) -> Future[None]:
        """Offer a message; see `Messages.send`."""
        ...

    def receive(
        self,
        nbytes: int,
        shapes: bytes,
        source: ClusterId,
        tag: int,
        timeout: float,
        deliver: Callable[[Tensor], None],
    ) -> Future[None]:
        """Ask for a message; its bytes go to `deliver`, on the peer's thread. See `Messages.receive`."""
        ...


__all__ = [
    "Asking",
    "Attempts",
    "Decided",
    "Ended",
    "EventCallback",
    "Handle",
    "LeftOut",
    "NewcomerWaits",
    "News",
    "Regrouped",
    "StateAdvanced",
    "Subscriber",
    "Where",
    "WorkerGone",
]
