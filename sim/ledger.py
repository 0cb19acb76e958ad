"""The books of a simulated training: who did which work, and what became of it.

Work is counted in named units, each a vector of small integers, so that float32 adds exactly. For each version of the
state the ledger knows which units are in it and what every element must be: a unit lost, counted twice, or taken from
an attempt that was aborted shows as a wrong number or a wrong name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ictp2p.sync.values import Open
from ictp2p.types import PeerId

_SMALL = 5  # vector elements are below this, so that float32 holds sums of three million units exactly


class Unit(NamedTuple):
    """One inner phase's worth of work: where, by whom, and its number there."""

    cluster: str
    host: str
    serial: int


def vector(unit_cluster: str, elements: int) -> torch.Tensor:
    """What every unit of a cluster adds to the state."""
    seed = int.from_bytes(hashlib.blake2b(unit_cluster.encode(), digest_size=4).digest(), "big")
    return ((torch.arange(elements, dtype=torch.int64) * 7 + seed) % _SMALL + 1).to(torch.float32)


@dataclass(slots=True)
class Committed:
    """One version of the state, as it must be."""

    version: int
    digest: bytes
    round: int
    attempt: int
    participants: tuple[str, ...]
    at: float
    """When the first peer learnt of it."""
    values: torch.Tensor | None = None
    units: frozenset[Unit] = frozenset()
    """Units that came in with this version."""


@dataclass(slots=True)
class Ledger:
    """All work of a world, and what became of it. Complaints go to `complain(rule, text)`."""

    complain: Callable[[str, str], None]
    elements: int = 64
    versions: dict[int, Committed] = field(default_factory=dict)
    included: dict[Unit, int] = field(default_factory=dict)
    """In which version each unit came in."""
    lost: list[Unit] = field(default_factory=list)
    """Units that their workers gave up without knowing what became of them."""
    _standing: dict[PeerId, tuple[str, tuple[Unit, ...]]] = field(default_factory=dict)
    _bound: dict[tuple[int, int, PeerId], tuple[str, tuple[Unit, ...]]] = field(default_factory=dict)
    checked: bool = True

    def stands(self, leader: PeerId, cluster: str, units: Sequence[Unit]) -> None:
        """A leader is READY with these units."""
        self._standing[leader] = (cluster, tuple(units))

    def opened(self, leader: PeerId, opened: Open) -> None:
        """A leader takes part in an attempt, with what it stands READY with now."""
        if leader in self._standing:
            self._bound[opened.round, opened.attempt, leader] = self._standing[leader]

    def adopted(self, version: int, digest: bytes, at: float) -> None:
        """The first state was adopted."""
        if version not in self.versions:
            zeros = torch.zeros(self.elements) if self.checked else None
            self.versions[version] = Committed(version, digest, 0, 0, (), at, zeros)

    def committed(self, opened: Open, version: int, digest: bytes, at: float) -> None:
        """A round committed; told by everybody who learns of it."""
        known = self.versions.get(version)
        if known is not None:
            if known.digest != digest:
                self.complain("A3", f"version {version} has digest {digest.hex()} and {known.digest.hex()}")
            return
        names = tuple(p.cluster for p in opened.participants)
        entry = self.versions[version] = Committed(version, digest, opened.round, opened.attempt, names, at)
        before = self.versions.get(version - 1)
        units: dict[Unit, None] = {}
        for participant in opened.participants:
            bound = self._bound.get((opened.round, opened.attempt, participant.leader))
            if bound is None:
                text = f"version {version} holds {participant.cluster}, whose leader never took part in it"
                self.complain("A4", text)
                continue
            for unit in bound[1]:
                if unit in self.included:
                    self.complain("A10", f"{unit} is in version {version} and in {self.included[unit]}")
                units[unit] = None
                self.included[unit] = version
        entry.units = frozenset(units)
        if before is not None and before.values is not None and self.checked:
            total = before.values.clone()
            for unit in units:
                total += vector(unit.cluster, self.elements)
            entry.values = total

    def restored(self, version: int, source: int, digest: bytes, at: float) -> None:
        """The mesh went back to an older version: what later ones held is lost, and is nobody's fault."""
        if version in self.versions:
            return
        known = self.versions.get(source)
        first = torch.zeros(self.elements) if self.checked else None  # what workers begin with
        values = first if known is None else known.values
        self.versions[version] = Committed(version, digest, 0, 0, (), at, values)
        for unit in [unit for unit, where in self.included.items() if source < where < version]:
            del self.included[unit]
            self.lost.append(unit)

    def applied(self, host: str, version: int, digest: bytes, values: torch.Tensor) -> None:
        """A worker holds a version from now on."""
        known = self.versions.get(version)
        if known is None:
            self.complain("A8", f"{host} applied version {version}, which was never decided")
        elif known.digest != digest:
            self.complain("A3", f"{host} applied {digest.hex()} as version {version}, decided was {known.digest.hex()}")
        elif self.checked and known.values is not None and not torch.equal(values, known.values):
            wrong = int((values != known.values).nonzero()[0])
            text = f"{host} version {version}: element {wrong} is {values[wrong]}, should be {known.values[wrong]}"
            self.complain("A4", text)

    def dropped(self, host: str, units: Sequence[Unit], version: int, *, seen: bool) -> None:
        """A worker takes these units for included in `version` or before; `seen`: it took part in that round itself.

        A worker that did not see its round decided must assume so: work may then be lost, and is listed, but never
        be counted twice. One that did see it may lose nothing.
        """
        lost = [u for u in units if self.included.get(u, version + 1) > version]
        self.lost += lost
        if lost and seen:
            self.complain("A10", f"{host} dropped {len(lost)} units that are in no version up to {version}: {lost[0]}")

    def kept(self, host: str, units: Sequence[Unit], version: int) -> None:
        """A worker takes these units for not included in `version` or before, and will contribute them (again)."""
        twice = [u for u in units if self.included.get(u, version + 1) <= version]
        if twice:
            where = self.included[twice[0]]
            text = f"{host} at version {version} keeps {len(twice)} units that are in version {where}: {twice[0]}"
            self.complain("A10", text)
