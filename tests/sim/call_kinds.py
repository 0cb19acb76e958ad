"""The calls of `CollectiveCalls`, each with what a worker brings to it and what it must have got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

import ictp2p
from ictp2p.types import PeerId
from tests.sim.call_marks import Mark, found, marks
from tests.sim.calls import Caller


@dataclass
class Got:
    """What a call came to at one worker."""

    key: tuple[str, int]
    """The round, or the version of the state."""
    bits: bytes = b""
    """What all have of it, byte by byte."""
    inside: frozenset[Mark] = frozenset()
    """Whose tensors are in it, of which of their calls."""
    clusters: tuple[str, ...] | None = None
    workers: tuple[PeerId, ...] | None = None
    listed: tuple[Mark, ...] = ()
    """Whose they are of each cluster, in their order."""
    received: bool = False
    """Whether the state was another one."""


class Kind:
    """A call that adds up what everybody brings."""

    adds_up = True

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return [mine]

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.all_reduce(call.tensors, op="sum", async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        (inside,) = {found(tensor, call.places) for tensor in self.read(call)}
        return Got(("round", done.round), in_bytes(call.tensors), inside, done.clusters, done.workers)

    def read(self, call: Call) -> list[torch.Tensor]:
        """What shows the marks in each of the tensors of a result."""
        return call.tensors


@dataclass
class Call:
    """One call of one worker."""

    kind: Kind
    caller: Caller
    mark: Mark
    places: int
    cluster: str
    root: str
    state: dict[str, torch.Tensor]
    attempt: int
    """How many calls of this life were before it."""
    round: int = 0
    """In which it ended well."""
    tensors: list[torch.Tensor] = field(init=False)
    before: bytes = field(init=False)
    work: ictp2p.Work[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = self.kind.bring(marks(self.mark, self.places)) or list(self.state.values())
        self.before = in_bytes(self.tensors)
        self.work = self.kind.ask(self)

    @property
    def untouched(self) -> bool:
        return in_bytes(self.tensors) == self.before


class Several(Kind):
    """Of several tensors, one of which is not contiguous."""

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return [mine, mine.view(2, -1).t().contiguous().t(), mine.clone()]


class Rough(Kind):
    """With a codec, which rounds."""

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return [mine.to(torch.float32)]

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.all_reduce(call.tensors, op="sum", codec=self.codec, async_op=True)

    def read(self, call: Call) -> list[torch.Tensor]:
        return [tensor.round() for tensor in call.tensors]


class Mean(Kind):
    """Where each worker has another weight."""

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return [mine.to(torch.float64)]

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.all_reduce(call.tensors, weight=1.0 + call.mark.place, async_op=True)

    def read(self, call: Call) -> list[torch.Tensor]:
        here = (call.tensors[0] > 0).to(torch.int64)
        weights = {mark: 1.0 + mark.place for mark in found(here, call.places)}
        wanted = torch.zeros_like(call.tensors[0])
        for mark, weight in weights.items():
            wanted += marks(mark, call.places) * weight / sum(weights.values())
        assert torch.allclose(call.tensors[0], wanted), "each counts by its weight"
        return [here]


class Barrier(Kind):
    """Brings nothing, and gets nothing."""

    adds_up = False

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.barrier(async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert call.untouched
        return Got(("round", done.round), clusters=done.clusters)


class Broadcast(Kind):
    """Of several types."""

    adds_up = False

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return [mine.to(torch.bool), mine, mine.to(torch.float16).view(4, -1), mine.to(torch.uint8).flip(0)]

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.broadcast(call.tensors, call.root, async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert call.root in done.clusters, "whose it is takes part"
        return super().got(call, done)

    def read(self, call: Call) -> list[torch.Tensor]:
        return self.straight(call.tensors)

    def straight(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [*tensors[:3], tensors[3].flip(0)]


class Reduce(Kind):
    """To one cluster's workers."""

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.reduce(call.tensors, call.root, op="sum", async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert call.root in done.clusters, "whose it is takes part"
        if call.root == call.cluster:
            return super().got(call, done)
        assert call.untouched
        return Got(("round", done.round), clusters=done.clusters)


class Scatter(Kind):
    """Each cluster gets its part, in which all marks are."""

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.reduce_scatter(call.tensors, op="sum", async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert call.untouched
        place, size = done.clusters.index(call.cluster), call.tensors[0].numel() // len(done.clusters)
        assert (done.start, done.stop, len(done.part)) == (place * size, (place + 1) * size, size)
        inside = found(done.part, call.places)
        return Got(("round", done.round), clusters=done.clusters, inside=inside)


class Gather(Kind):
    """What the leader of each cluster brings, of several types."""

    adds_up = False
    bring, straight = Broadcast.bring, Broadcast.straight

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.all_gather(call.tensors, async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert call.untouched
        inside = []
        for tensors in done.tensors.values():
            ((mark,),) = {found(tensor, call.places) for tensor in self.straight(tensors)}
            inside.append(mark)
        bits = b"".join(map(in_bytes, done.tensors.values()))
        return Got(("round", done.round), bits, frozenset(inside), tuple(done.tensors), listed=tuple(inside))


class Sync(Kind):
    """The state that a worker has come to."""

    adds_up = False

    def bring(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return []

    def ask(self, call: Call) -> ictp2p.Work[Any]:
        return call.caller.sync_state(call.state, async_op=True)

    def got(self, call: Call, done: Any) -> Got:
        assert done.received != call.untouched
        return Got(("version", done.version), in_bytes(call.tensors), received=done.received)


KINDS = {
    "sum": Kind(),
    "several": Several(),
    "bfloat16": Rough("bfloat16"),
    "int8": Rough("int8"),
    "mean": Mean(),
    "barrier": Barrier(),
    "broadcast": Broadcast(),
    "reduce": Reduce(),
    "scatter": Scatter(),
    "gather": Gather(),
    "sync": Sync(),
}


def in_bytes(tensors: Any) -> bytes:
    """Their bytes, one behind the other."""
    return b"".join(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors)
