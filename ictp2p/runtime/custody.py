"""A state that is kept for others, so that whoever alone holds what was agreed on may leave.

A version lives in the memory of those who hold it. Where a round was of one cluster alone (`AsyncDiLoCo`, a low
quorum), the others come for its result when their phase ends. If that cluster left before, as it does after its last
round, it would take the version along: everybody would wait for it, for as long as `restore_after`, and then go back.
So who leaves asks another leader first (`handover`), which answers once it holds that version: as it does already, or
since it has fetched it. In the terms of delay-tolerant networks that is a transfer of custody (RFC 5050, §5.10: who
accepts a bundle answers for it from then on), in those of Dynamo a hinted handoff (DeCandia et al., 2007, §4.6).

The peer does that, beside a training thread that knows nothing of it. What is kept lies in memory beside the state of
this worker, and is provided to whoever asks, as that is. It is dropped once the worker has come as far itself, which
finds it here and has nothing to fetch. Who holds no state of its own keeps none: it does not know what one takes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import msgspec

from ictp2p.bulk import Bulk
from ictp2p.concurrency.blocking import blocking
from ictp2p.errors import RemoteProtocolError, StateError
from ictp2p.runtime.state_fetch import fetch_state
from ictp2p.runtime.state_provider import Provider
from ictp2p.sync.rounds.restore import NOTHING, Held
from ictp2p.sync.values import Count, Digest, StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId
from ictp2p.wire import MALFORMED

if TYPE_CHECKING:
    from ictp2p.sync.mesh import Receiver
    from ictp2p.sync.state.global_state import GlobalState

KIND = "custody"
KEPT, LEAVING = b"k", b"l"
"""Answers: the state is held here; whoever was asked is about to leave, too."""


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Hold this version, which the sender has."""

    version: Count
    digest: Digest


class Custody:
    """What a peer provides to others: its own worker's state, and a newer one that it keeps for them.

    Args:
        bulk: carries the question, and the state.
        telemetry: told what is kept.
        clock: monotonic seconds.
    """

    def __init__(self, bulk: Bulk, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        self._bulk, self._telemetry, self._clock = bulk, telemetry, clock
        self.own: Provider | None = None
        """The worker's own state."""
        self.leaving = False
        """Whether this peer is about to leave: it keeps nothing more for anybody."""
        self._kept: GlobalState | None = None
        bulk.serve(KIND, self._asked, 1)

    @property
    def keeps(self) -> bool:
        """Whether there is a state here that the worker has not come for."""
        return self._kept is not None

    # ------------------------------------------------------------ what others can have (`state_provider.Provider`)

    def held(self) -> Held:
        """Version and digest of the newest that is here."""
        own = NOTHING if self.own is None else self.own.held()
        if self._kept is not None:
            self.reached(own[0])
        return own if self._kept is None else self._kept.held()

    def sealed(self) -> bytes:
        """Digest of what the worker itself has whole and has not taken over; see `restore.Stock`."""
        return b"" if self.own is None else self.own.sealed()

    async def manifest(self, digest: bytes) -> bytes:
        """The manifest of a state that is here, encoded. Raises `StateError` if it is not."""
        kept = self._kept_as(digest)
        return await self._own().manifest(digest) if kept is None else kept.manifest(digest)

    async def chunk(self, digest: bytes, index: int) -> bytes:
        """One chunk of a state that is here. Raises `StateError`."""
        kept = self._kept_as(digest)
        return await self._own().chunk(digest, index) if kept is None else kept.chunk(digest, index)

    async def room(self) -> GlobalState:
        """Room for another version of the worker's own state."""
        return await self._own().room()

    # ------------------------------------------------------------ whose worker comes for it

    async def hand_on(self, ref: StateRef, receiver: Receiver) -> bool:
        """Have what is kept here received by the worker; say whether it was that state."""
        kept = self._kept_as(ref.digest)
        if kept is None:
            return False
        for index in await blocking(receiver.expect, kept.manifest(ref.digest), ref.digest):
            receiver.take(index, memoryview(await blocking(kept.chunk, ref.digest, index)))
        await blocking(receiver.verified, ref.version)
        return True

    def reached(self, version: int) -> None:
        """The worker holds that version itself: nothing older need be kept."""
        if self._kept is not None and self._kept.version <= version:
            self._kept = None

    # ------------------------------------------------------------ who is asked

    async def _asked(self, giver: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        try:
            wish = msgspec.msgpack.decode(payload, type=Wish)
        except MALFORMED as error:
            raise RemoteProtocolError(f"a wish for custody does not decode: {error}") from error
        if self.leaving:
            yield LEAVING
            return
        if not await self._has(wish):
            await self._take(giver, wish)
        yield KEPT

    async def _has(self, wish: Wish) -> bool:
        """Whether that version, or a newer one, is here; be it sealed, and not yet landed."""
        if self.held()[0] >= wish.version:
            return True
        try:
            return bool(await self.manifest(wish.digest))
        except StateError:
            return False

    async def _take(self, giver: PeerId, wish: Wish) -> None:
        """Fetch it from who leaves, and from nobody else: no other has it."""
        room = await self._own().room()
        ref = StateRef(wish.version, wish.digest, (giver,))
        fetched = await fetch_state(self._bulk, ref, room, self._telemetry, self._clock)
        room.release()
        if not await self._has(wish):  # as it may by now
            self._kept = room
            self._telemetry.event("state_kept", version=wish.version, giver=giver, seconds=fetched.seconds)

    def _kept_as(self, digest: bytes) -> GlobalState | None:
        return self._kept if self._kept is not None and self._kept.digest == digest else None

    def _own(self) -> Provider:
        if self.own is None:
            raise StateError("this peer holds no state")
        return self.own
