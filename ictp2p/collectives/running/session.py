"""One participant's part in a plan, as its connections see it: which bytes are where, from the first chunk to the last.

`Exchange` says what may be sent and what may come; `Adder`, or a `Coder`, turns contributions into sums. Here the two
meet the connections, which push what has arrived and pull what can leave. All of it runs once per chunk or oftener,
with cold caches, so it is one class with few calls in it.

A chunk's way: `destination` gives it a slot, if it is a contribution, or its place in the outputs, if it is a result;
`arrived` tells the exchange, adds up what is complete at a root, and wakes the connections that waited for it;
`next_frame` gives a connection what it is to send next. Slots of contributions go back when they have been added.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ictp2p.collectives.channel import (
    DIFFER,
    EAGER_BYTES,
    EARLY_BYTES,
    EARLY_CHUNKS,
    Attachment,
    Outgoing,
    ParticipantLost,
    Slots,
)
from ictp2p.collectives.plan import REDUCE, Plan
from ictp2p.collectives.running.attempt import AnyPart
from ictp2p.collectives.running.coding import Coder
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.lane import Piece
from ictp2p.collectives.running.sums import Adder
from ictp2p.errors import RemoteProtocolError
from ictp2p.types import PeerId

Progress: TypeAlias = Callable[[int, int], None]
"""Told the elements `[start, stop)` whose result is in the outputs now."""

_WIDEST = 8
"""Bytes of the widest element."""
_PIECE = 16 * 1024
"""Bytes: a result that spans tensors is read into each of them if they are this large on average, else copied there."""
_RECEIPT = memoryview(b"\0")
"""What comes back for a chunk whose result stays at the root."""


class Session(AnyPart):
    """One participant's collective (`attempt.Part`).

    Args:
        plan: the agreed plan.
        exchange: which of its chunks may be sent, and which may come.
        source: our contribution.
        target: where results go; the source itself for copies.
        adder: adds contributions up; None: nothing is added.
        progress: told the elements whose result is in the outputs.
        slots: memory for contributions of others.
        coder: how elements are written on the wire; None: as they are.
        circle: who may be to blame for its failure, if that is not only who takes part.
    """

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        source: Flat,
        target: Flat,
        adder: Adder | None,
        progress: Progress | None,
        slots: Slots,
        coder: Coder | None = None,
        *,
        circle: Sequence[PeerId] = (),
    ) -> None:
        super().__init__()
        self.exchange = exchange
        self.plan = plan
        self.sent = self.received = self.staging_peak = 0
        self._names = [PeerId(name) for name in plan.participants]
        self._indices = {name: node for node, name in enumerate(self._names)}
        self._source = source
        self._target = target
        self._adder = adder
        self._coder = coder
        self._circle = circle or self._names
        self._chunk_bytes = coder.chunk_bytes if coder else plan.chunk * source.partial_itemsize
        self._plain = coder is None and not source.widened
        """Elements travel as they are, sums too."""
        self._shares = [(share.start, share.stop) for share in plan.shares]
        self._progress = progress
        self._staged: dict[tuple[int, int], dict[int, memoryview]] = {}
        """Of each share and participant the contributions that have not been added, by the number of the chunk."""
        self._slots = slots
        self._staging = 0
        self._receipts = plan.kind == REDUCE
        self._early: dict[PeerId, list[Outgoing]] = {}
        """What was sent to whom before it had begun: it may have to drop that, and will say so."""
        self._again: dict[PeerId, list[Outgoing]] = {}
        """What is to be sent to whom once more, the first chunk last."""
        small = EAGER_BYTES // _WIDEST
        self._most_early = {node: int(exchange.longest(node) <= small) for node in exchange.neighbours}
        """How many chunks may be sent to whom before it has begun: one to anybody if it is small."""

    @property
    def peers(self) -> list[PeerId]:
        """With whom this participant exchanges chunks."""
        return [self._name(n) for n in self.exchange.neighbours]

    def rates(self) -> list[float | None]:
        """Give each neighbour's planned rate in bytes/s: its bytes over the predicted time, with a tenth to spare.

        None for whom the plan has no chunks from us: a rate of nothing would hold back what is said beside them.
        """
        planned = [self._planned(node) for node in self.exchange.neighbours]
        return [1.1 * each / max(self.plan.seconds, 1e-3) or None for each in planned]

    def _planned(self, node: int) -> int:
        """Count the bytes on the wire of all chunks that the plan has from us for `node`."""
        me, chunk, total = self.exchange.me, self.plan.chunk, 0
        for number, share in enumerate(self.plan.shares):
            up, down = share.reduce_parents[me] == node, share.broadcast_parents[node] == me
            for start, stop in (share.span(n, chunk) for n in range(share.chunks(chunk) if up or down else 0)):
                total += up * self._partial_size(me, number, stop - start) + down * self._result_size(stop - start)
        return total

    def attached(self, attachment: Attachment) -> None:
        """All neighbours are connected: let what can leave leave."""
        self._attachment = attachment
        for node, peer in zip(self.exchange.neighbours, self.peers, strict=True):
            ahead = attachment.ahead(peer)
            if ahead is not None:
                self.exchange.limit(node, ahead // self._chunk_bytes)
            self.exchange.spread(node, attachment.connections(peer))
            self._most_early[node] = max(self._most_early[node], self._leaving_in(attachment.early(peer), node))
        for peer in self.peers:
            attachment.kick(peer)

    def _leaving_in(self, seconds: float, node: int) -> int:
        """Count the chunks that leave in so many seconds by the plan: if it fails no more of it stand in a line.

        None by a plan that predicts nothing, as a process group's: of those hundreds may be under way, each with all.
        """
        if not self.plan.seconds:
            return 0
        planned = math.ceil(self.exchange.planned(node) * min(1.0, seconds / self.plan.seconds))
        return min(planned, EARLY_CHUNKS, EARLY_BYTES // self._chunk_bytes)

    async def work(self) -> None:
        """As `attempt.Part`."""
        await self.reduce_alone()
        await self.ended

    async def reduce_alone(self) -> None:
        """Finish what nobody else contributes to, chunk by chunk, letting the event loop breathe."""
        for piece in self.exchange.alone():
            self._finish(piece)
            await asyncio.sleep(0)
        self._check_end()

    def begun(self, peer: PeerId, again: int = 0) -> None:
        """As `channel.Receiver`."""
        self.exchange.begun(self._index(peer))
        if early := self._early.pop(peer, [])[:again]:
            self._again[peer] = early[::-1]
        self._kick(peer)

    def destination(
        self, peer: PeerId, partial: bool, share: int, chunk: int, size: int, *, passing: bool = False
    ) -> memoryview | list[memoryview] | None:
        """As `channel.Receiver`: a slot for a contribution, the outputs for a result that can land there.

        Raises:
            RemoteProtocolError: no such chunk can come from `peer` now, or not of that size.
        """
        piece, node = Piece(partial, share, chunk), self._indices[peer]
        self.exchange.expect(node, piece)
        start, stop = self._span(piece)
        expected = (
            (stop - start) * self._source.itemsize
            if self._plain and (partial or not self._receipts)
            else self._partial_size(node, share, stop - start)
            if partial
            else self._result_size(stop - start)
        )
        if size != expected:
            raise RemoteProtocolError(f"{peer} sent {size} bytes for {piece}, expected {expected}{DIFFER}")
        if partial:
            return None if passing else self._slot(size)
        if self._receipts or self._coder is not None:
            return None
        views = self._target.views(start, stop)
        if len(views) == 1:
            return views[0]
        return views if len(views) * _PIECE <= size else None

    def arrived(self, peer: PeerId, partial: bool, share: int, chunk: int, body: memoryview) -> None:
        """As `channel.Receiver`."""
        piece, node, exchange = Piece(partial, share, chunk), self._indices[peer], self.exchange
        if body:
            self.received += len(body)
            self._keep(piece, node, body)
        else:
            start, stop = self._span(piece)
            self.received += (stop - start) * self._target.itemsize
        for root_piece in exchange.arrived(node, piece):
            self._finish(root_piece)
        if self._progress is not None and not (partial or self._receipts):
            self._progress(*self._span(piece))
        if self._attachment is not None:
            for waiting in exchange.downstream(piece):
                self._attachment.kick(self._names[waiting])
        if partial:
            self._keep_passing(self._staged[share, node], chunk, body)
        self._check_end()

    def _slot(self, size: int) -> memoryview:
        slot = self._slots.borrow(self._chunk_bytes)
        self._staging += len(slot)
        self.staging_peak = max(self.staging_peak, self._staging)
        return memoryview(slot)[:size]

    def _keep_passing(self, staged: dict[int, memoryview], chunk: int, body: memoryview) -> None:
        """Copy a contribution that nobody could use yet, if it lies where it stands no longer."""
        if chunk in staged and not isinstance(body.obj, bytearray):
            staged[chunk] = self._slot(len(body))
            staged[chunk][:] = body

    def _keep(self, piece: Piece, node: int, body: memoryview) -> None:
        """Stage a contribution, or see to it that a result lies in the outputs."""
        share = piece.share
        if piece.partial:
            if self._coder is not None:
                self._coder.check(body, self._span(piece), own=self.exchange.is_leaf(share, node))
            self._staged.setdefault((share, node), {})[piece.chunk] = body
        elif not self._receipts:
            self._land(piece, body)

    def next_frame(self, peer: PeerId) -> Outgoing | None:
        """As `channel.Receiver`."""
        if self.ended.done():
            return None
        if self._again and peer in self._again:
            return self._next_again(peer)
        node = self._indices[peer]
        piece = self.exchange.next_send(node)
        if piece is not None:
            self._release()
            return self._outgoing(piece)
        piece = self.exchange.next_early(node, self._most_early[node])
        if piece is None:
            self._check_end()
            return None
        self._release()
        early = self._outgoing(piece).kept()
        self._early.setdefault(peer, []).append(early)
        return early

    def _next_again(self, peer: PeerId) -> Outgoing:
        again = self._again[peer]
        out = again.pop()
        if not again:
            del self._again[peer]
        return out

    def _release(self) -> None:
        """Wake whom we send to again since others have caught up: nobody else will."""
        for waiting in self.exchange.released():
            asyncio.get_running_loop().call_soon(self._kick, self._names[waiting])

    def _outgoing(self, piece: Piece) -> Outgoing:
        start, stop = self._span(piece)
        if piece.partial and not self.exchange.is_leaf(piece.share, self.exchange.me):
            size = self._partial_size(self.exchange.me, piece.share, stop - start)
            self.sent += size
            make = functools.partial(self._make_partial, piece)
            return Outgoing(True, piece.share, piece.chunk, size=size, make=make)
        stable = True
        views: Sequence[bytes | memoryview]
        if not piece.partial:
            views = [_RECEIPT] if self._receipts else self._result(start, stop)
        else:
            views = [self._coder.contribution(start, stop)] if self._coder else self._source.views(start, stop)
            stable = self._coder is None
        self.sent += sum(map(len, views))
        return Outgoing(piece.partial, piece.share, piece.chunk, views, stable)

    def waiting_on(self, peer: PeerId) -> bool:
        """As `channel.Receiver`."""
        node = self._index(peer)
        return node not in self.exchange.silent() and node in self.exchange.waiting_on()

    def owing_to(self, peer: PeerId) -> bool:
        """As `channel.Receiver`."""
        return self.exchange.owes(self._index(peer)) or peer in self._early or peer in self._again

    def lost(self, peer: PeerId, reason: str, suspects: Sequence[PeerId]) -> None:
        """As `channel.Receiver`: the collective fails, unless nothing is owed to or by `peer` any more."""
        if not (self.owing_to(peer) or self._index(peer) in self.exchange.waiting_on()):
            self._check_end()  # its connection may have been full since the last chunk for it: nobody else would ask
        else:
            known = [name for name in self._circle if name in suspects]
            self.broke(ParticipantLost(f"{peer}: {reason}", known or [peer]))

    def silent(self) -> list[PeerId]:
        """Name the neighbours that have not begun."""
        return [self._name(n) for n in self.exchange.silent()]

    def owing(self) -> list[PeerId]:
        """Name whom we wait for: those that have not begun, or else those that owe chunks."""
        nodes = self.exchange.silent() or sorted(self.exchange.waiting_on())
        return [self._name(n) for n in nodes]

    def _make_partial(self, piece: Piece, room: memoryview) -> None:
        """Add up where the sum leaves from: it need not be written anywhere else."""
        taken = self._take(piece)
        start, stop = self._span(piece)
        if self._coder is not None:
            room[:] = self._coder.partial(start, stop, taken)
        else:
            assert self._adder is not None
            self._adder.partial(start, stop, taken, room)
        self._return(taken)

    def _result(self, start: int, stop: int) -> list[memoryview]:
        return [self._coder.result(start)] if self._coder else self._target.views(start, stop)

    def _land(self, piece: Piece, body: memoryview) -> None:
        start, stop = self._span(piece)
        if self._coder is not None:
            self._coder.land(start, stop, body, self.exchange.copies(piece.share))
        elif not self._target.together(start, stop):
            self._target.write(start, stop, body)

    def _finish(self, piece: Piece) -> None:
        assert self._adder is not None
        taken = self._take(piece)
        if self._coder is not None:
            self._coder.finish(*self._span(piece), taken, self.exchange.copies(piece.share))
        else:
            self._adder.finish(*self._span(piece), taken)
        self._return(taken)
        if self._progress is not None:
            self._progress(*self._span(piece))

    def _take(self, piece: Piece) -> dict[int, tuple[memoryview, bool]]:
        """Take what every child has contributed to a chunk."""
        taken = {}
        for child in self.exchange.contributors(piece.share):
            body = self._staged[piece.share, child].pop(piece.chunk)
            taken[child] = (body, self.exchange.is_leaf(piece.share, child))
        return taken

    def _return(self, taken: dict[int, tuple[memoryview, bool]]) -> None:
        """Give the slots of partials back that have been added."""
        for body, _ in taken.values():
            slot = body.obj
            if isinstance(slot, bytearray):
                self._staging -= len(slot)
                self._slots.give_back(slot)

    def _check_end(self) -> None:
        """End if nothing is owed; what went ahead is, until we hear that it was kept or have sent it again."""
        if self.exchange.finished and not (self._early or self._again or self.ended.done()):
            self.ended.set_result(None)

    def _kick(self, peer: PeerId) -> None:
        if self._attachment is not None:
            self._attachment.kick(peer)

    def _partial_size(self, node: int, share: int, elements: int) -> int:
        own = self.exchange.is_leaf(share, node)
        if self._coder is not None:
            return self._coder.partial_size(elements, own=own)
        return elements * (self._source.itemsize if own else self._source.partial_itemsize)

    def _result_size(self, elements: int) -> int:
        if self._receipts:
            return len(_RECEIPT)
        return self._coder.result_size(elements) if self._coder else elements * self._target.itemsize

    def _span(self, piece: Piece) -> tuple[int, int]:
        start, end = self._shares[piece.share]
        start += piece.chunk * self.plan.chunk
        return start, min(start + self.plan.chunk, end)

    def _index(self, peer: PeerId) -> int:
        return self._indices[peer]

    def _name(self, node: int) -> PeerId:
        return self._names[node]
