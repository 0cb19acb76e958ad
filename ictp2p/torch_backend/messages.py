"""Messages between two ranks, in order per sender, receiver and tag; a receiver may take whoever sends first.

Sender and receiver count their messages, so a message and the call that takes it find each other without a word on
the wire, and any number may be under way; of more than `places.MOST` the other end hears later. Who receives from
anybody waits for the first to begin; until it has chosen, later receives of its tag wait behind it, or numbers would be
given away twice.

A receive whose time is over takes its message along: the send fails, now or when it begins, and no later receive is
given what was meant for this one. It does so in its turn, if its time was over before that. One from anybody takes
along what each rank would have sent it, since nobody can say whose message it would have been.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from ictp2p.collectives.channel import CallsDiffer, CollectiveTimeout, ParticipantLost
from ictp2p.errors import IctError
from ictp2p.torch_backend.engine import Engine, Step
from ictp2p.torch_backend.own import Own
from ictp2p.torch_backend.places import Places

_KIND = "send/recv"
"""What both ends call; its length follows."""


class Messages:
    """One rank's messages. On the event loop; calls begin in the order in which they are made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sent: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._received: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._last: dict[int, asyncio.Future[tuple[int, int]]] = {}
        """By tag, the last receive in the line of those that have no number yet."""
        self._late: set[asyncio.Future[Any] | None] = set()
        """Those whose time was over before it was their turn."""
        self._places: defaultdict[tuple[int, bool], Places] = defaultdict(Places)
        """By rank, and whether we send to it."""
        self._own = Own()
        self._gone: set[int] = set()
        self._deaths: dict[int, ParticipantLost] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        """One for each receive from anybody that has not found its sender; several, under different tags."""

    async def send(self, data: Tensor, target: int, tag: int, timeout: float) -> None:
        """Send bytes; ends when the receiver takes them, however few they are, as with Gloo. To itself: at once."""
        self._sent[target, tag] += 1
        if target == self._engine.rank:
            self._send_own(data, tag)
            return
        step = _step(tag, self._sent[target, tag], timeout)
        async with self._place(step, target, sending=True) as placed:
            await self._engine.send(placed, data, target)

    async def receive(self, data: Tensor, source: int | None, tag: int, timeout: float) -> int:
        """Receive bytes from a rank, or from any; who it was. All of it may take `timeout` seconds."""
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        source, number = await self._numbered(source, tag, end)
        if source == self._engine.rank:
            self._land_own(await self._own.take((tag, number), end), data)
            return source
        step = _step(tag, number, max(0.0, end - clock()))
        async with self._place(step, source, sending=False) as placed:
            await self._engine.receive(placed, data, source)
        return source

    def lost(self, rank: int, error: IctError, polite: bool) -> None:
        """A rank has gone. Who receives from anybody waits for it no longer; if it died, not for the others either."""
        self._gone.add(rank)
        if not polite:
            name = self._engine.names[rank]
            self._deaths[rank] = ParticipantLost(f"{name}: {error}", [name])
        if self._deaths or not self._left():
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)

    def met(self, rank: int) -> None:
        """A connection to a rank stands: it lives, whatever ended the one before."""
        self._gone.discard(rank)
        self._deaths.pop(rank, None)

    def _send_own(self, data: Tensor, tag: int) -> None:
        if not self._own.put((tag, self._sent[self._engine.rank, tag]), data.clone()):
            name = self._engine.names[self._engine.rank]
            raise ParticipantLost(f"{name} gave up to receive it before it was sent", [name])

    def _land_own(self, message: Tensor, data: Tensor) -> None:
        if len(message) != len(data):
            name, what = self._engine.names[self._engine.rank], f"calls {_KIND} of {len(message)} bytes"
            raise CallsDiffer(f"{name} {what}, not {_KIND} of {len(data)} bytes", [name])
        data.copy_(message)

    async def _numbered(self, source: int | None, tag: int, end: float) -> tuple[int, int]:
        """Find whose message a receive takes, and which one; one after the other for each tag.

        Raises:
            TimeoutError: it is `end` by the loop's clock.
        """
        before = self._last.get(tag)
        if source is not None and before is None:
            return source, self._next(source, tag)
        self._last[tag] = turn = asyncio.ensure_future(self._turn(before, source, tag, end))
        turn.add_done_callback(lambda _: self._over(turn, tag))
        try:
            await asyncio.wait({turn}, timeout=end - asyncio.get_running_loop().time())
        except asyncio.CancelledError:
            turn.cancel()
            raise
        if turn.done():
            return turn.result()
        self._late.add(turn)
        raise TimeoutError

    async def _turn(
        self, before: asyncio.Future[Any] | None, source: int | None, tag: int, end: float
    ) -> tuple[int, int]:
        if before is not None:
            await asyncio.wait({before})
        me = asyncio.current_task()
        if source is None and me not in self._late:
            try:
                source = await self._first(tag, end - asyncio.get_running_loop().time())
            except TimeoutError:
                self._late.add(me)
        if me not in self._late:
            assert source is not None
            return source, self._next(source, tag)
        for rank in [*self._left(), self._engine.rank] if source is None else [source]:
            self._refuse(rank, tag, self._next(rank, tag))
        raise TimeoutError

    def _refuse(self, rank: int, tag: int, number: int) -> None:
        if rank == self._engine.rank:
            self._own.refuse((tag, number))
        else:
            self._engine.refuse(_step(tag, number, 0.0), rank, sending=False)

    def _over(self, turn: asyncio.Task[tuple[int, int]], tag: int) -> None:
        self._late.discard(turn)
        if self._last.get(tag) is turn:
            del self._last[tag]
        if not turn.cancelled():
            turn.exception()  # whoever asked may have left before it

    def _next(self, source: int, tag: int) -> int:
        self._received[source, tag] += 1
        return self._received[source, tag]

    @contextlib.asynccontextmanager
    async def _place(self, step: Step, other: int, *, sending: bool) -> AsyncIterator[Step]:
        """Hold a place among what is under way; gives the step with the time that is left of it."""
        places, clock = self._places[other, sending], asyncio.get_running_loop().time
        end = clock() + step.timeout
        try:
            await places.enter(lambda: self._engine.awaited(step, other, sending=sending), step.timeout)
        except TimeoutError:
            name = self._engine.names[other]
            self._engine.refuse(step, other, sending=sending)
            raise CollectiveTimeout(
                f"{name} did not take what was before it within {step.timeout:g} s", [name]
            ) from None
        try:
            yield replace(step, timeout=max(0.0, end - clock()))
        finally:
            places.leave()

    def _left(self) -> list[int]:
        return [n for n in range(self._engine.size) if n != self._engine.rank and n not in self._gone]

    def _check(self) -> None:
        for death in self._deaths.values():
            raise death
        if not self._left() and self._engine.size > 1:
            raise ParticipantLost("no other rank is left to receive from", [])

    async def _first(self, tag: int, timeout: float) -> int:
        mine = (tag, self._received[self._engine.rank, tag] + 1)
        own = self._own.arrival(mine)
        try:
            return self._engine.rank if own.done() else await self._first_of(own, tag, timeout)
        finally:
            self._own.leave(mine)

    async def _first_of(self, own: asyncio.Future[None], tag: int, timeout: float) -> int:
        """Whose message begins first, our own among them."""
        self._check()
        steps = {n: _step(tag, self._received[n, tag] + 1, timeout) for n in self._left()}
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(broken)
        choosing = asyncio.ensure_future(self._engine.first_sender(steps))
        reaching = [asyncio.ensure_future(self._reach(n, timeout)) for n in steps]
        try:
            any_of: set[asyncio.Future[Any]] = {choosing, own, broken}
            await asyncio.wait(any_of, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if choosing.done():
                return choosing.result()
            if own.done():
                return self._engine.rank
            self._check()
            raise TimeoutError
        finally:
            self._waiting.discard(broken)
            for task in (choosing, *reaching):
                task.cancel()

    async def _reach(self, rank: int, timeout: float) -> None:
        try:
            await self._engine.reach(rank, timeout)
        except IctError as error:  # it may have left before we ever met
            self.lost(rank, error, polite=True)


def _step(tag: int, number: int, timeout: float) -> Step:
    return Step(_KIND, number, timeout, f"message {tag}")
