"""Relaying for peers that cannot dial each other.

A relay reads one hello, finds a way to whom it is for, passes it on, and joins the two connections. What follows is
sealed between the two ends, so it need not be trusted, and it stores nothing. It serves members only, as a place costs
it a connection of its own and a while of seeking (`membership`). It knows two ways onward: dial the target
(or a next relay), or ask the target to dial. In the latter case the target finds somebody else's hello where it
expected an answer, and answers that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ictp2p.bulk import tuning
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.frames import Hello
from ictp2p.bulk.membership import Membership
from ictp2p.bulk.profile import BulkProfile
from ictp2p.bulk.refusals import refusal
from ictp2p.bulk.splice import Shrink, Splice, splice
from ictp2p.bulk.ways import first_way
from ictp2p.concurrency import tasks
from ictp2p.errors import NetworkError, ProtocolError, Unreachable
from ictp2p.types import PeerId


class Relay:
    """One peer's relaying. Arguments as `Bulk`'s."""

    def __init__(
        self,
        dial: Callable[[PeerId, float], Awaitable[asyncio.Transport]],
        ask_dial: Callable[[PeerId, bytes], None] | None,
        relays: Callable[[PeerId], Sequence[PeerId]],
        profile: BulkProfile,
        random_bytes: Callable[[int], bytes],
        membership: Membership,
        shrink: Shrink,
    ) -> None:
        self._dial = dial
        self._ask_dial = ask_dial
        self._relays = relays
        self._profile = profile
        self._random_bytes = random_bytes
        self._membership = membership
        self._shrink = shrink
        self._tickets: dict[bytes, asyncio.Future[asyncio.Transport]] = {}
        self._tasks: dict[asyncio.Task[None], asyncio.Transport] = {}
        self._joined: dict[object, tuple[Splice, Splice]] = {}

    def join(self, connection: BulkConnection, hello: Hello) -> None:
        """Join a connection that began with `hello` to one that leads to the hello's target."""
        connection.transport.pause_reading()
        incoming = connection.release()
        if not self._membership.admits(hello):
            _refuse(incoming, hello, "not proven to be a member, once")
            return
        if self._occupied() >= self._profile.relayed:
            _refuse(incoming, hello, "relay is full")
            return
        task = asyncio.get_running_loop().create_task(self._join(incoming, hello))
        self._tasks[task] = incoming
        task.add_done_callback(self._tasks.pop)

    def take(self, connection: BulkConnection, ticket: bytes) -> bool:
        """Take a connection that a target dialed because we asked it to; False if we did not."""
        waiting = self._tickets.get(ticket)
        if waiting is None or waiting.done():
            return False
        connection.transport.pause_reading()
        waiting.set_result(connection.release())
        return True

    async def close(self) -> None:
        """End all relaying."""
        joining = dict(self._tasks)
        for task in joining:
            task.cancel()
        await tasks.ended(joining)
        for task, incoming in joining.items():
            if task.cancelled():
                incoming.abort()  # a task that never began has closed nothing
        for one, two in tuple(self._joined.values()):
            one.transport.abort()
            two.transport.abort()

    def _occupied(self) -> int:
        """Count whom we relay for, or seek a way for: from its hello on, so that only a surplus is refused."""
        return len(self._joined) + sum(not task.done() for task in self._tasks)

    async def _join(self, incoming: asyncio.Transport, hello: Hello) -> None:
        try:
            if not hello.hops:
                raise Unreachable("too many relays")
            onward = await self._onward(hello)
        except (NetworkError, ProtocolError) as error:
            _refuse(incoming, hello, str(error))
            return
        except BaseException:  # whatever it is: nobody else would read from it, or end it
            incoming.abort()
            raise
        if incoming.is_closing() or onward.is_closing():
            incoming.abort()
            onward.abort()
            return
        onward.write(hello.relayed().pack())
        key = object()  # what they call at their end must not know them: in a cycle their buffers would stay
        ended = partial(self._joined.pop, key)
        self._joined[key] = splice(incoming, onward, self._profile.stall, ended, self._shrink)

    async def _onward(self, hello: Hello) -> asyncio.Transport:
        """Reach the target itself, by either side's dialing, before another relay: those would pass it round."""
        hops = [hop for hop in self._relays(hello.target) if hop not in (hello.source, hello.target)]
        ways = [partial(self._dialed, hello.target), partial(self._asked, hello.target)]
        ways += [partial(self._dialed, hop) for hop in hops]
        return await first_way(ways, self._profile.patience, lambda spare: spare.abort())

    async def _dialed(self, hop: PeerId) -> asyncio.Transport:
        transport = await self._dial(hop, self._profile.handshake)
        tuning.suit(transport)
        transport.pause_reading()
        return transport

    async def _asked(self, target: PeerId) -> asyncio.Transport:
        if self._ask_dial is None:
            raise Unreachable(f"{target} cannot be asked to dial")
        ticket = self._random_bytes(16)
        arrived: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = arrived
        try:
            self._ask_dial(target, ticket)
            async with asyncio.timeout(self._profile.handshake):
                return await arrived
        except BaseException as error:
            if arrived.done() and not arrived.cancelled():
                arrived.result().abort()  # it came in the moment in which we gave up
            if isinstance(error, TimeoutError):
                raise Unreachable("target did not dial") from None
            raise
        finally:
            del self._tickets[ticket]


def _refuse(incoming: asyncio.Transport, hello: Hello, reason: str) -> None:
    incoming.write(refusal(hello, reason).pack())
    incoming.close()
