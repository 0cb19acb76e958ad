"""Clusters that train paths through a pool of modules, and what becomes of each gradient in each of them.

All who hold a module and were in a round hold the same bits of it. What a round has brought to a module is worked out
as for a state that all share, from what was held of it before and after, by the weights of those who hold it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

import ictp2p
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.values import LOOKS_ON, Open
from tests.sim.marks import STEPS, Kind, Marks, places
from tests.sim.policy_stories import ERROR, NEWCOMER, Content, Life, Story

PATHS = {
    "paths": Kind(ictp2p.DiPaCo, {"sync_every": 3}, keeps=False),
    "paths, not all waited for": Kind(ictp2p.DiPaCo, {"sync_every": 2, "quorum": 0.5}, keeps=False),
}
MODULES = {"a": ("all", "ab"), "b": ("ab", "all", "bc"), "c": ("bc", "all", "c"), "n": ("all", "c")}
"""Of each cluster, in an order of its own."""
_HELD = "{}.marks"


class Module(torch.nn.Module):
    """One, with a place for each step of each worker."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.marks = torch.nn.Parameter(torch.zeros(size))


class Path(Marks):
    """The modules of one cluster."""

    def __init__(self, workers: int, modules: tuple[str, ...]) -> None:
        super().__init__(workers, 0)
        del self.parts
        for name in modules:
            self.add_module(name, Module(workers * STEPS))

    def trained(self, place: int) -> None:
        for part in self.parameters():
            part.grad = torch.zeros_like(part)
            part.grad[place] = 1.0


@dataclass
class Pathed(Story):
    """A world of paths."""

    contents: defaultdict[tuple[str, int], list[Content]] = field(default_factory=lambda: defaultdict(list), repr=False)
    """By module and version, what was held of it: one thing, but for clusters that were not in that round."""
    kinds: ClassVar[Mapping[str, Kind]] = PATHS

    def model(self, cluster: str) -> Marks:
        return Path(len(self.names), MODULES[cluster])

    def holds(self, policy: Policy, life: Life) -> None:
        for module in MODULES[life[0][0]] if policy.version else ():
            known, found = self.contents[module, policy.version], policy.state.committed[_HELD.format(module)]
            if not any(life[0][0] == who[0][0] and torch.equal(found, content) for who, content in known):
                known.append((life, found.clone()))
        assert policy.state.digest == self.world.ledger.versions[policy.version].digest, "it is what was agreed on"

    def verdict(self) -> None:
        """Each gradient is in each module that was trained by it once at most."""
        counted: dict[tuple[str, int], int] = {}
        for opened, version in self.committed() if not self.restored() else ():
            for module in {name for names in MODULES.values() for name in names}:
                for place in self.gained(opened, module, version):
                    assert counted.setdefault((module, place), version) == version, f"{place} again in {module}"

    def gained(self, opened: Open, module: str, version: int) -> set[int]:
        """The gradients that came into a module with a version."""
        weights = {p.cluster: p.weight for p in opened.participants if module in MODULES[p.cluster]}
        found: set[int] = set()
        for life, after in self.contents[module, version]:
            if life[0][0] in weights:
                befores = [held for _, held in self.contents[module, version - 1]]
                befores += [torch.zeros_like(after)] if self.begun_anew(weights) else []
                fits = [new for held in befores if (new := self.averaged(held, after, weights)) is not None]
                known = not befores or self.stale(life, module, version, after)
                assert fits or known, f"{life}: {module} of {version} is no mean of {weights}"
                found |= set.intersection(*fits) if fits else set()
        return found

    def stale(self, life: Life, module: str, version: int, content: Tensor) -> bool:
        """Whether a worker that was apart from its mates has a name for what it had before, to be healed by them."""
        earlier = (held for v in range(version) for _, held in self.contents[module, v])
        return life[0][0] in self.slept and any(torch.equal(content, held) for held in earlier)

    def begun_anew(self, clusters: Iterable[str]) -> bool:
        """Whether all workers of these have started again, or just come: of a module that no other holds in a round."""
        workers = [self.world.hosts[name] for name in self.names if name[0] in clusters]
        return all(host.lives > 1 or host.cluster == NEWCOMER for host in workers)

    def averaged(self, before: Tensor, after: Tensor, weights: Mapping[str, float]) -> set[int] | None:
        """Which gradients led from what was held to what is; None if none do."""
        trained, total = before - after, sum(weight for weight in weights.values() if weight > LOOKS_ON)
        trained[trained.abs() < ERROR] = 0.0
        for place in places(trained):
            share = weights.get(self.names[place // STEPS][0], 0.0) / max(total, LOOKS_ON)
            if abs(trained[place] - share) > ERROR or abs(before[place]) > ERROR:
                return None
        return places(trained)
