"""Run a plan: bind the pure `Exchange` to tensors and connections.

Everything happens in callbacks of the connections: a chunk arrives, is added or lands in the output, and what it
makes ready is pulled by the connection that can take it. There is no task and no queue per chunk.

What a caller may rely on, beside what `attempt` promises:

- **Inputs are never written**, so a retry starts from them. Outputs hold garbage until the call returns.
- Memory beside the tensors: partials of at most the room that the plan asks of us, which is no more than
  `Links.slots.limit`, or of `windows.STAGING_BYTES` where it asks for none; per connection two chunks; and where
  chunks are encoded, results that wait for whoever is behind, which are no more than partials can be (`coding`).

Deadlock freedom is argued in `exchange`. Its only assumption on connections is that a reader always reads: `Session`
therefore takes every chunk that `Exchange.expect` allows, and calls everything else a fault of the sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ictp2p.collectives.channel import Links, RoundTag
from ictp2p.collectives.codecs.schemes import scheme
from ictp2p.collectives.plan import BROADCAST, ONE_SHOT, REDUCE, Plan
from ictp2p.collectives.running import one_shot
from ictp2p.collectives.running.alike import add_up
from ictp2p.collectives.running.attempt import ExecuteProfile, carry_out
from ictp2p.collectives.running.coding import Coder
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.fitting import check_fit, check_plan, placed, scaled
from ictp2p.collectives.running.flat import Array, Flat
from ictp2p.collectives.running.session import Progress, Session
from ictp2p.collectives.running.sums import Adder, Weights
from ictp2p.errors import ConfigError
from ictp2p.types import PeerId

Tensors: TypeAlias = Sequence[torch.Tensor | Array] | Flat


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
    circle: Sequence[PeerId] = (),
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
        circle: who may be to blame for a failure, where others than the participants do something beside this.

    Raises:
        ConfigError: tensors, weights and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    if plan.kind in (BROADCAST, REDUCE):
        raise ConfigError(f"a {plan.kind}'s plan does not give everybody a sum")
    source = Flat.of(inputs, "inputs")
    target = source if outputs is inputs else Flat.of(outputs, "outputs")
    check_fit(plan, me, source, target)
    overlap = source.overlaps(target)
    if overlap and not in_place:
        raise ConfigError("outputs share memory with inputs: the contribution must survive a failed attempt")
    scale = scaled(plan, weights, op, source)
    if plan.kind == ONE_SHOT:
        return await _in_one_shot(plan, me, source, target, scale, links, tag, progress, profile)
    coder, written = None, scheme(plan.codec, len(plan.participants))
    if written is not None:
        coder = Coder(written, source, target, scale, me, min(plan.chunk, source.elements))
    exchange = Exchange(plan, me, coder.chunk_bytes if coder else plan.chunk * source.partial_itemsize)
    adder = Adder(source, target, scale, me, plan.chunk, in_place=overlap)
    session = Session(plan, exchange, source, target, adder, progress, links.slots, coder, circle=circle)
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
    circle: Sequence[PeerId] = (),
) -> Stats:
    """Copy each share of `tensors` from its root to all others, along the plan's broadcast trees.

    Ends at a root once those that it sends to have begun: it has kept what went ahead to them until then. The `circle`
    is as `all_reduce`'s.

    Raises:
        ConfigError: tensors and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    if plan.kind == ONE_SHOT:
        raise ConfigError(f"a {ONE_SHOT}'s plan copies nothing")
    flat = Flat.of(tensors)
    check_fit(plan, me, flat, flat)
    exchange = Exchange(plan, me, plan.chunk * flat.itemsize, reduce=False)
    session = Session(plan, exchange, flat, flat, None, progress, links.slots, circle=circle)
    return await _run(session, links, tag, profile)


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
    circle: Sequence[PeerId] = (),
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
        circle: as `all_reduce`.

    Raises:
        ConfigError: tensors and plan do not fit together.
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
    """
    source = Flat.of(inputs, "inputs")
    if plan.kind != REDUCE:
        raise ConfigError(f"a plan of kind {plan.kind!r} gives its results to everybody")
    check_plan(plan, me, source)
    target = Flat.placed(placed(plan, me, Flat.of(outputs, "outputs")), source, "outputs")
    exchange = Exchange(plan, me, plan.chunk * source.partial_itemsize)
    scale, overlap = scaled(plan, weights, op, source), source.overlaps(target)
    adder = Adder(source, target, scale, me, plan.chunk, in_place=overlap)
    session = Session(plan, exchange, source, target, adder, progress, links.slots, circle=circle)
    return await _run(session, links, tag, profile)


async def _run(session: Session, links: Links, tag: RoundTag, profile: ExecuteProfile | None) -> Stats:
    asked = session.plan.room(session.exchange.me)
    if asked > links.slots.limit:
        raise ConfigError(f"the plan asks for a room of {asked} bytes, and {links.slots.limit} are the most here")
    began = asyncio.get_running_loop().time()
    await carry_out(session, links, tag, profile or ExecuteProfile())
    return Stats(session.sent, session.received, asyncio.get_running_loop().time() - began, session.staging_peak)


async def _in_one_shot(
    plan: Plan,
    me: int,
    source: Flat,
    target: Flat,
    weights: Weights,
    links: Links,
    tag: RoundTag,
    progress: Progress | None,
    profile: ExecuteProfile | None,
) -> Stats:
    loop = asyncio.get_running_loop()
    began, others = loop.time(), len(plan.participants) - 1
    body = b"".join(source.views(0, source.elements))
    names = [PeerId(name) for name in plan.participants]
    bodies = await one_shot.swap(names, me, [len(body)] * len(names), body, links, tag, profile)
    add_up(bodies, target, weights)
    if progress is not None:
        progress(0, target.elements)
    return Stats(others * len(body), others * len(body), loop.time() - began, others * len(body))
