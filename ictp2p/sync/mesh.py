"""What a synchronization policy needs from the rest of the peer, and nothing more.

Policies are written against these two protocols. `Peer` implements `Mesh` over real sockets; tests implement it with
threads and an exact sum. Everything here is called from the training thread and blocks it; whatever blocks ends with
a typed error by a deadline of the implementation, with `PeerClosed` once the peer closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ictp2p.concurrency.threads import Thread
from ictp2p.fsm import Table
from ictp2p.sync.rosters.roster import Generation, Roster
from ictp2p.sync.state.manifest import Manifest
from ictp2p.sync.values import Participant, Spec, StateRef
from ictp2p.types import ClusterId

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ictp2p.sync.state.global_state import GlobalState


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """One cluster's contribution to an outer round, brought by its leader.

    The callbacks are called in the thread that called `outer_round`, never two at once. An exception that one of them
    raises withdraws the contribution and leaves `outer_round` as it is.
    """

    spec: Spec
    base: StateRef
    """The committed state that the contribution starts from: version and digest count."""
    weight: float
    """Share in the average: tokens, or whatever `Policy.weight` counts. Positive."""
    inputs: Sequence[Tensor]
    """Flat, contiguous, on the CPU. Only read, and the same for every attempt."""
    outputs: Sequence[Tensor]
    """Where the average goes, of the shapes of `inputs`. Its content counts only after a commit."""
    finish: Callable[[], bytes]
    """Called when `outputs` are complete; gives the digest to vote for."""
    progress: Callable[[int, int], None]
    """Called when elements `[start, stop)` of the concatenated `outputs` have arrived for good in this attempt.

    No element is told twice in it."""
    restarted: Callable[[int, Sequence[Participant]], None]
    """Called when an attempt, by number, begins, with who takes part: nothing of an earlier one counts any more."""
    idle: Callable[[], None]
    """Called at least once a second while nothing else is, so that the followers see that their leader is alive."""
    patient: bool = True
    """Whether to wait for a quorum however long it takes. If not, `NoQuorum` once it has been missed for a while."""
    note: bytes = b""
    """For the other participants of the round."""
    among: tuple[ClusterId, ...] = ()
    """Who has to take part, in this order, for anything to move; an attempt of others commits as empty. (): whoever."""
    slack: float = 0.0
    """Seconds by which the round may begin later than now, for those who are late, and nobody here waits for it."""
    newcomer: bool = False
    """Whether this cluster has been in no round yet: where others are at another call it comes to theirs."""
    holds: Callable[[bytes], Sequence[Tensor]] = lambda key: ()
    """Where modules are averaged: what is agreed of one, by its key, flat; to be copied to whoever lacks it."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round that was committed.

    If `state.digest` is what `finish` gave last, the outputs hold the average. Else the mesh committed without this
    worker's seeing it: the state is to be fetched.
    """

    state: StateRef
    """The agreed state after the round."""
    mine: int
    """Which versions up to that state hold this cluster's contributions from its `base`; see `Mesh.contributed`.

    Be it through a leader that died since."""
    seconds: float = 0.0
    """From the call to the commit."""
    sent: int = 0
    """Bytes that this peer sent for it."""
    received: int = 0
    """Bytes that this peer received for it."""
    reason: str = ""
    """Why this plan, in words."""


class Receiver(Protocol):
    """Where a state goes that is fetched: see `GlobalState`, whose methods these are."""

    own: bool
    """Whether every provider holds one of its own: then all of it comes from one of them."""

    @property
    def incoming(self) -> Manifest:
        """The manifest of the state that is expected."""
        ...

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state; say which of its chunks are not here already."""
        ...

    def take(self, index: int, data: memoryview) -> None:
        """Take a chunk of the expected state."""
        ...

    def verified(self, version: int) -> None:
        """Commit the expected state."""
        ...


class Group(Protocol):
    """One generation of the process group inside the cluster; see `collectives.group.local.LocalGroup`."""

    @property
    def generation(self) -> Generation:
        """Which roster it was built from."""
        ...

    @property
    def members(self) -> tuple[str, ...]:
        """Workers in rank order; rank 0 leads."""
        ...

    @property
    def rank(self) -> int:
        """This worker's place."""
        ...

    @property
    def size(self) -> int:
        """Number of workers."""
        ...

    @property
    def device(self) -> torch.device:
        """Where tensors should lie that are to be summed."""
        ...

    def staging(self, elements: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """A flat tensor of the group's own, on the host by default, the same memory each time."""
        ...

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum a staging tensor in place. Raises `LocalGroupError`."""
        ...

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Copy a staging tensor from one rank to all. Raises `LocalGroupError`."""
        ...

    def all_gather(self, data: bytes) -> list[bytes]:
        """Exchange equally many bytes. Raises `LocalGroupError`."""
        ...

    def abort(self, reason: str) -> None:
        """Break it, from any thread."""
        ...

    def close(self) -> None:
        """Leave it, without blocking."""
        ...


class Mesh(Protocol):
    """The peer, as a policy sees it."""

    @property
    def cluster(self) -> ClusterId:
        """The cluster that this worker belongs to."""
        ...

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh its chain of decisions, and so the versions of the state, go back to."""
        ...

    def roster_ready(self, ready: bool, device: torch.device | None = None) -> None:
        """Say that this training thread wants into (True) or leaves (False) the cluster's group.

        `device` is what it computes on, by default the host: it decides the collective library.
        """
        ...

    def wait_roster(self, newer_than: Generation | None) -> Roster:
        """Wait for a roster that this worker is in, newer than the one given. Raises `PeerClosed`."""
        ...

    def roster_moves(self, generation: Generation) -> bool:
        """Whether to change the group at the next step: at the leader a newcomer waits, or a newer roster is known."""
        ...

    def roster_boundary(self, step: int) -> None:
        """At the leader: everybody stands at the boundary before inner step `step`; make the next roster."""
        ...

    def roster_failed(self, generation: Generation, reason: str) -> None:
        """A collective of that generation broke here."""
        ...

    def open_group(self, roster: Roster) -> Group:
        """Build the group, and keep it: `abort` it when a newer roster arrives, a member dies, or the peer closes.

        Raises `LocalGroupError`, having said nothing to anybody.
        """
        ...

    @property
    def leaves(self) -> bool:
        """Whether this worker was asked to leave.

        Raises:
            PeerClosed: it has left, or cannot go on.
        """
        ...

    def check_leaving(self) -> None:
        """Called now and then while this worker waits for others: see that it may, if it was asked to leave.

        Raises:
            PeerClosed: it has to leave, for no round can come after which it would.
        """
        ...

    def leave_together(self, left: bool | None) -> None:
        """Say whether it may, where that is agreed with the ranks that hold other shards; None where it is not."""
        ...

    def serve_state(self, state: GlobalState) -> None:
        """From now on answer other peers' questions for `state.manifest` and `state.chunk`, from any thread."""
        ...

    def first_state(self, spec: Spec, digest: bytes, idle: Callable[[], None]) -> StateRef:
        """Learn the agreed state; have ours adopted as version 1 if the mesh has none. At the leader only."""
        ...

    def outer_round(self, request: RoundRequest) -> RoundResult:
        """Take part in a round, through as many attempts as it takes.

        Raises `RoundMissed` if the mesh committed rounds of which ours was no part and nothing was contributed,
        `RoundAborted`, `RoundTimeout` or `NoQuorum` if nothing was decided in time, `LocalGroupError` if another worker
        leads this cluster by now and the next group has to find out what became of the round, `PeerClosed`.
        """
        ...

    def decided_state(self) -> StateRef:
        """The newest agreed state that this peer knows of."""
        ...

    def fetch_state(self, ref: StateRef, state: Receiver, idle: Callable[[], None]) -> None:
        """Receive `ref` into the tentative half of `state` and commit it there.

        Raises `StateError` naming the providers, or `MeshMismatch` naming the first difference.
        """
        ...

    def missing_state(self, ref: StateRef, reason: str, idle: Callable[[], None]) -> StateRef:
        """Nobody provides `ref`: wait for another decision, for a while; the agreed state after that."""
        ...

    def contributed(self, state: StateRef, base: int) -> int:
        """Which versions after `base` hold what this cluster brought, bit i the one i before `state`; 0 if none does.

        All of them if nobody can know.
        """
        ...

    def background(self, run: Callable[[], None]) -> Thread:
        """Have something run beside the training thread: it may block, and call `outer_round`."""
        ...

    def clock(self) -> float:
        """Monotonic seconds, as training passes them."""
        ...

    def event(self, kind: str, **fields: object) -> None:
        """Note something for telemetry."""
        ...

    def phase(self, table: Table, trigger: str) -> None:
        """Say what the training thread did, in the words of the tables that the life of a peer runs."""
        ...
