"""Small collectives in one shot: everybody sends all that it has to everybody; sums each makes by itself (`alike`).

A tree takes two ways, up and down, and its root handles every message twice over. What is small enough that its bytes
cost less than a way needs only one: whoever begins sends its part along with the word that it has begun, and has ended
when the parts of all others are here (a *one-shot* all-reduce; NCCL and MPI have the like for their smallest sizes).
With it go the chunks, the windows and the copies of `Session`, which cost more than these bytes do.

**A part that came too early and was not kept** is asked for again (`channel.Links.attach`), and whoever has sent it
stays until it knows: it ends only when it has heard from all, and they say it with their own part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ictp2p.collectives.channel import DIFFER, EAGER_BYTES, Attachment, Links, Outgoing, ParticipantLost, RoundTag
from ictp2p.collectives.running.attempt import AnyPart, ExecuteProfile, carry_out
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.types import PeerId


async def swap(
    participants: Sequence[PeerId],
    me: int,
    parts: Sequence[int],
    body: bytes,
    links: Links,
    tag: RoundTag,
    profile: ExecuteProfile | None = None,
) -> list[bytes]:
    """Send `body` to all participants; give the parts of all, in their order.

    Args:
        participants: who takes part.
        me: our index.
        parts: bytes of each participant's part, 1 to `EAGER_BYTES`.
        body: our part.
        links: the connections.
        tag: fences this attempt.
        profile: deadlines.

    Raises:
        ConfigError: a part is too long, or ours is not as long as it should be.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    if len(body) != parts[me] or not 0 < min(parts) <= max(parts) <= EAGER_BYTES:
        raise ConfigError(f"{len(body)} bytes in one shot for parts of {tuple(parts)}, not within 1..{EAGER_BYTES}")
    swapping = Swap(participants, me, parts, body)
    await carry_out(swapping, links, tag, profile or ExecuteProfile(), whole=body)
    return swapping.bodies


class Swap(AnyPart):
    """One participant's part (`attempt.Part`). Arguments as `swap`'s."""

    def __init__(self, participants: Sequence[PeerId], me: int, parts: Sequence[int], body: bytes) -> None:
        super().__init__()
        self.bodies = [b""] * len(participants)
        self.bodies[me] = body
        self.peers = [name for node, name in enumerate(participants) if node != me]
        self._nodes = {name: node for node, name in enumerate(participants) if node != me}
        self._parts = parts
        self._body = body
        self._missing = dict.fromkeys(self.peers)
        self._begun: set[PeerId] = set()
        self._again: set[PeerId] = set()
        """Who had to drop our part, and waits for it."""

    def rates(self) -> None:
        """Nothing so short is paced."""
        return

    def attached(self, attachment: Attachment) -> None:
        """All neighbours are connected."""
        self._attachment = attachment
        for peer in tuple(self._again):
            attachment.kick(peer)
        self._check_end()

    async def work(self) -> None:
        """Wait for the parts of all."""
        await self.ended

    def begun(self, peer: PeerId, again: int = 0) -> None:
        """As `channel.Receiver`."""
        self._begun.add(peer)
        if again:
            self._again.add(peer)
            if self._attachment is not None:
                self._attachment.kick(peer)

    def destination(
        self, peer: PeerId, partial: bool, share: int, chunk: int, size: int, *, passing: bool = False
    ) -> None:
        """As `channel.Receiver`: nowhere, it is copied.

        Raises:
            RemoteProtocolError: it is not the part that is missing from `peer`.
        """
        due = self._parts[self._nodes[peer]]
        if peer not in self._missing or not partial or share or chunk or size != due:
            what = "part" if partial and not (share or chunk) else "chunk"
            missing = f"{due}{DIFFER}" if peer in self._missing else "nothing"
            raise RemoteProtocolError(f"{peer} sent a {what} of {size} bytes in one shot, expected {missing}")

    def arrived(self, peer: PeerId, partial: bool, share: int, chunk: int, body: memoryview) -> None:
        """As `channel.Receiver`."""
        self.bodies[self._nodes[peer]] = bytes(body)
        del self._missing[peer]
        if not self._missing:
            self._check_end()

    def next_frame(self, peer: PeerId) -> Outgoing | None:
        """As `channel.Receiver`: our part once more, for who asks."""
        if peer not in self._again or self.ended.done():
            return None
        self._again.remove(peer)
        asyncio.get_running_loop().call_soon(self._check_end)  # once it has been written
        return Outgoing(True, 0, 0, (self._body,), stable=True)

    def waiting_on(self, peer: PeerId) -> bool:
        """As `channel.Receiver`."""
        return peer in self._begun and peer in self._missing

    def owing_to(self, peer: PeerId) -> bool:
        """As `channel.Receiver`."""
        return peer in self._again

    def lost(self, peer: PeerId, reason: str, suspects: Sequence[PeerId]) -> None:
        """As `channel.Receiver`: the collective fails, unless nothing is owed to or by `peer` any more."""
        if peer in self._missing or peer in self._again:
            known = [name for name in self._nodes if name in suspects]
            self.broke(ParticipantLost(f"{peer}: {reason}", known or [peer]))

    def silent(self) -> list[PeerId]:
        """Name who has not begun."""
        return [peer for peer in self._missing if peer not in self._begun]

    def owing(self) -> list[PeerId]:
        """Name whom we wait for: who has not begun, or else who owes its part."""
        return self.silent() or list(self._missing)

    def _check_end(self) -> None:
        if not (self._missing or self._again or self._attachment is None or self.ended.done()):
            self.ended.set_result(None)
