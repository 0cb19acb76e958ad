"""One rank's place in one group on the network: a port, a key, and warm connections to the other ranks.

Every group has an endpoint of its own; all endpoints of a process share one event loop in a thread beside the training.

**Who is alive.** A connection that somebody uses carries a sign of life in pauses, but a rank that has yet to come to a
collective uses none. So each end keeps a `Presence` on every connection from the moment that it stands: it expects the
other side to talk whenever this rank waits for it, and lets the other side hear from us however long we compute. A rank
that was killed shows at once, one that was stopped after the stall deadline, and a slow one never.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from ictp2p.bulk import Agreed, Bulk, BulkConnection, BulkProfile
from ictp2p.bulk.collective import Aborted
from ictp2p.bulk.frames import Header, Kind
from ictp2p.bulk.users import Frame
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.edge.credential import Mesh
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.opening import open_bulk
from ictp2p.edge.reception import Reception, serve
from ictp2p.edge.security import PlainSecurity
from ictp2p.errors import HandshakeFailed, IctError, PeerClosed
from ictp2p.identity import Identity
from ictp2p.torch_backend.cards import VERSION, Card
from ictp2p.torch_backend.errors import GroupClosed
from ictp2p.torch_backend.options import Options
from ictp2p.types import Address, PeerId

_FINGERPRINT = b"torchpg1"
"""What stands in the preambles of groups without a token. It says what this is, and grants nothing."""
_PRESENCE = b"ictp2p presence\0"
_CLOSING = 2.0
"""Seconds to let go of connections when groups end: twice what one is given to take what was written."""
_LEAST = 0.1
"""Those that each group has for itself. Where all ranks take what was written, it takes moments."""
_PASSED = 10.0
"""Seconds without the end of a group after which the next ones have all of it again."""


class Allowance:
    """What the groups of a process, which torch ends one after the other, may wait for ranks that take nothing more."""

    def __init__(self) -> None:
        self._left, self._ended = _CLOSING, -math.inf

    def seconds(self, now: float) -> float:
        """For a group that ends now."""
        if now > self._ended + _PASSED:
            self._left = _CLOSING
        return max(_LEAST, self._left)

    def spend(self, seconds: float, now: float) -> None:
        """A group took so long and has ended now."""
        self._left, self._ended = self._left - max(0.0, seconds - _LEAST), now


_ALLOWANCE = Allowance()


class Presence:
    """Keeps one connection alive, and watches over it (`users.User`)."""

    def __init__(self, waiting: Callable[[], bool]) -> None:
        self._waiting = waiting

    def next_frame(self) -> Frame | None:
        """Say nothing: the connection itself speaks up in a pause."""
        return None

    def place(self, header: Header) -> memoryview | None:
        """Nothing is sent under this tag."""
        return None

    def take(self, header: Header, body: memoryview) -> None:
        """Ignore it."""

    def expecting(self) -> bool:
        """While this rank waits for others, silence is a fault."""
        return self._waiting()

    def lost(self, error: IctError) -> None:
        """Whoever waits on this connection is told by itself."""


OnLost: TypeAlias = Callable[[PeerId, IctError, bool], None]
"""Told when no connection is left: to whom, why, and whether its other end had said goodbye."""

OnMet: TypeAlias = Callable[[PeerId], None]
"""Told of each connection that stands: to whom."""


class _Connections(Bulk):
    """`Bulk` with a presence on each connection."""

    waiting: Callable[[], bool]
    on_lost: OnLost
    on_met: OnMet

    def opened(self, connection: BulkConnection) -> None:
        super().opened(connection)
        assert connection.peer is not None
        self.join(connection.peer, _PRESENCE, Presence(self.waiting), connection)
        self.on_met(connection.peer)

    def lost(self, connection: BulkConnection, reason: IctError, *, whole: bool) -> None:
        assert connection.peer is not None
        polite = self._desks[connection].aborted(_PRESENCE) is not None
        super().lost(connection, reason, whole=whole)
        if not any(each.peer == connection.peer for each in self._desks):
            self.on_lost(connection.peer, reason, polite)

    def say_goodbye(self) -> list[BulkConnection]:
        """Tell every rank that what follows is no death; gives the connections on which it was said."""
        body, told = msgspec.msgpack.encode(Aborted("shut down", ())), list(self._desks)
        for connection in told:
            connection.send(Kind.ABORT, _PRESENCE, body=body)
        return told


class _Closed(PlainSecurity):
    """A reception's security where no control connection may come in."""

    async def secure(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, *, server_side: bool, timeout: float
    ) -> asyncio.Transport:
        raise HandshakeFailed("a process group has no control connections")


class Endpoint:
    """Listens, and connects to the other ranks once it knows their cards.

    Args:
        options: complete (`Options.of`).
        mesh: of the token, if there is one.
        stall: seconds of silence that make a rank lost.
        waiting: says whether this rank waits for others.
        on_lost: told when no connection to a rank is left.
        on_met: told of each connection that stands.
    """

    def __init__(
        self,
        options: Options,
        mesh: Mesh | None,
        stall: float,
        waiting: Callable[[], bool],
        on_lost: OnLost,
        on_met: OnMet,
    ) -> None:
        self._identity = Identity.generate()
        self._fingerprint = mesh.fingerprint if mesh else _FINGERPRINT
        self._options = options
        self._network = TcpNetwork()
        self._cards: dict[PeerId, Card] = {}
        self._reception: Reception | None = None
        sealed, share = options.sealed, options.share_memory
        profile = BulkProfile(stall=stall, handshake=max(2.0, stall / 2), sealed=sealed, share_memory=share)
        self.me = self._identity.peer_id
        self.bulk = _Connections(self.me, self._keys, self._dial, profile=profile, shrink=self._network.shrink)
        self.bulk.waiting, self.bulk.on_lost, self.bulk.on_met = waiting, on_lost, on_met

    async def listen(self, size: int) -> Card:
        """Open a port; our card in a group of `size` ranks.

        Raises:
            AddressNotOurs: the host in the options is not an address of this machine.
        """
        host = self._options.host or "127.0.0.1"
        self._reception = await serve(
            self._network,
            Address(host, 0),
            _Closed(self._identity, self._fingerprint),
            on_control=lambda connection: None,
            on_bulk=lambda transport, preamble: self.bulk.accept(transport),
        )
        port = self._reception.address.port
        key = self._identity.bulk_public
        return Card(VERSION, self.me, key, host, port, self._options.sealed, os.urandom(16), size)

    def know(self, cards: Sequence[Card]) -> None:
        """Take the other ranks' cards: from now on they can be reached, and may come in."""
        self._cards = {card.peer: card for card in cards}

    async def close(self) -> None:
        """Say goodbye, let what was written leave, within a second, then end everything.

        Where that takes too long (the machine is busy, or this process was stopped in the middle of it) what is left is
        cut off: no rank needs more of us than the goodbye, and whoever ends its group wants no error for another's.
        """
        try:
            await self._let_go()
        finally:  # who was told until now has us, and would stay with us until the garbage collector comes
            self.bulk.on_lost, self.bulk.on_met = _nobody, _nobody

    async def _let_go(self) -> None:
        told = self.bulk.say_goodbye()
        works = [self.bulk.close(), *([self._reception.close()] if self._reception is not None else [])]
        began = time.monotonic()
        tasks = [asyncio.ensure_future(work) for work in works]
        done, late = await asyncio.wait(tasks, timeout=_ALLOWANCE.seconds(began))
        _ALLOWANCE.spend((now := time.monotonic()) - began, now)
        for task in late:
            task.cancel()
        for connection in told if late else ():
            connection.fail(PeerClosed("the process group was shut down"))
            connection.transport.abort()
        for task in done:
            task.result()

    async def _dial(self, peer: PeerId, timeout: float) -> asyncio.Transport:
        return await open_bulk(self._network, self._cards[peer].address, self._fingerprint, timeout=timeout)

    def _keys(self, peer: PeerId, context: bytes) -> Agreed:
        card = self._cards.get(peer)
        if card is None:
            raise HandshakeFailed(f"{peer} is no rank of this group")
        return Agreed(*self._identity.bulk_key(card.key, context))


def _nobody(*told: object) -> None:
    """Is told of nothing."""


class _Loop:
    """The process's event loop for its groups: made with the first, ended with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._users = 0

    def enter(self) -> LoopThread:
        """Count a group in."""
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread("ictp2p process groups", "the process group", GroupClosed)
            self._users += 1
            return self._loop

    def leave(self) -> None:
        """Count a group out."""
        with self._lock:
            self._users -= 1
            loop, self._loop = (None, self._loop) if self._users else (self._loop, None)
        if loop is not None:
            loop.close()

    def forget(self) -> None:
        """Begin anew in a fork: the thread stayed behind, and so did whoever may have held the lock."""
        self._lock, self._loop, self._users = threading.Lock(), None, 0


LOOP = _Loop()
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=LOOP.forget)
