"""Collective calls in a simulated world: the product's own calls in training threads, on virtual time.

The process group inside a cluster is simulated here as Gloo behaves, for that is what calls have to live with: a
broadcast is over for its root as soon as the bytes have left, and for each follower when they have come; a member that
dies ends what others wait for from it, at some of them before the bytes came and at others after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ictp2p.calls.engine import CallEngine
from ictp2p.collective_calls import CollectiveCalls
from ictp2p.collectives.group.local import GroupTimeouts
from ictp2p.errors import LocalGroupError
from ictp2p.sync.rosters.roster import Generation, Roster
from ictp2p.types import PeerId
from sim.threads import SimCondition
from sim.training import Training

LATENCY = 0.002
"""Most virtual seconds that bytes take inside a cluster."""
LOOK = 5 * LATENCY
"""Virtual seconds after which it is looked whether a member that is waited for has died."""


@dataclass
class Meeting:
    """What the members of one generation brought, by number of the operation and rank; and who has left."""

    brought: dict[int, dict[int, tuple[float, Any]]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    waiting: set[SimCondition] = field(default_factory=set)
    """Of whoever waits for more."""

    def changed(self) -> None:
        """Have whoever waits look again."""
        for condition in self.waiting:
            condition.notify_all()


class UnevenGroup:
    """See `ictp2p.sync.mesh.Group`; a member's part in one generation."""

    def __init__(self, roster: Roster, training: Training, patience: GroupTimeouts) -> None:
        host = training.host
        assert host.peer is not None
        self.generation: Generation = roster.generation
        self.members: tuple[str, ...] = roster.members
        self.rank, self.size = roster.members.index(host.peer.id), len(roster.members)
        self.device = torch.device("cpu")
        self._crew, self._world, self._patience = training._crew, host.world, patience
        self._meeting: Meeting = host.world.meetings.setdefault((host.cluster, roster), Meeting())
        self._changed = SimCondition(training._crew)
        self._operations, self._broken = 0, ""
        self._staging: dict[torch.dtype, Tensor] = {}
        self._chance = host.world.chance.generator("group", host.name, str(roster.generation))

    def open(self) -> None:
        self._meet(range(self.size), None, self._patience.join)

    def staging(self, elements: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        held = self._staging.get(dtype)
        if held is None or held.numel() < elements:
            held = self._staging[dtype] = torch.empty(elements, dtype=dtype)
        return held[:elements]

    def all_reduce(self, tensor: Tensor) -> None:
        terms = self._meet(range(self.size), tensor.clone(), self._patience.operation)
        tensor.copy_(torch.stack(terms).sum(0).to(tensor.dtype))

    def broadcast(self, tensor: Tensor, root: int) -> None:
        mine = tensor.clone() if self.rank == root else None
        tensor.copy_(self._meet((root,), mine, self._patience.operation)[0])

    def all_gather(self, data: bytes) -> list[bytes]:
        return self._meet(range(self.size), data, self._patience.operation)

    def abort(self, reason: str) -> None:
        self._broken = self._broken or reason

    def close(self) -> None:
        self.abort("it is closed")
        self._meeting.left.add(self.rank)
        self._meeting.changed()

    def _meet(self, needed: Sequence[int], mine: Any, patience: float) -> list[Any]:
        """Give what the ranks in `needed` bring; ours is among it, or `mine` is not looked at."""
        number, began = self._operations, self._world.now
        self._operations += 1
        parts = self._meeting.brought.setdefault(number, {})
        self._check()
        others = [rank for rank in needed if rank != self.rank]
        if len(others) < len(needed):
            parts[self.rank] = (began, mine)
            self._meeting.changed()
        if not others and any(map(self._lost, range(self.size))):
            self._break("a member has gone")
        due = self._chance.random() * LATENCY
        while not all(rank in parts and self._world.now >= parts[rank][0] + due for rank in others):
            self._check()
            if any(map(self._lost, others)):
                self._break("a member died")
            if self._world.now > began + patience:
                self._break("not all came in time")
            self._wait(due if all(rank in parts for rank in others) else LOOK)
        return [parts[rank][1] for rank in needed]

    def _wait(self, seconds: float) -> None:
        self._meeting.waiting.add(self._changed)
        self._changed.wait(seconds)
        self._meeting.waiting.discard(self._changed)

    def _lost(self, rank: int) -> bool:
        owner = self._world.supervisor.owner(PeerId(self.members[rank]))
        return rank in self._meeting.left or owner is None or not owner.alive

    def _check(self) -> None:
        if self._broken:
            raise LocalGroupError(self._broken)

    def _break(self, reason: str) -> None:
        self.close()
        raise LocalGroupError(reason)


class Caller(CollectiveCalls):
    """The calls of one simulated worker."""

    def __init__(self, training: Training) -> None:
        training._make_group = lambda roster, patience: UnevenGroup(roster, training, patience)
        self._engine = CallEngine(training._peer, training)

    def leave(self) -> None:
        """Make no more calls, and have nobody wait for one."""
        self._engine.close()
