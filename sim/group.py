"""The process group inside a simulated cluster: ideal, but for the deaths that break it.

Members exchange what they bring at one place of the simulated world (`Meeting`), which every member finds by cluster
and generation. An operation takes no virtual time; it begins when the last member has come. Sums are taken in the
order of the ranks. A member whose process dies, or whose peer breaks the group, breaks it for all who wait in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ictp2p.errors import GroupUnmet, LocalGroupError
from ictp2p.sync.rosters.roster import Generation, Roster
from ictp2p.types import PeerId
from sim.threads import Crew, SimCondition

if TYPE_CHECKING:
    from sim.host import Host

_PATIENCE = 0.5
"""Virtual seconds between two looks at whether a member that is waited for still runs."""


class Meeting:
    """What the members of one generation bring to its operations, one after the other."""

    def __init__(self) -> None:
        self.brought: list[dict[int, Any]] = []
        """For each operation what each rank brought."""
        self.waiting: dict[int, SimCondition] = {}
        self.broken = ""

    def notify(self) -> None:
        """Have everybody look."""
        for condition in self.waiting.values():
            condition.notify_all()


class SimGroup:
    """See `ictp2p.sync.mesh.Group`.

    Args:
        roster: members in rank order.
        host: this worker's.
        crew: its threads.
        patience: virtual seconds that an operation waits for the slowest member.
    """

    def __init__(self, roster: Roster, host: Host, crew: Crew, patience: float) -> None:
        world, peer = host.world, host.peer
        assert peer is not None
        self.generation: Generation = roster.generation
        self.members: tuple[str, ...] = roster.members
        self.rank = roster.members.index(peer.id)
        self.size = len(roster.members)
        self.device = torch.device("cpu")
        self._crew, self._world, self._patience = crew, world, patience
        where = (host.cluster, *roster.generation, *roster.members)
        self._meeting: Meeting = world.meetings.setdefault(where, Meeting())
        self._meeting.waiting[self.rank] = crew.condition()
        self._operations = 0
        self._staging: dict[torch.dtype, Tensor] = {}

    def open(self) -> None:
        """Meet the other members. Raises `LocalGroupError`."""
        self._exchange(None)

    def staging(self, elements: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """A flat tensor of the group's own, the same memory each time."""
        held = self._staging.get(dtype)
        if held is None or held.numel() < elements:
            held = self._staging[dtype] = torch.empty(elements, dtype=dtype)
        return held[:elements]

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum in place, in the order of the ranks."""
        terms = self._exchange(tensor.clone())
        tensor.copy_(terms[0])
        for term in terms[1:]:
            tensor.add_(term)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Copy a tensor from one rank to all."""
        tensor.copy_(self._exchange(tensor.clone() if self.rank == root else None)[root])

    def all_gather(self, data: bytes) -> list[bytes]:
        """Exchange bytes."""
        return self._exchange(data)

    def abort(self, reason: str) -> None:
        """Break it; a process that was killed does nothing any more, whatever its threads clean up."""
        if self._crew.dead:
            return
        self._meeting.broken = self._meeting.broken or reason
        self._meeting.notify()

    def close(self) -> None:
        """Leave it."""
        self.abort("a member left")

    def _exchange(self, mine: Any) -> list[Any]:
        """Give every rank's part, in order, once all have brought theirs."""
        meeting, number = self._meeting, self._operations
        self._operations += 1
        while len(meeting.brought) <= number:
            meeting.brought.append({})
        parts = meeting.brought[number]
        parts[self.rank] = mine
        if len(parts) == self.size:
            meeting.notify()
        self._await(parts)
        if number:
            meeting.brought[number - 1] = {}  # whoever is here has read it
        return [parts[rank] for rank in range(self.size)]

    def _await(self, parts: dict[int, Any]) -> None:
        began = self._world.now
        while len(parts) < self.size:
            if not self._meeting.broken and not self._all_run():
                self._meeting.broken = "a member died"
            if self._meeting.broken:
                raise LocalGroupError(self._meeting.broken)
            if self._world.now - began > self._patience:
                kind = GroupUnmet if self._operations == 1 else LocalGroupError  # the first is the meeting
                raise kind(f"not all members came within {self._patience:g} s")
            self._meeting.waiting[self.rank].wait(_PATIENCE)

    def _all_run(self) -> bool:
        owners = [self._world.supervisor.owner(PeerId(member)) for member in self.members]
        return all(owner is not None and owner.alive for owner in owners)
