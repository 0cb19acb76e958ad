"""The result of the newest round, for a cluster that is in it and did not get it.

A leader may die between the decision that commits a round and the last word to its followers, or be so slow that the
others commit without its vote. Its cluster's contribution is in the sum then, and everybody else goes on: the cluster
can neither bring it again nor do without the result. But the decision names the digest of the result, and every
participant holds the same bytes. So each worker keeps the newest result that it has all of, decided or not, and gives
it to whoever asks by digest: the followers of the dead leader, to whom it was streamed before the vote, or another
cluster. That one cannot lose it before it is asked, since it waits for us in the round after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from torch import Tensor

from ictp2p.async_peer import AsyncPeer
from ictp2p.collectives.running.digest import result_digest
from ictp2p.concurrency.blocking import blocking
from ictp2p.errors import NetworkError, RoundMissed, StateError
from ictp2p.sync.values import Close, Open
from ictp2p.types import ClusterId, PeerId

_KIND = "answer"
_PAUSE = 0.1
"""Seconds between two turns of asking."""


class Answers:
    """One worker's newest result, and the way to the others', on its event loop."""

    def __init__(self, peer: AsyncPeer) -> None:
        self._peer = peer
        self._held: tuple[bytes, Tensor] | None = None
        peer.bulk.serve(_KIND, self._serve)

    def hold(self, digest: bytes, result: Tensor) -> None:
        """From any thread: keep a result, which nobody writes to any more, in place of the one before."""
        self._held = digest, result

    def let_go(self) -> None:
        """This worker has left: nobody asks it any more."""
        self._held = None

    async def fetch(self, opened: Open, close: Close, result: Tensor) -> None:
        """Have the result of a committed round in `result`.

        Raises:
            RoundMissed: nobody has it.
        """
        if self._held is not None and self._held[0] == close.digest:
            result.copy_(self._held[1])
            return
        patience = self._peer.config.global_timeouts
        end, refused = self._peer.clock() + patience.stall, ""
        while self._peer.clock() < end:
            for source in self._sources(opened, close):
                try:
                    await self._ask(source, close.digest, result, patience.complete)
                    return
                except (NetworkError, StateError) as error:
                    refused = f": {error}"
            await asyncio.sleep(_PAUSE)
        raise RoundMissed(f"round {close.round} was decided with this cluster, and nobody has its result{refused}")

    async def _ask(self, source: PeerId, digest: bytes, result: Tensor, timeout: float) -> None:
        size = await self._peer.bulk.request(source, _KIND, digest, result.numpy().data, timeout=timeout)
        found = await blocking(result_digest, result.numpy().data)
        if size != result.numel() or found != digest:
            raise StateError(f"{source} sent {size} bytes that are not the result")

    def _sources(self, opened: Open, close: Close) -> Sequence[PeerId]:
        """Mates first: they are near. Of the others those who voted, then whoever took part; none that is dead."""
        core = self._peer.core
        mates = [PeerId(name) for name in core.m.members.alive() if name not in core.m.members.suspects()]
        leaders = [core.directory.leader_of(p.cluster) or p.leader for p in opened.participants]
        cards = [core.directory.clusters.get(ClusterId(name)) for name in core.m.mesh.alive()]
        living = {worker.peer for card in cards if card is not None for worker in card.workers}
        others = [peer for peer in (*close.holders, *leaders) if peer in living]
        return [peer for peer in dict.fromkeys((*mates, *others)) if peer != self._peer.id]

    async def _serve(self, peer: PeerId, payload: bytes) -> AsyncGenerator[memoryview, None]:
        held = self._held
        if held is None or held[0] != payload:
            raise StateError("this worker does not have that result")
        yield held[1].numpy().data
