"""Run a plan: bind the pure `Exchange` to tensors and connections.

Everything happens in callbacks of the connections: a chunk arrives, is added or lands in the output, and what it
makes ready is pulled by the connection that can take it. There is no task and no queue per chunk.

What a caller may rely on:

- **Inputs are never written**, so a retry starts from them. Outputs hold garbage until the call returns.
- **All or an exception.** A participant that dies, stalls, or gives up ends the call everywhere within the stall
  deadline: whoever notices tells its neighbours, and each passes it on once.
- When the call ends, in either way, nothing refers to the caller's tensors any more. When it returns, the kernel has
  all that others need from us: they can finish even if this process does nothing but compute from then on.
- Memory beside the tensors: partials of at most the room that the plan asks of us, which is no more than
  `Links.slots.limit`, or of `exchange.STAGING_BYTES` where it asks for none; and per connection two chunks.

Deadlock freedom is argued in `exchange`. Its only assumption on connections is that a reader always reads: `_Session`
therefore takes every chunk that `Exchange.expect` allows, and calls everything else a fault of the sender.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from msgspec import structs

from ictp2p.collectives.channel import (
    EAGER_BYTES,
    Attachment,
    CollectiveTimeout,
    Links,
    Outgoing,
    ParticipantLost,
    RoundTag,
    Slots,
)
from ictp2p.collectives.codecs.schemes import scheme
from ictp2p.collectives.coding import Coder
from ictp2p.collectives.exchange import Exchange, Piece
from ictp2p.collectives.plan import BROADCAST, REDUCE, Plan, check
from ictp2p.collectives.tensors import Adder, Array, Flat, Weights
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.types import PeerId

Tensors: TypeAlias = Sequence[torch.Tensor | Array]
Progress: TypeAlias = Callable[[int, int], None]
"""Told the elements `[start, stop)` whose result is in the outputs now."""

_WIDEST = 8
"""Bytes of the widest element."""
_PIECE = 16 * 1024
"""Bytes: a result that spans tensors is read into each of them if they are this large on average, else copied there."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
_RECEIPT = memoryview(b"\0")
"""What comes back for a chunk whose result stays at the root."""


@dataclass(frozen=True, slots=True)
class ExecuteProfile:
    """Deadlines of one collective, in seconds. The stall deadline belongs to the connections (`BulkProfile`)."""

    connect: float = 10.0
    """To reach all neighbours, dialing included. Longer tolerates slower dials and delays the next attempt."""
    start: float = 10.0
    """For all neighbours to begin the same attempt; they learn of it from the control plane."""
    total: float = 3600.0
    """For the whole collective. A safety net: a participant that makes no progress is found by its stall."""
    pace: bool = False
    """Pace each edge at the plan's own rate, so that parallel flows share a link as planned. Sharing without pacing
    cost up to 21 % in a fluid model; worth it where bandwidths were measured, harmful where they were guessed."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a collective moved."""

    bytes_sent: int
    bytes_received: int
    seconds: float
    staging_peak: int
    """The most bytes of partials held at once."""


async def all_reduce(
    plan: Plan,
    me: int,
    inputs: Tensors,
    outputs: Tensors,
    links: Links,
    tag: RoundTag,
    *,
    weights: Sequence[float] | None = None,
    op: str = "avg",
    in_place: bool = False,
    progress: Progress | None = None,
    profile: ExecuteProfile | None = None,
) -> Stats:
    """Reduce `inputs` over all participants of `plan` into `outputs`, the same bits everywhere.

    Args:
        plan: the agreed plan.
        me: our index in `plan.participants`.
        inputs: our contribution, contiguous, on the host; never written.
        outputs: as many elements, sharing no memory with the inputs.
        links: the connections.
        tag: fences this attempt.
        weights: one per participant, for `op="avg"`; equal if None.
        op: "avg" (weighted), "sum", "product", "min", "max", "band", "bor" or "bxor".
        in_place: the outputs may be the inputs: no memory beside them, but what is there after a failure is garbage.
        progress: called as results arrive.
        profile: deadlines.

    Raises:
        ConfigError: tensors, weights and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    if plan.kind in (BROADCAST, REDUCE):
        raise ConfigError(f"a {plan.kind}'s plan does not give everybody a sum")
    source, target = Flat(inputs, "inputs"), Flat(outputs, "outputs")
    _check_fit(plan, me, source, target)
    if not in_place and source.overlaps(target):
        raise ConfigError("outputs share memory with inputs: the contribution must survive a failed attempt")
    scale = _scale(plan, weights, op, source)
    coder, written = None, scheme(plan.codec, len(plan.participants))
    if written is not None:
        coder = Coder(written, source, target, scale, me, min(plan.chunk, source.elements))
    exchange = Exchange(plan, me, coder.chunk_bytes if coder else plan.chunk * source.partial_itemsize)
    adder = Adder(source, target, scale, me, plan.chunk)
    session = _Session(plan, exchange, source, target, adder, progress, links.slots, coder)
    return await _run(session, links, tag, profile)


async def broadcast(
    plan: Plan,
    me: int,
    tensors: Tensors,
    links: Links,
    tag: RoundTag,
    *,
    progress: Progress | None = None,
    profile: ExecuteProfile | None = None,
) -> Stats:
    """Copy each share of `tensors` from its root to all others, along the plan's broadcast trees.

    Raises:
        ConfigError: tensors and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    flat = Flat(tensors)
    _check_fit(plan, me, flat, flat)
    exchange = Exchange(plan, me, plan.chunk * flat.itemsize, reduce=False)
    return await _run(_Session(plan, exchange, flat, flat, None, progress, links.slots), links, tag, profile)


async def reduce(
    plan: Plan,
    me: int,
    inputs: Tensors,
    outputs: Tensors,
    links: Links,
    tag: RoundTag,
    *,
    weights: Sequence[float] | None = None,
    op: str = "sum",
    progress: Progress | None = None,
    profile: ExecuteProfile | None = None,
) -> Stats:
    """Reduce `inputs` over all participants; each share's result is only at its root: a reduction, or a scattered one.

    Args:
        plan: of kind `REDUCE`.
        me: our index in `plan.participants`.
        inputs: our contribution, contiguous, on the host; never written unless the outputs are part of it.
        outputs: the elements of the shares that we are the root of, in order, cut where the inputs are or more
            coarsely.
        links: the connections.
        tag: fences this attempt.
        weights: as `all_reduce`.
        op: as `all_reduce`.
        progress: called as results are made.
        profile: deadlines.

    Raises:
        ConfigError: tensors and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    source = Flat(inputs, "inputs")
    if plan.kind != REDUCE:
        raise ConfigError(f"a plan of kind {plan.kind!r} gives its results to everybody")
    target = Flat.placed(_placed(plan, me, source, Flat(outputs, "outputs")), source, "outputs")
    _check_plan(plan, me, source)
    exchange = Exchange(plan, me, plan.chunk * source.partial_itemsize)
    adder = Adder(source, target, _scale(plan, weights, op, source), me, plan.chunk)
    return await _run(_Session(plan, exchange, source, target, adder, progress, links.slots), links, tag, profile)


def _scale(plan: Plan, weights: Sequence[float] | None, op: str, source: Flat) -> Weights:
    scale = Weights(weights if weights is not None else [1.0] * len(plan.participants), op, source)
    if len(scale.factors) != len(plan.participants):
        raise ConfigError(f"{len(scale.factors)} weights for {len(plan.participants)} participants")
    return scale


def _placed(plan: Plan, me: int, source: Flat, outputs: Flat) -> list[tuple[int, torch.Tensor]]:
    """Find the place of each output in the vector, and room for the sums that only pass through us."""
    pieces: list[tuple[int, torch.Tensor]] = []
    left = list(reversed(outputs.tensors))
    for share in plan.shares:
        position = share.start
        while share.root == me and position < share.stop:
            if not left:
                raise ConfigError(f"outputs do not fit elements [{position}, {share.stop}) of the plan")
            whole = left.pop()
            piece, rest = whole[: share.stop - position], whole[share.stop - position :]
            left += [rest] if len(rest) else []
            pieces.append((position, piece))
            position += len(piece)
        if share.root != me and me in share.reduce_parents and not source.widened:
            pieces.append((share.start, torch.empty(share.stop - share.start, dtype=source.dtype)))
    if left:
        raise ConfigError(f"{len(left)} outputs more than the plan has elements for participant {me}")
    return pieces


class _Session:
    """One participant's collective, as its connections see it (`channel.Receiver`)."""

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
    ) -> None:
        self.exchange = exchange
        self.plan = plan
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = self.received = self.staging_peak = 0
        self._names = [PeerId(name) for name in plan.participants]
        self._indices = {name: node for node, name in enumerate(self._names)}
        self._source = source
        self._target = target
        self._adder = adder
        self._coder = coder
        self._chunk_bytes = coder.chunk_bytes if coder else plan.chunk * source.partial_itemsize
        self._plain = coder is None and not source.widened
        """Elements travel as they are, sums too."""
        self._shares = [(share.start, share.stop) for share in plan.shares]
        self._progress = progress
        self._attachment: Attachment | None = None
        self._staged: dict[tuple[int, int], deque[memoryview]] = {}
        self._slots = slots
        self._staging = 0
        self._receipts = plan.kind == REDUCE
        self._early: dict[PeerId, Outgoing] = {}
        """What was sent to whom before it had begun: it may have to drop that, and will say so."""
        self._again: dict[PeerId, Outgoing] = {}

    @property
    def peers(self) -> list[PeerId]:
        return [self._name(n) for n in self.exchange.neighbours]

    def rates(self) -> list[float | None]:
        """Give each neighbour's planned rate in bytes/s: its bytes over the predicted time, with a tenth to spare.

        None for whom the plan has no chunks from us: a rate of nothing would hold back what is said beside them.
        """
        per_element = self._chunk_bytes / self.plan.chunk if self._coder else self._source.itemsize
        planned = [planned_bytes(self.plan, self.exchange.me, n, 1) for n in self.exchange.neighbours]
        return [1.1 * each * per_element / max(self.plan.seconds, 1e-3) or None for each in planned]

    def attached(self, attachment: Attachment) -> None:
        self._attachment = attachment
        for node in self.exchange.neighbours:
            ahead = attachment.ahead(self._name(node))
            if ahead is not None:
                self.exchange.limit(node, ahead // self._chunk_bytes)
        for peer in self.peers:
            attachment.kick(peer)

    async def reduce_alone(self) -> None:
        """Finish what nobody else contributes to, chunk by chunk, letting the event loop breathe."""
        for piece in self.exchange.alone():
            self._finish(piece)
            await asyncio.sleep(0)
        self._check_end()

    def begun(self, peer: PeerId, again: bool = False) -> None:
        self.exchange.begun(self._index(peer))
        early = self._early.pop(peer, None)
        if again and early is not None:
            self._again[peer] = early
        self._kick(peer)

    def destination(
        self, peer: PeerId, partial: bool, share: int, chunk: int, size: int
    ) -> memoryview | list[memoryview] | None:
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
            raise RemoteProtocolError(f"{peer} sent {size} bytes for {piece}, expected {expected}")
        if partial:
            slot = self._slots.borrow(self._chunk_bytes)
            self._staging += len(slot)
            self.staging_peak = max(self.staging_peak, self._staging)
            return memoryview(slot)[:size]
        if self._receipts or self._coder is not None:
            return None
        views = self._target.views(start, stop)
        if len(views) == 1:
            return views[0]
        return views if len(views) * _PIECE <= size else None

    def arrived(self, peer: PeerId, partial: bool, share: int, chunk: int, body: memoryview) -> None:
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
        self._check_end()

    def _keep(self, piece: Piece, node: int, body: memoryview) -> None:
        """Stage a contribution, or see to it that a result lies in the outputs."""
        share = piece.share
        if piece.partial:
            if self._coder is not None:
                self._coder.check(body, self._span(piece), own=self.exchange.is_leaf(share, node))
            self._staged.setdefault((share, node), deque()).append(body)
        elif not self._receipts:
            self._land(piece, body)

    def next_frame(self, peer: PeerId) -> Outgoing | None:
        if self._again and peer in self._again:
            return self._again.pop(peer)
        if self.ended.done():
            return None
        node = self._indices[peer]
        piece = self.exchange.next_send(node)
        if piece is not None:
            for waiting in self.exchange.released():
                asyncio.get_running_loop().call_soon(self._kick, self._names[waiting])
            return self._outgoing(piece)
        piece = self.exchange.next_early(node, EAGER_BYTES // _WIDEST)
        if piece is None:
            self._check_end()
            return None
        early = self._outgoing(piece)
        self._early[peer] = early if early.stable else structs.replace(early, views=[b"".join(early.views)])
        return early

    def _outgoing(self, piece: Piece) -> Outgoing:
        start, stop = self._span(piece)
        stable = True
        views: Sequence[bytes | memoryview]
        if not piece.partial:
            views = [_RECEIPT] if self._receipts else self._result(start, stop)
        elif self.exchange.is_leaf(piece.share, self.exchange.me):
            views = [self._coder.contribution(start, stop)] if self._coder else self._source.views(start, stop)
            stable = self._coder is None
        else:
            views = self._partial(piece.share, start, stop)
            stable = self._coder is None and not self._source.widened
        self.sent += sum(map(len, views))
        return Outgoing(piece.partial, piece.share, piece.chunk, views, stable)

    def waiting_on(self, peer: PeerId) -> bool:
        node = self._index(peer)
        return node not in self.exchange.silent() and node in self.exchange.waiting_on()

    def lost(self, peer: PeerId, reason: str, suspects: Sequence[PeerId]) -> None:
        if not self.ended.done() and self.exchange.involves(self._index(peer)):
            known = [name for name in self.plan.participants if name in suspects]
            self.ended.set_exception(ParticipantLost(f"{peer}: {reason}", [PeerId(name) for name in known] or [peer]))
            self.ended.exception()  # whoever waited may have gone: that is no news to the event loop

    def owing(self) -> list[PeerId]:
        """Name whom we wait for: those that have not begun, or else those that owe chunks."""
        nodes = self.exchange.silent() or sorted(self.exchange.waiting_on())
        return [self._name(n) for n in nodes]

    def _partial(self, share: int, start: int, stop: int) -> list[memoryview]:
        assert self._adder is not None
        taken = self._take(share)
        coder = self._coder
        views = [coder.partial(start, stop, taken)] if coder else self._adder.partial(start, stop, taken)
        self._return(taken)
        return views

    def _result(self, start: int, stop: int) -> list[memoryview]:
        return [self._coder.result(start, stop)] if self._coder else self._target.views(start, stop)

    def _land(self, piece: Piece, body: memoryview) -> None:
        start, stop = self._span(piece)
        if self._coder is not None:
            me = self.exchange.me
            self._coder.land(start, stop, body, passed_on=me in self.plan.shares[piece.share].broadcast_parents)
        elif not self._target.together(start, stop):
            self._target.write(start, stop, body)

    def _finish(self, piece: Piece) -> None:
        assert self._adder is not None
        taken = self._take(piece.share)
        (self._coder or self._adder).finish(*self._span(piece), taken)
        self._return(taken)
        if self._progress is not None:
            self._progress(*self._span(piece))

    def _take(self, share: int) -> dict[int, tuple[memoryview, bool]]:
        """Take the oldest staged partial of every child."""
        taken = {}
        for child in self.exchange.contributors(share):
            body = self._staged[share, child].popleft()
            taken[child] = (body, self.exchange.is_leaf(share, child))
        return taken

    def _return(self, taken: dict[int, tuple[memoryview, bool]]) -> None:
        """Give the slots of partials back that have been added."""
        for body, _ in taken.values():
            slot = body.obj
            assert isinstance(slot, bytearray)
            self._staging -= len(slot)
            self._slots.give_back(slot)

    def _check_end(self) -> None:
        if not self.ended.done() and self.exchange.finished:
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


async def _run(session: _Session, links: Links, tag: RoundTag, profile: ExecuteProfile | None) -> Stats:
    profile = profile or ExecuteProfile()
    asked = session.plan.room(session.exchange.me)
    if asked > links.slots.limit:
        raise ConfigError(f"the plan asks for a room of {asked} bytes, and {links.slots.limit} are the most here")
    loop = asyncio.get_running_loop()
    began = loop.time()
    rates = session.rates() if profile.pace else None
    attachment = await links.attach(tag.wire(), session, session.peers, timeout=profile.connect, rates=rates)
    try:
        session.attached(attachment)
        starting = loop.call_later(profile.start, _check_start, session, profile.start)
        try:
            async with asyncio.timeout(profile.total):
                await session.reduce_alone()
                await session.ended
                await attachment.flushed()
        finally:
            starting.cancel()
    except TimeoutError:
        error = CollectiveTimeout(
            f"not finished after {profile.total} s, waiting for {session.owing()}", session.owing()
        )
        await attachment.abort(str(error), error.suspects)
        raise error from None
    except (ParticipantLost, CollectiveTimeout) as error:
        await attachment.abort(str(error), error.suspects)
        raise
    except BaseException as error:
        await attachment.abort(f"gave up: {type(error).__name__}", ())
        raise
    attachment.detach()
    return Stats(session.sent, session.received, loop.time() - began, session.staging_peak)


def _check_start(session: _Session, seconds: float) -> None:
    if session.exchange.silent() and not session.ended.done():
        late = session.owing()
        session.ended.set_exception(CollectiveTimeout(f"{late} did not begin within {seconds} s", late))


def planned_bytes(plan: Plan, source: int, target: int, itemsize: int) -> int:
    """Count the bytes that the plan sends from participant `source` to participant `target`."""
    return itemsize * sum(
        (share.stop - share.start)
        * ((share.reduce_parents[source] == target) + (share.broadcast_parents[target] == source))
        for share in plan.shares
    )


def _check_fit(plan: Plan, me: int, source: Flat, target: Flat) -> None:
    _check_plan(plan, me, source)
    if source.dtype != target.dtype or [len(t) for t in source.tensors] != [len(t) for t in target.tensors]:
        raise ConfigError("outputs differ from inputs in type or sizes")


def _check_plan(plan: Plan, me: int, source: Flat) -> None:
    problem = check(plan, plan.participants, source.elements)
    if problem:
        raise ConfigError(f"the plan does not fit: {problem}")
    if not 0 <= me < len(plan.participants):
        raise ConfigError(f"index {me} is not among {len(plan.participants)} participants")
    if plan.chunk * source.partial_itemsize > MAX_CHUNK_BYTES:
        raise ConfigError(f"chunks of {plan.chunk * source.partial_itemsize} bytes exceed {MAX_CHUNK_BYTES}")
