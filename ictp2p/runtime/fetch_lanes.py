"""The further connections of one fetch of a state: when they are opened, what is asked over which, and their end.

`sync.state.widening` says whether more are worth a trial, by what arrives; `bulk.lanes` makes them. To `Fetch` each of
them is a provider more, by a name of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.lanes import LONG
from ictp2p.sync.state.manifest import CHUNK
from ictp2p.sync.state.transfer import Fetch, TransferProfile
from ictp2p.sync.state.widening import Step, Widening
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from ictp2p.bulk import Bulk


class FetchLanes:
    """Of one fetch.

    Args:
        bulk: has the connections.
        fetch: told of those that there are.
        profile: how patient it is.
        clock: monotonic seconds.
    """

    def __init__(self, bulk: Bulk, fetch: Fetch, profile: TransferProfile, clock: Callable[[], float]) -> None:
        self.arrived = 0
        """Bytes of the state that have come, over all of them."""
        self._bulk = bulk
        self._fetch = fetch
        self._patience = profile.patience
        self._clock = clock
        self._widening = Widening(profile.horizon)
        self._opening: asyncio.Task[None] | None = None
        self._lanes: dict[PeerId, tuple[PeerId, BulkConnection]] = {}
        """By their names in `Fetch`, and to whom each is."""
        self._newest: list[PeerId] = []
        """Those of the last trial."""

    def over(self, provider: PeerId) -> tuple[PeerId, BulkConnection | None]:
        """Whom a provider stands for, and the connection to ask it over; None: the first one."""
        return self._lanes.get(provider, (provider, None))

    def received(self, provider: PeerId) -> int:
        """Bytes that this connection has brought, of whatever is under way there."""
        peer, over = self.over(provider)
        return self._bulk.received(peer) if over is None else over.received

    def look(self) -> None:
        """Have further connections where one may not fill the way, and let them go if they gain nothing."""
        match self._widening.look(self.arrived, self._clock()):
            case Step.WIDEN:
                self._opening = asyncio.get_running_loop().create_task(self._widen(self._promising()))
            case Step.NARROW:
                self._fetch.narrow(self._newest)

    def _promising(self) -> list[PeerId]:
        left = self._fetch.remaining * CHUNK / self._widening.rate
        rates = self._fetch.rates() if left >= LONG or not self._lanes else {}
        return [peer for peer, rate in rates.items() if self._bulk.lanes.promising(peer, rate, left)]

    async def _widen(self, peers: Sequence[PeerId]) -> None:
        """Open further connections to these; each is used as soon as it is there."""
        before = set(self._lanes)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await asyncio.gather(*map(self._open, peers))
        self._newest = [lane for lane in self._lanes if lane not in before]
        if self._newest:
            self._widening.widened(self.arrived, self._clock())
        else:
            self._widening.refused()

    async def _open(self, peer: PeerId) -> None:
        used = [connection for to, connection in self._lanes.values() if to == peer]
        async with contextlib.aclosing(self._bulk.lanes.opened(peer, used)) as lanes:
            async for connection in lanes:
                self._lanes[self._fetch.lane(peer)] = peer, connection

    def stop(self) -> list[asyncio.Task[None]]:
        """Open no more; give what is to be waited for before they are closed."""
        if self._opening is None:
            return []
        self._opening.cancel()
        return [self._opening]

    def close(self) -> None:
        """Let them go."""
        self._opening = None
        for peer, connection in self._lanes.values():
            self._bulk.lanes.close(peer, [connection])
