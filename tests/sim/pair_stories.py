"""Clusters that train in pairs, each with parameters of its own, and what becomes of each gradient.

A state is agreed on by what was done, and no two clusters hold the same. But with no momentum, and pulled all the way
to the mean of its pair, a cluster comes to the mean of what both had and trained: that is worked out here from what the
two held before, for each version that any of its workers came to.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

import ictp2p
from ictp2p.sync.rounds.pairs import pairs
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.values import Open, Participant
from ictp2p.types import ClusterId
from tests.sim.marks import STEPS, Kind, places
from tests.sim.policy_stories import ERROR, NEWCOMER, Content, Life, Story

PAIRS = {"pairs": Kind(ictp2p.NoLoCo, {"sync_every": 3, "lr": 1.0, "momentum": 0.0, "pull": 1.0})}
_HELD = "parts.0"


class Mixed(NamedTuple):
    """What a cluster had, and its share of the mean."""

    share: float
    content: Tensor


@dataclass
class Paired(Story):
    """A world of pairs."""

    contents: defaultdict[tuple[str, int], list[Content]] = field(default_factory=lambda: defaultdict(list), repr=False)
    """By cluster and version, what its workers held: one thing, unless a leader died with a result, or all of them."""
    kinds: ClassVar[Mapping[str, Kind]] = PAIRS

    def holds(self, policy: Policy, life: Life) -> None:
        known, found = self.contents[life[0][0], policy.version], policy.state.committed[_HELD]
        if not any(torch.equal(found, content) for _, content in known):
            known.append((life, found.clone()))
        assert policy.state.digest == self.world.ledger.versions[policy.version].digest, "it is what was agreed on"

    def verdict(self) -> None:
        """Each gradient is in the state of its cluster once at most, and in that of whom it met in that round."""
        counted: dict[int, int] = {}
        for opened, version in self.committed() if not self.restored() else ():
            for place in {place for part in opened.participants for place in self.gained(opened, part, version)}:
                assert counted.setdefault(place, version) == version, f"{place} is in {version} and {counted[place]}"

    def gained(self, opened: Open, part: Participant, version: int) -> set[int]:
        """The gradients of a cluster that came into its own state with a version, in any of what its workers held."""
        names = [each.cluster for each in opened.participants]
        (met,) = (pair for pair in pairs(opened.state.digest, names) if part.cluster in pair)
        both = [each for each in opened.participants if each.cluster in met]
        found: set[int] = set()
        for life, after in self.contents[part.cluster, version]:
            befores = [*self.before(both, part, version)]
            fits = [new for held in befores if (new := self.brought(held, part.cluster, after)) is not None]
            assert fits or not befores or self.copied(life, version, after), f"{life}: {version} is no mean of {met}"
            found |= set.intersection(*fits) if fits else set()
        return found

    def copied(self, life: Life, version: int, content: Tensor) -> bool:
        """Whether a worker may hold something else: a name for what it had while apart, or, having just begun, a copy.

        That one holds what another does says nothing of who has not begun anew: the two of a pair hold the same.
        """
        if life[1] == 1 and life[0][0] != NEWCOMER:
            return life[0][0] in self.slept
        others = (held for (_, known), contents in self.contents.items() if known == version for _, held in contents)
        return life[0][0] in self.slept or sum(torch.equal(content, held) for held in others) > 1

    def before(self, both: Sequence[Participant], mine: Participant, version: int) -> Iterator[dict[ClusterId, Mixed]]:
        """What the two may have held, and their shares of the mean; or a cluster alone, whose leader died with that."""
        for group in (both, [mine]):
            total = sum(each.weight for each in group)
            held = [self.contents[each.cluster, version - 1] for each in group]
            for contents in itertools.product(*held):
                yield {
                    each.cluster: Mixed(each.weight / total, content)
                    for each, (_, content) in zip(group, contents, strict=True)
                }

    def brought(self, held: Mapping[ClusterId, Mixed], mine: ClusterId, after: Tensor) -> set[int] | None:
        """Which gradients led from what was held to what is; None if none do."""
        mean = torch.stack([share * content for share, content in held.values()]).sum(0)
        trained = mean - after
        trained[trained.abs() < ERROR] = 0.0
        for place in places(trained):
            share, content = held.get(ClusterId(self.names[place // STEPS][0]), (0.0, mean))
            if abs(trained[place] - share) > ERROR or abs(content[place]) > ERROR:
                return None
        return {place for place in places(trained) if self.names[place // STEPS][0] == mine}
