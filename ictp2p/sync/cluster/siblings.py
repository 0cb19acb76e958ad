"""The ranks of one cluster that hold the shards of its model, each with a mesh of its own: how they keep step.

With FSDP2 no rank holds the model, so each averages its shard with the same shard of the other clusters. Inside the
cluster the ranks need each other at every layer, and between clusters each waits for its own counterparts: two meshes
that pair phases differently would have clusters train in turns, for good, and a rank that waits for its mesh would have
the others run into the timeout of a collective. So the siblings tell each other, before each step, whether a round is
due after it (the word of whoever launched last counts, for all alike), and at such a boundary how far they are, again
and again, until all of them have landed. Whoever waits, waits here.

Before each step they also say what their gradients count. FSDP has made one gradient of the batches of all ranks, of
which each holds a part: so it counts what these batches count together, the same on every shard, and nothing at all if
it is of no use to one of them.

All that they say is one small exchange of equal size, so they cannot come to mean different ones.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ictp2p.errors import ConfigError, LocalProtocolError, SiblingLost, Translated, shown

_HEAD = struct.Struct("<B????xxxQQd")
_SECOND = 10**9


class Standing(enum.IntEnum):
    """Where a rank is."""

    STEPS = 1
    """Before an inner step."""
    WAITS = 2
    """At a boundary: its round has not begun."""
    MOVES = 3
    """At a boundary: its round is under way."""
    ATTENDS = 4
    """At a boundary: it has landed, and keeps the next round of its mesh company as long as another one waits."""
    LANDED = 5
    """At a boundary: it may go on."""
    STOPS = 6
    """It cannot go on."""
    BEGINS = 7
    """It has a state, and has not trained yet."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is alike on all ranks for one inner step."""

    due: bool
    """Whether each launches a round after it."""
    meets: bool
    """Whether they wait for each other after it."""
    leaves: bool
    """Whether one of them was asked to leave, and so all do."""
    scheduled: int
    """What a schedule is at then that all of them follow."""
    weight: float
    """What the gradient of all together counts."""


class _Head(NamedTuple):
    """What one rank says."""

    standing: int
    due: bool = False
    lands: bool = False
    leaves: bool = False
    spent: bool = False
    number: int = 0
    """Of steps, or nanoseconds."""
    scheduled: int = 0
    weight: float = 0.0


@runtime_checkable
class Exchange(Protocol):
    """What they talk over."""

    @property
    def rank(self) -> int:
        """Which shard this one holds."""
        ...

    @property
    def size(self) -> int:
        """How many shards there are."""
        ...

    def all_gather(self, data: bytes) -> list[bytes]:
        """Exchange equally many bytes, in the order of the ranks."""
        ...


class Siblings:
    """The ranks that hold the shards of one cluster's model.

    Args:
        exchange: among all of them.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def describe(self) -> tuple[str, str]:
        """What all must have alike who average with this rank, in words."""
        return "shard", f"{self._exchange.rank} of {self._exchange.size}"

    def step(
        self, *, due: bool, lands: bool, since: int, leaves: bool, scheduled: int, weight: float, spent: bool
    ) -> Step:
        """Agree on what happens after the next inner step.

        Args:
            due: whether a round is, as this rank sees it.
            lands: whether one lands.
            since: inner steps since this rank launched a round.
            leaves: whether it was asked to leave.
            scheduled: what its own mesh has a schedule at.
            weight: what the batch counts that it has computed.
            spent: whether the gradient in hand must not count.

        Raises:
            SiblingLost: one of them stops, or cannot be reached.
        """
        heads = self._gather(_Head(Standing.STEPS, due, lands, leaves, spent, since, scheduled, weight))
        due = min(heads, key=lambda head: head.number).due
        return Step(
            due,
            meets=due or any(head.lands for head in heads),
            leaves=any(head.leaves for head in heads),
            scheduled=max(head.scheduled for head in heads),
            weight=0.0 if any(head.spent for head in heads) else sum(head.weight for head in heads),
        )

    def begin(self, trained: int | None) -> list[int | None]:
        """Exchange of how many steps the state is that each begins from, None where that is its mesh's affair.

        Raises:
            SiblingLost: one of them stops, or cannot be reached.
        """
        heads = self._gather(_Head(Standing.BEGINS, due=trained is not None, number=trained or 0))
        return [head.number if head.due else None for head in heads]

    def most(self, number: int) -> int:
        """The greatest of a number of each, from where all have met."""
        return max(head.number for head in self._gather(_Head(Standing.LANDED, number=number)))

    def stand(self, standing: Standing, waited: float = 0.0) -> Sequence[tuple[Standing, float]]:
        """Tell the others where this rank is at a boundary; gives where each is.

        Args:
            standing: where.
            waited: seconds that its round took to begin.

        Raises:
            SiblingLost: one of them stops, or cannot be reached.
        """
        heads = self._gather(_Head(standing, number=int(waited * _SECOND)))
        return [(Standing(head.standing), head.number / _SECOND) for head in heads]

    def _gather(self, mine: _Head) -> list[_Head]:
        heads = [_Head(*_HEAD.unpack(each)) for each in self._exchange.all_gather(_HEAD.pack(*mine))]
        standings = [head.standing for head in heads]
        if mine.standing == Standing.STOPS:
            return heads
        if Standing.STOPS in standings:
            stopped = standings.index(Standing.STOPS)
            raise SiblingLost(f"rank {stopped} of this cluster, which holds another shard of its model, has stopped")
        if len({each == Standing.STEPS for each in standings}) > 1:
            raise LocalProtocolError(
                f"of the ranks that hold the shards of this cluster's model {standings.index(Standing.STEPS)} takes "
                "another step, and another is at a round: all must take the same steps, with the same sync_every"
            )
        return heads


class ProcessGroup:
    """An exchange over a process group of torch's.

    Args:
        within: the group, or a device mesh of one dimension.

    Raises:
        ConfigError: it is neither, or this rank is not in it.
    """

    def __init__(self, within: Any) -> None:
        group = _group(within)
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.ranks = dist.get_process_group_ranks(group) if self.rank >= 0 else []
        """Its members, as the whole process group numbers them."""
        if self.rank < 0:
            raise ConfigError(f"within {shown(within)} is a group that this rank is not in")
        backend = dist.get_backend_config(group)
        self._device = torch.device("cpu" if "cpu:" in backend else torch.accelerator.current_accelerator() or "cpu")

    def all_gather(self, data: bytes) -> list[bytes]:
        """Exchange equally many bytes.

        Raises:
            SiblingLost: it failed.
        """
        with Translated(RuntimeError, _lost):
            return self._all_gather(data)

    def _all_gather(self, data: bytes) -> list[bytes]:
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine, group=self._group)
        return [bytes(each.cpu().numpy()) for each in found]


def _lost(error: RuntimeError) -> None:
    raise SiblingLost(f"a rank of this cluster that holds another shard of its model is lost: {error}") from error


def _group(within: Any) -> dist.ProcessGroup:
    if isinstance(within, DeviceMesh):
        if within.ndim != 1:
            raise ConfigError(f"within is a mesh of {within.ndim} dimensions: give one of all shards, flattened")
        return within.get_group()
    if not isinstance(within, dist.ProcessGroup):
        raise ConfigError(f"within {shown(within)} is neither a torch process group nor a device mesh")
    return within
