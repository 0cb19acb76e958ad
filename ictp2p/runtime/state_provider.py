"""Serving the committed state over the bulk connections, to whoever asks.

A provider answers chunk by chunk from the state itself and needs no session: a fetch (`state_fetch`) that broke off
goes on anywhere, and one over several connections is to it but more questions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from ictp2p.bulk import Bulk
from ictp2p.errors import RemoteProtocolError, StateError
from ictp2p.sync.rounds.restore import Held
from ictp2p.types import PeerId
from ictp2p.wire import MALFORMED

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState

KIND = "state"
MAX_MANIFEST = 16 << 20
"""Bytes of the longest manifest: chunk digests for half a tebibyte."""


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Chunks of the state with this digest, or its manifest if none are named."""

    digest: bytes
    chunks: tuple[int, ...]


class Provider(Protocol):
    """A state that others can have here."""

    def held(self) -> Held:
        """Its version and digest."""
        ...

    def sealed(self) -> bytes:
        """Digest of the next one, if that is whole and was not taken over; see `restore.Stock`."""
        ...

    async def manifest(self, digest: bytes) -> bytes:
        """Its manifest, encoded. Raises `StateError` if `digest` is not its digest."""
        ...

    async def chunk(self, digest: bytes, index: int) -> bytes:
        """One chunk. Raises `StateError`."""
        ...

    async def room(self) -> GlobalState:
        """Room for another version of it. Raises `StateError` if what it takes is not known."""
        ...


class Here:
    """A state in this process."""

    def __init__(self, state: GlobalState) -> None:
        self._state = state

    def held(self) -> Held:
        """Its version and digest."""
        return self._state.held()

    def sealed(self) -> bytes:
        """Digest of the next one, if that is whole and was not taken over."""
        return self._state.may_be_agreed

    async def manifest(self, digest: bytes) -> bytes:
        """Its manifest."""
        return self._state.manifest(digest)

    async def chunk(self, digest: bytes, index: int) -> bytes:
        """One chunk."""
        return self._state.chunk(digest, index)

    async def room(self) -> GlobalState:
        """Room for another version of it."""
        return self._state.beside()


def serve_state(bulk: Bulk, state: Provider, sends: Callable[[], None] = lambda: None) -> None:
    """Answer other peers' questions about `state` from now on.

    Args:
        bulk: how they ask.
        state: what they have here.
        sends: told of each chunk that is about to leave.
    """

    async def answer(_peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        try:
            question = msgspec.msgpack.decode(payload, type=Question)
        except MALFORMED as error:
            raise RemoteProtocolError(f"a question for state does not decode: {error}") from error
        if not question.chunks:
            manifest = await state.manifest(question.digest)
            if len(manifest) > MAX_MANIFEST:
                raise StateError(f"the state is too large: a manifest of {len(manifest)} bytes exceeds {MAX_MANIFEST}")
            yield manifest
        for index in question.chunks:
            sends()
            yield await state.chunk(question.digest, index)

    bulk.serve(KIND, answer)
