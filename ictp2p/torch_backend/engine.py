"""The collectives of one group as coroutines on host memory, each a plan that `collectives.running.execute` runs.

torch tells a group nothing about its network, so all links are taken for equal, and then the direct schedules are
optimal: every rank is the root of an equal share of an all-reduce (the star, which the planner would choose as well),
and a scattered reduction or a gathered copy is one half of that. Only a reduction to one rank and a broadcast put the
whole vector on one rank's link however they are arranged; a chain there carries it once where a star would carry it
size - 1 times, and costs a chunk's time per hop.

**Small tensors** go in one shot (`running.one_shot`): every rank sends what it has to every other, and each adds
all of it up in the same order: one hop instead of two, and still equal bits.

**Messages between two ranks** are broadcasts in a group of two. So there is one format of plans, one executor and one
set of connections, with their deadlines, seals and detection of deaths, under everything.

Frames are told apart by a tag made of the group and the call's number, so several calls may be under way. Each rank
says with it what it calls: all of them, or else a sum here would meet a maximum there, without a word. Whose call moves
nothing says so only to those who begin it, and waits for nobody.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ictp2p.bulk import Bulk
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, REDUCE, Plan, Share, one_shot_plan
from ictp2p.collectives.planning.candidates import CHUNK
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.running import execute, one_shot
from ictp2p.collectives.running.attempt import ExecuteProfile, together
from ictp2p.collectives.running.flat import Flat
from ictp2p.errors import printable
from ictp2p.types import PeerId

SMALL = 64 * 1024
"""Bytes that a rank sends at most when everybody copies everything: above, two hops are faster than more bytes."""
_MOST = 400
"""Letters of what is said of a call that was refused."""
_TOO_LATE = "its time was over before it was its turn"
_FEW = 8
"""Most parts whose lengths an error says one by one."""
CHAIN = 4 * 1024 * 1024
"""Bytes from which a chain beats a star from or to one rank: its chunks must hide the hops."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call: what its frames are told apart by, and how long it may take."""

    kind: str
    """What is called."""
    number: int
    timeout: float
    """Seconds, for the slowest rank to come and for the bytes to move."""
    line: str = ""
    """In which calls it is the `number`th: that of the collectives, or of the messages under a tag."""
    part: int = 0
    """Which part of the call, if it has several, one after the other."""
    then: str = ""
    """What is told of the parts that follow."""


class Engine:
    """One rank's side of all collectives of a group.

    Args:
        bulk: the connections.
        names: the peer of each rank.
        rank: ours.
        group: names the group; no other group has the same.
    """

    def __init__(self, bulk: Bulk, names: Sequence[PeerId], rank: int, group: bytes) -> None:
        self.names = tuple(names)
        self.rank = rank
        self.size = len(names)
        self._bulk = bulk
        self._group = group

    def forgo(self, step: Step, words: str = "") -> None:
        """A collective is over here without a byte: who begins it hears that we call it, with these `words` behind."""
        tag = self._tag(step, printable(words)[:_MOST])
        self._bulk.forgo(tag.wire(), tag.call)

    def give_up(self, step: Step, error: Exception) -> None:
        """A collective has failed here, perhaps before it began: it is over for all who begin it."""
        why = _TOO_LATE if isinstance(error, TimeoutError) else type(error).__name__
        self._bulk.give_up(self._tag(step).wire(), why)

    async def one_by_one(self, step: Step, parts: Sequence[tuple[Step, Callable[[], Awaitable[None]]]]) -> None:
        """Run the parts of a call; one that fails is over, begun or not, and those behind it: others may be there."""
        for number, (_, run) in enumerate(parts):
            try:
                await run()
            except Exception as error:
                for part, _ in parts[number:]:
                    self.give_up(part, error)
                raise
        if not parts:
            self.forgo(step, " of nothing")

    async def all_reduce(self, step: Step, tensors: Sequence[Tensor], op: str) -> None:
        """Replace the tensors, which are of one type, by their sum (or what `op` says) over all ranks.

        Where they share memory each is taken for what it was before the call: in place, one's sum would be another's
        contribution.
        """
        flat = Flat(tensors)
        tag = self._tag(step, f" of {_elements(flat)} ({op})")
        if not flat.elements:
            self._bulk.forgo(tag.wire(), tag.call)
            return
        if flat.tangled():
            copies = [tensor.clone() for tensor in tensors]
            await self.all_reduce(step, copies, op)
            for tensor, summed in zip(tensors, copies, strict=True):
                tensor.copy_(summed)
            return
        if self._is_small(flat.elements * flat.itemsize):
            plan = one_shot_plan(self.names, flat.elements)
        else:
            trees = star.trees(self.size)
            cuts = [flat.elements * n // self.size for n in range(self.size + 1)]
            shares = tuple(Share(a, b, *tree) for tree, a, b in zip(trees, cuts, cuts[1:], strict=False))
            plan = self._plan("star", self.names, shares, flat.partial_itemsize)
        await execute.all_reduce(
            plan,
            self.rank,
            flat,
            flat,
            self._bulk,
            tag,
            op=op,
            in_place=True,
            profile=_profile(step),
        )

    async def reduce(
        self, step: Step, tensors: Sequence[Tensor], outputs: Sequence[Tensor], root: int, op: str
    ) -> None:
        """Reduce the tensors over all ranks into `outputs`, of the same sizes, at rank `root`; elsewhere give none."""
        flat = Flat(tensors)
        tag = self._tag(step, f" of {_elements(flat)} to rank {root} ({op})")
        if not flat.elements:
            self._bulk.forgo(tag.wire(), tag.call)
            return
        parents = self._spanning(root, flat.elements * flat.itemsize)
        plan = self._plan(REDUCE, self.names, (Share(0, flat.elements, root, parents, parents),), flat.partial_itemsize)
        await execute.reduce(plan, self.rank, flat, outputs, self._bulk, tag, op=op, profile=_profile(step))

    async def reduce_scatter(
        self, step: Step, inputs: Sequence[Sequence[Tensor]], outputs: Sequence[Tensor], op: str
    ) -> None:
        """Reduce several vectors; of each, rank n gets part n.

        Args:
            step: which call.
            inputs: for each vector its parts, one per rank.
            outputs: for each vector our part of the result; may lie where our part of the input does.
            op: what is done.
        """
        ranks = list(zip(*inputs, strict=True))
        parts = [part for each in ranks for part in each]
        flat, spans = Flat(parts), list(_spans(ranks))
        tag = self._tag(step, f" of {_elements(flat)}{_cut(spans)} ({op})")
        if not flat.elements:
            self._bulk.forgo(tag.wire(), tag.call)
            return
        shares = tuple(
            Share(a, b, tree.root, tree.reduce_parents, tree.reduce_parents)
            for tree, (a, b) in zip(star.trees(self.size), spans, strict=True)
        )
        plan = self._plan(REDUCE, self.names, shares, flat.partial_itemsize)
        await execute.reduce(plan, self.rank, flat, outputs, self._bulk, tag, op=op, profile=_profile(step))

    async def all_gather(self, step: Step, parts: Sequence[Tensor]) -> None:
        """Fill in all parts, of which ours is there; `parts[i]` is that of rank `i % size`. Bytes."""
        ranks = [parts[n :: self.size] for n in range(self.size)]
        ordered, spans = [part for each in ranks for part in each], list(_spans(ranks))
        lengths = [stop - start for start, stop in spans]
        tag = self._tag(step, f" of {sum(lengths)} bytes{_cut(spans)}")
        if min(lengths) and self._is_small(max(lengths)):
            flat = Flat(ordered)
            bodies = await self._swap(step, tag, lengths, b"".join(flat.views(*spans[self.rank])))
            for (start, stop), body in zip(spans, bodies, strict=True):
                flat.write(start, stop, memoryview(body))
            return
        shares = tuple(
            self._copied(a, b, n, star.star(self.size, n).broadcast_parents) for n, (a, b) in enumerate(spans)
        )
        await self._broadcast(step, tag, self.names, self.rank, shares, ordered)

    async def broadcast(self, step: Step, tensors: Sequence[Tensor], root: int) -> None:
        """Copy the root's bytes to all."""
        size = sum(tensor.numel() for tensor in tensors)
        shares = (self._copied(0, size, root, self._spanning(root, size)),)
        tag = self._tag(step, f" of {size} bytes from rank {root}")
        await self._broadcast(step, tag, self.names, self.rank, shares, tensors)

    async def barrier(self, step: Step) -> None:
        """Wait until every rank is here."""
        await self._swap(step, self._tag(step), [1] * self.size, b"\0")

    async def exchange(self, step: Step, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        """Send bytes to some ranks and receive bytes from some; both ends of each pair must give the same sizes."""
        nothing = torch.empty(0, dtype=torch.uint8, device="cpu")
        if self.rank in outgoing and self.rank in incoming:
            incoming[self.rank].copy_(outgoing[self.rank])
        others = sorted({*outgoing, *incoming} - {self.rank})
        beside = tuple(self.names[n] for n in others)
        await together(self._pair(step, n, outgoing.get(n, nothing), incoming.get(n, nothing), beside) for n in others)

    async def send(self, step: Step, data: Tensor, target: int) -> None:
        """Send bytes to a rank that calls `receive` with the same kind and number for us."""
        await self._message(step, self.rank, target, data)

    async def receive(self, step: Step, data: Tensor, source: int) -> None:
        """Receive bytes from a rank."""
        await self._message(step, source, self.rank, data)

    async def awaited(self, step: Step, other: int, *, sending: bool) -> None:
        """Wait until the other end of a message that we send, or receive, has begun it."""
        await self._bulk.first_begun({self.names[other]: self._message_tag(step, other, sending).wire()})

    def refuse(self, step: Step, other: int, *, sending: bool) -> None:
        """Tell the other end of a message, which we have not begun, that we will not: it fails there."""
        tag = self._message_tag(step, other, sending).wire()
        self._bulk.refuse(self.names[other], tag, _TOO_LATE)

    async def first_sender(self, steps: Mapping[int, Step]) -> int:
        """Wait until one of some ranks has begun to `send`, each with its own step; that rank."""
        tags = {self.names[n]: self._message_tag(step, n, sending=False).wire() for n, step in steps.items()}
        return self.names.index(await self._bulk.first_begun(tags))

    async def reach(self, rank: int, timeout: float) -> None:
        """Have a connection to a rank: it may wait for us to dial.

        Raises:
            NetworkError: it is not there.
        """
        await self._bulk.connection(self.names[rank], timeout)

    # ------------------------------------------------------------ plans

    def _is_small(self, nbytes: int) -> bool:
        return max(1, self.size - 1) * nbytes <= SMALL

    async def _swap(self, step: Step, tag: RoundTag, lengths: Sequence[int], body: bytes) -> list[bytes]:
        return await one_shot.swap(self.names, self.rank, lengths, body, self._bulk, tag, _profile(step))

    async def _message(self, step: Step, source: int, target: int, data: Tensor) -> None:
        """Copy a message. Both ends say how long it is: else the first chunks of a longer one would pass for it."""
        names = self.names[source], self.names[target]
        part = data if data.numel() else torch.zeros(1, dtype=torch.uint8, device="cpu")  # what is empty is taken, too
        share = Share(0, part.numel(), 0, (NO_PARENT, NO_PARENT), (NO_PARENT, 0))
        plan = self._plan(BROADCAST, names, (share,), 1)
        tag = self._tag(step, f" of {data.numel()} bytes", self._edge(source, target))
        await execute.broadcast(plan, int(self.rank != source), [part], self._bulk, tag, profile=_profile(step))

    async def _pair(
        self, step: Step, other: int, outgoing: Tensor, incoming: Tensor, beside: tuple[PeerId, ...]
    ) -> None:
        """Swap bytes with one rank: what the lower one sends comes first in the plan."""
        low, high = sorted((self.rank, other))
        me = int(self.rank == high)
        parts = [incoming, outgoing] if me else [outgoing, incoming]
        middle, end = len(parts[0]), len(parts[0]) + len(parts[1])
        shares = (
            Share(0, middle, 0, (NO_PARENT, NO_PARENT), (NO_PARENT, 0)),
            Share(middle, end, 1, (NO_PARENT, NO_PARENT), (1, NO_PARENT)),
        )
        names = (self.names[low], self.names[high])
        tag = self._tag(step, f": rank {low} gives {middle} bytes to rank {high}, which gives {end - middle}")
        if not end:
            self._bulk.forgo(tag.wire(), tag.call, self.names[other])
            return
        await self._broadcast(step, replace(tag, beside=beside), names, me, shares, parts)

    async def _broadcast(
        self,
        step: Step,
        tag: RoundTag,
        names: tuple[PeerId, ...],
        me: int,
        shares: tuple[Share, ...],
        tensors: Sequence[Tensor],
    ) -> None:
        plan = self._plan(BROADCAST, names, shares, 1)
        if not plan.elements:
            self._bulk.forgo(tag.wire(), tag.call)
            return
        await execute.broadcast(plan, me, tensors, self._bulk, tag, profile=_profile(step), circle=self.names)

    def _plan(self, kind: str, names: Sequence[PeerId], shares: tuple[Share, ...], itemsize: int) -> Plan:
        return Plan(kind, tuple(names), shares, max(1, CHUNK // itemsize), 0.0, 0.0)

    def _copied(self, start: int, stop: int, root: int, parents: tuple[int, ...]) -> Share:
        return Share(start, stop, root, (NO_PARENT,) * self.size, parents)

    def _spanning(self, root: int, nbytes: int) -> tuple[int, ...]:
        """Whom each rank sends to on the way to `root`, or gets from on the way back."""
        if nbytes < CHAIN:
            return star.star(self.size, root).reduce_parents
        return tuple(NO_PARENT if n == root else (n - 1) % self.size for n in range(self.size))

    def _message_tag(self, step: Step, other: int, sending: bool) -> RoundTag:
        return self._tag(step, edge=self._edge(self.rank, other) if sending else self._edge(other, self.rank))

    def _edge(self, source: int, target: int) -> int:
        return source * self.size + target + 1

    def _tag(self, step: Step, what: str = "", edge: int = 0) -> RoundTag:
        part = edge or step.part  # messages have none
        return RoundTag(self._group, step.number, part, step.line.encode(), f"{step.kind}{what}{step.then}")


def in_parts(step: Step, dtypes: Collection[torch.dtype]) -> list[Step]:
    """Make the steps of a call whose tensors are of several types, one for each: each tells which ones follow."""
    if len(dtypes) == 1:
        return [step]
    names = [_named(dtype) for dtype in dtypes]
    then = [f", then {', '.join(names[n + 1 :])}" if names[n + 1 :] else "" for n in range(len(names))]
    return [replace(step, part=n, then=each) for n, each in enumerate(then)]


def _elements(flat: Flat) -> str:
    """Say how many elements of which type."""
    return f"{flat.elements} {_named(flat.dtype)}"


@functools.cache
def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cut(spans: Sequence[tuple[int, int]]) -> str:
    """Say where a vector is cut for the ranks, if not into equal parts."""
    lengths = [stop - start for start, stop in spans]
    if len(set(lengths)) == 1:
        return ""
    return f" cut into {lengths}" if len(lengths) <= _FEW else f" cut otherwise ({zlib.crc32(str(lengths).encode()):x})"


def _spans(ranks: Sequence[Sequence[Tensor]]) -> Iterable[tuple[int, int]]:
    """Give the elements `[start, stop)` of each rank's parts in a vector in which these come one rank after the other.

    So there is one share for each rank, however many tensors are coalesced: a plan has only so many, and each costs
    every neighbour a frame.
    """
    return itertools.pairwise(itertools.accumulate((sum(map(len, parts)) for parts in ranks), initial=0))


def _profile(step: Step) -> ExecuteProfile:
    return ExecuteProfile(connect=step.timeout, start=step.timeout, total=step.timeout)
