"""Probes from here, which measure what the way to a peer carries, and probes from there, which are measured here.

One goes over as many connections as chunks do (`stripes`), as if they were one. What has overtaken its end is missing
from the measurement, which ends there, and counts for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.pacing import Blast
from ictp2p.bulk.pool import Pool
from ictp2p.bulk.streams import MAX_PROBE, PROBE_CHUNK, Probe, ProbeResult
from ictp2p.bulk.stripes import LEAST, Stripes
from ictp2p.bulk.turns import Turn, Turns
from ictp2p.errors import ConfigError, ConnectionLost
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from ictp2p.bulk.hub import Bulk

_AT_ONCE = 16
"""Probes of one peer that are measured at once: who waits for turns makes one."""


class Probing:
    """One peer's probes, both ways.

    Args:
        bulk: whose they are.
        pool: its connections.
        new_tag: gives one that was never used.
        clock: monotonic seconds.
    """

    def __init__(self, bulk: Bulk, pool: Pool, new_tag: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self.turns = Turns(2 * bulk.profile.probe)
        self.stripes = Stripes(pool, clock)
        self._bulk = bulk
        self._pool = pool
        self._new_tag = new_tag
        self._clock = clock
        self._sending: dict[Probe | Turn, None] = {}
        self._stops = 0
        """How often all were stopped: one that was asked for before the last time is not wanted any more."""
        self._measured: dict[PeerId, _Blasts] = {}
        self._receiving: dict[BulkConnection, bytes] = {}
        """The newest that was asked for on each connection and is not over."""

    async def probe(self, peer: PeerId, size: int, timeout: float) -> ProbeResult:
        """Measure the way to `peer`, and, once, whether more connections carry more; raises as `Bulk.probe`."""
        if not 0 < size <= MAX_PROBE:
            raise ConfigError(f"probe of {size} bytes is not within 1..{MAX_PROBE}")
        result: ProbeResult | None = None
        measure = partial(self._blast, peer, size, self._stops)
        try:
            async with asyncio.timeout(timeout):
                first = await self._pool.connection(peer, timeout)
                result = await measure((first, *self.stripes.beside(first)))
                if not result.limited and self.undecided(peer, result.size, result.seconds):
                    result = await self.stripes.compared(first, result, measure)
        except TimeoutError:
            if result is None:
                raise ConnectionLost(f"{peer} did not measure {size} bytes within {timeout:g} s") from None
        return result

    def undecided(self, peer: PeerId, size: int, seconds: float) -> bool:
        """Whether, after a transfer like this, a probe would find out if more connections to `peer` carry more."""
        first = self._pool.warm(peer)
        if first is None or size < LEAST or not self._bulk.profile.stripes:
            return False
        return self.stripes.promising(first, size / seconds)

    def stop(self) -> None:
        """End all probes from here that are under way, and begin none that was asked for: the links are needed."""
        self._stops += 1
        for probe in tuple(self._sending):
            probe.stop()

    def asked(self, connection: BulkConnection, tag: bytes) -> None:
        """A peer wants to probe: it has its turn, and hears from us until that is over, wherever it may send."""
        assert connection.peer is not None
        self._hush(connection)
        self._receiving[connection] = tag
        for each in self._pool.among(connection.peer):
            each.speak(tag)
        self.turns.ask(connection, tag)

    def over(self, connection: BulkConnection, tag: bytes | None = None) -> None:
        """A probe that was asked for on a connection has ended, or is not wanted; without a tag whichever it is."""
        self.turns.end(connection, tag)
        if tag in (None, self._receiving.get(connection)):
            self._hush(connection)

    def arrived(self, connection: BulkConnection, header: Header) -> None:
        """Measure a frame of a probe, and tell the sender at its end."""
        peer = connection.peer
        assert peer is not None
        sample = self._measured.setdefault(peer, _Blasts()).add(header, self._clock())
        if sample is None:
            return
        for each in self._pool.among(peer):
            self.over(each, header.tag)
        size, seconds, limited = sample
        self._bulk.measured(connection, header.tag, size, seconds, limited or bool(header.first), probe=True)

    def opened(self, connection: BulkConnection) -> None:
        """A connection is ready, perhaps for a probe that was asked for on another one."""
        for asked, tag in self._receiving.items():
            if asked.peer == connection.peer:
                connection.speak(tag)

    def lost(self, connection: BulkConnection) -> None:
        """A connection has ended."""
        assert connection.peer is not None
        self.over(connection)
        self.stripes.lost(connection)
        if not self._pool.among(connection.peer):
            self._measured.pop(connection.peer, None)

    def _hush(self, connection: BulkConnection) -> None:
        assert connection.peer is not None
        if (tag := self._receiving.pop(connection, None)) is not None:
            for each in self._pool.among(connection.peer):
                each.hush(tag)

    async def _blast(self, peer: PeerId, size: int, stops: int, connections: Sequence[BulkConnection]) -> ProbeResult:
        """Probe some connections to `peer` as one, when it is our turn, unless there were more than so many stops."""
        tag, first = self._new_tag(), connections[0]
        probe, turn = Probe(tag, size, self._bulk.profile.probe, self._clock), Turn()
        self._sending[turn] = None
        try:
            self._bulk.join(peer, tag, turn, first)
            first.send(Kind.ASK, tag)
            if not await turn.granted or stops != self._stops:  # stopped before it had asked, or as it was granted
                return ProbeResult(0, 0.0, True, self._clock())
            self._bulk.part(peer, tag, turn)
            self._sending[probe] = None
            for each in connections:
                each.backlog.hold(PROBE_CHUNK)
            self._bulk.join(peer, tag, probe, *connections)
            return await probe.result
        finally:
            if not first.closed:
                first.send(Kind.CANCEL, tag)  # what did not end has a turn for its seconds, and nobody else has one
            for user in (turn, probe):
                self._sending.pop(user, None)
                self._bulk.part(peer, tag, user)
            for each in connections:
                each.backlog.hold(None)
            del user, turn, probe  # they know their error, and that this frame and the connections


class _Blasts:
    """The probes of one peer."""

    def __init__(self) -> None:
        self._going: dict[bytes, Blast] = {}
        self._ended: deque[bytes] = deque(maxlen=_AT_ONCE)

    def add(self, header: Header, now: float) -> tuple[int, float, bool] | None:
        """Note a frame; give what the probe has shown if it is the last one."""
        tag = header.tag
        if tag in self._ended:
            return None
        if tag not in self._going and len(self._going) >= _AT_ONCE:
            self._going.clear()
        blast = self._going.setdefault(tag, Blast())
        blast.add(header.length, now)
        if header.second > header.length:
            return None
        self._ended.append(tag)
        return self._going.pop(tag).sample()
