"""One listening port: who knocks, and who may come in.

Strangers can reach this code, so every connection has one deadline for its whole handshake, which no trickle of
bytes extends, and only so many may be in the handshake at once. Beyond that a newcomer is told so and closed, unless
another network has more of these places than its own: then the flood pays for itself (`places`).

Whoever is refused is reported with the reason, because a wrong token or an old release is something an operator
wants to read on *both* machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from ictp2p.concurrency import logs, tasks
from ictp2p.edge.control import ControlConnection, Limits
from ictp2p.edge.network import Listener, Network, OnStuck
from ictp2p.edge.opening import Opening
from ictp2p.edge.places import Places, network_of
from ictp2p.edge.preamble import Kind, Preamble, Verdict, check, judge
from ictp2p.edge.security import Security
from ictp2p.errors import HandshakeFailed, IctError
from ictp2p.types import Address

_log = logging.getLogger(__name__)

OnControl = Callable[[ControlConnection], None]
OnBulk = Callable[[asyncio.Transport, Preamble], None]
OnRefused = Callable[[Address, IctError], None]


async def serve(
    network: Network,
    address: Address,
    security: Security,
    *,
    on_control: OnControl,
    on_bulk: OnBulk | None = None,
    on_refused: OnRefused | None = None,
    on_stuck: OnStuck | None = None,
    limits: Limits | None = None,
) -> Reception:
    """Listen at `address` until the returned reception is closed.

    Args:
        network: where to listen.
        address: where to listen; port 0 lets the system choose, and `Reception.address` says what.
        security: who we are.
        on_control: given each established control connection, which it must `start`.
        on_bulk: given each bulk connection after the preambles: it must set its own protocol on the transport
            before it returns, and is then read for. Without it bulk connections are refused.
        on_refused: told of everyone who was not let in, and why.
        on_stuck: told why nobody can be let in, once each time that this begins; the log is, by default.
        limits: bounds on the handshake and on connections.

    Raises:
        AddressInUse: the port is taken.
        AddressNotOurs: the address is not one of this machine.
    """
    reception = Reception(security, on_control, on_bulk, on_refused, limits or Limits())
    reception.listener = await network.serve(reception.knock, address, on_stuck or _log_stuck)
    return reception


def _log_stuck(text: str) -> None:
    logs.warning(_log, text)


class Reception:
    """A listening port with its half-open connections."""

    listener: Listener

    def __init__(
        self,
        security: Security,
        on_control: OnControl,
        on_bulk: OnBulk | None,
        on_refused: OnRefused | None,
        limits: Limits,
    ) -> None:
        self._security = security
        self._on_control = on_control
        self._on_bulk = on_bulk
        self._on_refused = on_refused
        self._limits = limits
        self._half_open: dict[Opening, asyncio.Task[None]] = {}
        self._places: Places[Opening] = Places(limits.half_open)
        self._mine = Preamble(security.fingerprint)
        self._closed = False
        self.knocks = 0
        """How many connections have been accepted so far, whoever they were from."""

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.listener.address

    @property
    def half_open(self) -> int:
        """How many connections are in the handshake."""
        return len(self._half_open)

    async def close(self) -> None:
        """Stop listening and drop whoever is in the handshake. Established connections live on."""
        self._closed = True
        self.listener.close()
        await self.listener.settled()
        half_open = dict(self._half_open)
        for task in half_open.values():
            task.cancel()
        await tasks.ended(half_open.values())
        for opening, task in half_open.items():
            if task.cancelled():
                opening.transport.abort()  # a task that never began has closed nothing

    def __repr__(self) -> str:
        return f"<Reception {self.address} half_open={self.half_open}>"

    def knock(self) -> asyncio.BaseProtocol:
        """Make the protocol for a connection that was just accepted."""
        self.knocks += 1
        return Opening(self._accepted)

    def _accepted(self, opening: Opening) -> None:
        if self._closed:  # it was in the backlog
            opening.transport.abort()
            return
        gone = self._places.enter(opening, network_of(opening.transport))
        if gone is opening:
            self._turn_away(opening)
            return
        if gone is not None:
            self._displace(gone)
        task = asyncio.get_running_loop().create_task(self._admit(opening))
        self._half_open[opening] = task
        task.add_done_callback(lambda _: self._settled(opening))

    def _settled(self, opening: Opening) -> None:
        del self._half_open[opening]
        self._places.leave(opening)

    def _displace(self, opening: Opening) -> None:
        self._half_open[opening].cancel()
        opening.transport.abort()
        most = f"{self._limits.half_open} connections are in the handshake, most of them from its network"
        self._refused(opening.remote, HandshakeFailed(f"made room for others: {most}"))

    def _turn_away(self, opening: Opening) -> None:
        opening.transport.write(replace(self._mine, verdict=Verdict.BUSY).encode())
        opening.transport.close()
        self._refused(opening.remote, HandshakeFailed(f"{self.half_open} connections are in the handshake already"))

    async def _admit(self, opening: Opening) -> None:
        remote = opening.remote
        try:
            async with asyncio.timeout(self._limits.handshake):
                await self._shake_hands(opening)
        except TimeoutError:
            opening.transport.abort()
            what = f"{remote} did not finish the handshake within {self._limits.handshake:g} s"
            self._refused(remote, HandshakeFailed(what))
        except IctError as error:
            # Not abort: the answer that carries the verdict may still be on its way out. 32 bytes always find room.
            opening.transport.close()
            self._refused(remote, error)
        except BaseException:
            opening.transport.abort()
            raise
        finally:
            self._places.leave(opening)  # at once: who has come in can be made to go no more

    async def _shake_hands(self, opening: Opening) -> None:
        theirs = await opening.heard
        verdict = self._judge(theirs)
        # An oddly numbered kind is echoed, so that the dialer can name it.
        opening.transport.write(replace(self._mine, kind=theirs.kind, verdict=verdict).encode())
        check(self._mine, theirs, verdict)
        if theirs.kind == Kind.BULK:
            self._hand_over(opening.transport, theirs)
        else:
            await self._establish(opening.transport)

    def _judge(self, theirs: Preamble) -> Verdict:
        verdict = judge(self._mine, theirs)
        if verdict is Verdict.WELCOME and theirs.kind == Kind.BULK and self._on_bulk is None:
            return Verdict.UNKNOWN_KIND
        return verdict

    def _hand_over(self, transport: asyncio.Transport, theirs: Preamble) -> None:
        assert self._on_bulk is not None
        self._on_bulk(transport, theirs)
        if not transport.is_closing():
            transport.resume_reading()

    async def _establish(self, transport: asyncio.Transport) -> None:
        connection = ControlConnection(self._security, self._limits, dialed=False)
        try:
            await connection.establish(transport, None, self._limits.handshake)
        except IctError:
            transport.abort()  # an orderly close could wait for a stranger to read
            raise
        self._on_control(connection)

    def _refused(self, remote: Address, error: IctError) -> None:
        if self._on_refused is not None:
            self._on_refused(remote, error)
