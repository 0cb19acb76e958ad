"""The process group of a fake mesh: each operation is one swap of values between threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ictp2p.errors import LocalGroupError
from ictp2p.sync.rosters.roster import Roster

if TYPE_CHECKING:
    from tests.sync.fake_mesh import FakeMesh


DEADLINE = 20.0


class Killed(BaseException):
    """The worker's process dies here."""


class Exchange:
    """What the members of one generation share: each operation is one swap of values."""

    def __init__(self, size: int) -> None:
        self.size, self.reason = size, ""
        self.changed = threading.Condition()
        self.values: dict[int, dict[int, Any]] = {}

    def swap(self, turn: int, rank: int, value: Any) -> list[Any]:
        with self.changed:
            held = self.values.setdefault(turn, {})
            held[rank] = value
            self.changed.notify_all()
            full = self.changed.wait_for(lambda: self.reason or len(held) == self.size, DEADLINE)
            if len(held) < self.size:
                raise LocalGroupError(self.reason if full else "fake group: a member did not come")
            return [held[r] for r in range(self.size)]

    def abort(self, reason: str) -> None:
        with self.changed:
            self.reason = self.reason or reason
            self.changed.notify_all()


class FakeGroup:
    def __init__(self, mesh: FakeMesh, roster: Roster, exchange: Exchange) -> None:
        self.mesh, self.exchange = mesh, exchange
        self.generation, self.members = roster.generation, roster.members
        self.rank, self.size = roster.members.index(mesh.name), len(roster.members)
        self.turn = 0
        self.device = torch.device("cpu")
        self.memory: dict[torch.dtype, Tensor] = {}

    def staging(self, elements: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        return self.memory.setdefault(dtype, torch.zeros(1 << 22, dtype=dtype, device="cpu"))[:elements]

    def swap(self, name: str, value: Any) -> list[Any]:
        if self.exchange.reason:
            raise LocalGroupError(self.exchange.reason)
        self.mesh.world.fault(self.mesh.name, name)
        self.turn += 1
        values = self.exchange.swap(self.turn, self.rank, value)
        self.mesh.world.fault(self.mesh.name, f"{name} done")
        return values

    def all_gather(self, data: bytes) -> list[bytes]:
        return self.swap("all_gather", data)

    def all_reduce(self, tensor: Tensor) -> None:
        total = sum(self.swap("all_reduce", tensor.clone()))
        assert isinstance(total, Tensor)
        tensor.copy_(total)

    def broadcast(self, tensor: Tensor, root: int) -> None:
        tensor.copy_(self.swap("broadcast", tensor.clone() if self.rank == root else None)[root])

    def abort(self, reason: str) -> None:
        self.exchange.abort(reason)

    def close(self) -> None:
        self.exchange.abort(f"{self.mesh.name} closed the group")
