"""The seam between a collective and the connections under it, as protocols: neither imports the other.

A collective *attaches* to its neighbours under a tag. The connections then ask it where an arriving body goes,
tell it when one is whole, and pull what is to be sent when they can take more. So nothing is queued twice, and
a test may run a collective over a fake of twenty lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ictp2p.collectives.running.windows import ROOM_BYTES
from ictp2p.errors import ConnectionLost, RoundError, RoundTimeout
from ictp2p.types import PeerId

DIFFER = " (do the tensors differ in shape or type?)"
"""What is asked where a part has another size than what it should be added to."""
EAGER_BYTES = 64 * 1024
"""Up to this size one chunk may go to any neighbour that has not begun; it is kept there, or asked for again."""
EARLY_BYTES = 8 * 1024 * 1024
"""Over a long way as many chunks may as leave in a round trip by the plan, up to this: 67 ms of a Gbit/s."""
EARLY_CHUNKS = 64
"""And no more chunks than this."""


@dataclass(frozen=True, slots=True)
class RoundTag:
    """What fences the frames of one attempt from all others: nothing with another tag is ever accepted."""

    lineage: bytes
    round: int
    attempt: int
    plan_digest: bytes
    call: str = ""
    """What is called, in words that all participants have in common; of the tag itself it is no part."""
    beside: tuple[PeerId, ...] = ()
    """Neighbours in other attempts that are parts of the same call, under the same tag."""

    def wire(self) -> bytes:
        """Hash the tag to the 16 bytes that every frame carries."""
        numbers = self.round.to_bytes(8, "big") + self.attempt.to_bytes(4, "big")
        return hashlib.blake2b(
            self.lineage + numbers + self.plan_digest, digest_size=16, person=b"ictp2p-round"
        ).digest()


class Outgoing(msgspec.Struct, frozen=True):
    """A chunk to send: its place, and its bytes in order, or how they are made."""

    partial: bool
    share: int
    chunk: int
    views: Sequence[bytes | memoryview] = ()
    stable: bool = False
    """Whether the memory keeps its content until the collective ends; else it is copied before it is queued."""
    size: int = 0
    """Bytes, of what is made."""
    make: Callable[[memoryview], None] | None = None
    """Makes the bytes in the memory that they leave from: once, and before anything else is asked of the receiver."""

    def kept(self) -> Outgoing:
        """Give the same chunk with bytes that stay what they are, made or copied now if need be."""
        if self.stable:
            return self
        body = memoryview(bytearray(self.size) if self.make else b"".join(self.views))
        if self.make is not None:
            self.make(body)
        return Outgoing(self.partial, self.share, self.chunk, [body], stable=True)


class ParticipantLost(ConnectionLost):
    """The connection to a participant ended, stalled, or could not be made; `suspects` names who is to blame."""

    def __init__(self, message: str, suspects: Sequence[PeerId]) -> None:
        super().__init__(message)
        self.suspects = tuple(suspects)


class CollectiveTimeout(RoundTimeout):
    """A collective did not finish before its deadline; `suspects` names who was waited for."""

    def __init__(self, message: str, suspects: Sequence[PeerId]) -> None:
        super().__init__(message)
        self.suspects = tuple(suspects)


class CallsDiffer(RoundError):
    """Participants called different things under one tag; `suspects` names who differs from us, as far as we know."""

    def __init__(self, message: str, suspects: Sequence[PeerId]) -> None:
        super().__init__(message)
        self.suspects = tuple(suspects)


class Receiver(Protocol):
    """A collective, as its connections see it. Called on the event loop; must not block.

    `destination` and `arrived` raise `RemoteProtocolError` where a chunk does not fit; `lost` follows. After whatever
    else they or `next_frame` raise `broke` does.
    """

    def begun(self, peer: PeerId, again: int = 0) -> None:
        """`peer` has attached under the same tag, and has dropped the first `again` chunks that it was sent before."""
        ...

    def destination(
        self, peer: PeerId, partial: bool, share: int, chunk: int, size: int, *, passing: bool = False
    ) -> memoryview | list[memoryview] | None:
        """Say where the `size` bytes of this chunk may land, perhaps in several pieces; None: anywhere.

        `passing`: they are in memory already, where they stand until `arrived` has returned.
        """
        ...

    def arrived(self, peer: PeerId, partial: bool, share: int, chunk: int, body: memoryview) -> None:
        """All bytes are in `body`, which is what `destination` gave, or is only valid during this call.

        Empty: they are in the several pieces that it gave; a connection that cannot read into these gives a body.
        """
        ...

    def next_frame(self, peer: PeerId) -> Outgoing | None:
        """Give the next chunk for `peer`, or None until `Attachment.kick`."""
        ...

    def waiting_on(self, peer: PeerId) -> bool:
        """Say whether `peer` owes us something, so that its silence is a fault."""
        ...

    def owing_to(self, peer: PeerId) -> bool:
        """Say whether we have to send `peer` anything yet."""
        ...

    def lost(self, peer: PeerId, reason: str, suspects: Sequence[PeerId]) -> None:
        """The connection to `peer` is gone, or `peer` gave the collective up because of `suspects`."""
        ...

    def broke(self, error: Exception) -> None:
        """What we do ourselves has failed: end with this error."""
        ...


class Attachment(Protocol):
    """A collective's hold on its connections."""

    def kick(self, peer: PeerId) -> None:
        """Ask the connection to `peer` to pull again."""
        ...

    def ahead(self, peer: PeerId) -> int | None:
        """Give the bytes that suffice on the way to `peer` to keep the link busy; None: not known."""
        ...

    def early(self, peer: PeerId) -> float:
        """Give the seconds for which chunks should go to `peer` before it has begun; 0 if only what may to anybody."""
        ...

    def received(self, peer: PeerId) -> int:
        """Count the bytes that `peer` has brought, of this or of anything else."""
        ...

    def connections(self, peer: PeerId) -> int:
        """Count the connections over which chunks go to `peer`."""
        ...

    async def flushed(self, timeout: float) -> None:
        """Wait until the kernel has taken everything, so that no connection refers to the collective's memory.

        Raises:
            TimeoutError: it has not within `timeout` seconds.
        """
        ...

    def detach(self) -> None:
        """Let go: later frames of the tag are dropped, and no memory of the collective is touched again."""
        ...

    def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> Coroutine[Any, Any, None]:
        """Tell all neighbours that the collective has failed here, detach, and let go of its memory.

        `differ`: because participants call different things.
        """
        ...


class Slots:
    """Buffers for partials, kept from one collective to the next: first touch of fresh memory costs 0.44 s per GB.

    The one that was given back last is lent first, while it is warm in the cache.

    Args:
        keep: bytes that are kept at most.
        limit: bytes that a plan may ask us to lend for its contributions.
    """

    def __init__(self, keep: int, limit: int = ROOM_BYTES) -> None:
        self.limit = limit
        self._keep = keep
        self._free: list[bytearray] = []
        self._held = 0

    def borrow(self, size: int) -> bytearray:
        """Lend a buffer of at least `size` bytes."""
        while self._free:
            slot = self._free.pop()
            self._held -= len(slot)
            if size <= len(slot):
                return slot
        return bytearray(size)

    def give_back(self, slot: bytearray) -> None:
        """Take a buffer back, and keep it if no more than the limit are kept."""
        if self._held + len(slot) <= self._keep:
            self._free.append(slot)
            self._held += len(slot)


class Links(Protocol):
    """What gives a collective its connections: `Bulk`, or a fake."""

    slots: Slots

    async def attach(
        self,
        tag: bytes,
        receiver: Receiver,
        peers: Sequence[PeerId],
        *,
        timeout: float,
        rates: Sequence[float | None] | None = None,
        whole: bytes | None = None,
        call: str = "",
        beside: Collection[PeerId] = (),
    ) -> Attachment:
        """Connect to all `peers` and tell them that we have begun `tag`; pace each at its rate in bytes/s.

        `whole`, of at most `EAGER_BYTES`, goes along as the first and only chunk, a contribution. Who has not begun
        keeps it, or drops it and says so when it begins: then it is asked for again (`Receiver.begun`).

        `call`: what is called. Who calls something else under `tag` breaks it, with `CallsDiffer`: a neighbour, or
        one who takes us for its neighbour and is not ours, nor among those who are so `beside`.

        Raises:
            ParticipantLost: one of them could not be reached within `timeout` seconds.
        """
        ...

    def give_up(self, tag: bytes, reason: str, suspects: Sequence[PeerId] = ()) -> None:
        """Have no part any more in `tag`, which has not begun here: whoever begins it with us is told why."""
        ...
