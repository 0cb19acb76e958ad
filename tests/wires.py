"""Connections (`channel.Links`) between collectives of one process: what one sends is with the other in the next turn.

A connection pulls once both of its ends have attached, and an end that lets go is nobody's: a chunk for it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from ictp2p.collectives.channel import Receiver, Slots
from ictp2p.types import PeerId
from tests.collectives.running.sessions import Chunk, chunk_of, hand


class Wires:
    """All of them, by tag and owner."""

    def __init__(self) -> None:
        self.ends: dict[tuple[bytes, PeerId], End] = {}
        self.tags: dict[PeerId, list[bytes]] = {}
        """Under which tags each peer has attached, in order."""
        self.drops: Callable[[PeerId, PeerId], bool] = lambda source, target: False
        """Says whether what one sent early is not kept by the other."""

    def of(self, me: PeerId) -> Plugs:
        return Plugs(self, me)


class Plugs:
    """One peer's connections."""

    def __init__(self, wires: Wires, me: PeerId) -> None:
        self.slots = Slots(1 << 20)
        self._wires, self._me = wires, me

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
    ) -> End:
        self._wires.tags.setdefault(self._me, []).append(tag)
        end = self._wires.ends[tag, self._me] = End(self._wires, tag, self._me, receiver, peers, whole)
        for peer in peers:
            other = self._wires.ends.get((tag, peer))
            if other is not None:
                dropped = other.whole is not None and self._wires.drops(peer, self._me)
                receiver.begun(peer)
                if other.whole is not None and not dropped:
                    hand(receiver, peer, Chunk(True, 0, 0, other.whole))
                other.receiver.begun(self._me, dropped)
                if whole is not None:
                    hand(other.receiver, self._me, Chunk(True, 0, 0, whole))
                other.kick(self._me)
        return end


class End:
    """One collective's hold on its connections (`channel.Attachment`)."""

    def __init__(
        self, wires: Wires, tag: bytes, me: PeerId, receiver: Receiver, peers: Sequence[PeerId], whole: bytes | None
    ) -> None:
        self.receiver, self.whole = receiver, whole
        self._wires, self._tag, self._me, self._peers = wires, tag, me, peers

    def kick(self, peer: PeerId) -> None:
        asyncio.get_running_loop().call_soon(self._pump, peer)

    def ahead(self, peer: PeerId) -> int | None:
        return None

    def received(self, peer: PeerId) -> int:
        return 0

    def early(self, peer: PeerId) -> float:
        return 0.0

    def connections(self, peer: PeerId) -> int:
        return 1

    async def flushed(self, timeout: float) -> None:
        for peer in self._peers:
            self._pump(peer)

    def detach(self) -> None:
        self._wires.ends.pop((self._tag, self._me), None)

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        self.detach()
        for peer in self._peers:
            other = self._wires.ends.get((self._tag, peer))
            if other is not None:
                other.receiver.lost(self._me, reason, suspects)

    def _pump(self, peer: PeerId) -> None:
        while (self._tag, self._me) in self._wires.ends and (self._tag, peer) in self._wires.ends:
            out = self.receiver.next_frame(peer)
            if out is None:
                return
            other = self._wires.ends.get((self._tag, peer))
            if other is not None:
                hand(other.receiver, self._me, chunk_of(out))
