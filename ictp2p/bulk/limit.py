"""A ceiling on what one peer sends, for links that it must share with others."""

from __future__ import annotations

from collections.abc import Sequence

from ictp2p.collectives.channel import Attachment, Links, Receiver
from ictp2p.types import PeerId


class RateLimit:
    """Links whose collectives together send at most `rate` bytes/s, split evenly over the neighbours."""

    def __init__(self, links: Links, rate: float) -> None:
        self.slots = links.slots
        self._links = links
        self._rate = rate

    async def attach(
        self,
        tag: bytes,
        receiver: Receiver,
        peers: Sequence[PeerId],
        *,
        timeout: float,
        rates: Sequence[float | None] | None = None,
    ) -> Attachment:
        """Attach as `channel.Links` does, each neighbour at its share or at its own rate if that is lower."""
        share = self._rate / max(1, len(peers))
        capped = [min(share, rate) if rate is not None else share for rate in rates or [None] * len(peers)]
        return await self._links.attach(tag, receiver, peers, timeout=timeout, rates=capped)
