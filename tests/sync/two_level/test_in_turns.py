"""Clusters that shard a model, in virtual time: none waits with one shard for who waits for it with another.

What is real here is how the ranks of a cluster keep each other company; a mesh is a place where its clusters meet.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping

import pytest

from ictp2p.sync.cluster.siblings import Siblings
from ictp2p.sync.two_level.company import Abandoned, Company
from sim.loop import Process, SimLoop
from sim.threads import Crew

PHASES = 24


class Shard:
    """The mesh of one shard: a round begins when all clusters are there, and one of them has a reason."""

    def __init__(self, crew: Crew, clusters: str, without: Mapping[int, str]) -> None:
        self._changed, self._clusters, self._without = crew.condition(), set(clusters), without
        self._round, self._there = 0, dict[str, bool]()

    def meet(self, cluster: str, company: Company, *, attends: bool) -> None:
        self._there[cluster] = not attends
        number = self._round
        company.launched()
        self._try()
        while self._round == number or cluster in self._there:  # who was left out is there for the next round
            self._changed.wait(company.pause)
            if cluster in self._there:
                try:
                    company.wait()
                except Abandoned:
                    self._there.pop(cluster, None)
                    raise
        company.begun()

    def _try(self) -> None:
        due = self._clusters - {self._without.get(self._round, "")}
        if due <= self._there.keys() and any(self._there.values()):
            for cluster in due:
                del self._there[cluster]
            self._round += 1
            self._changed.notify_all()
            self._try()


class Ranks:
    """What the ranks of one cluster talk over."""

    def __init__(self, crew: Crew, size: int) -> None:
        self.changed, self.size, self.said = crew.condition(), size, dict[int, dict[int, bytes]]()

    def of(self, rank: int) -> Rank:
        return Rank(self, rank)


class Rank:
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self._ranks, self.rank, self.size, self._turn = ranks, rank, ranks.size, 0

    def all_gather(self, data: bytes) -> list[bytes]:
        self._turn += 1
        said = self._ranks.said.setdefault(self._turn, {})
        said[self.rank] = data
        self._ranks.changed.notify_all()
        self._ranks.changed.wait_for(lambda: len(said) == self.size)
        return [said[rank] for rank in range(self.size)]


def seconds_per_phase(
    clusters: str, phase: float, shards: int, without: Mapping[int, Mapping[int, str]]
) -> list[float]:
    """How long each cluster takes for a phase in the end, where rounds of some shards once went without a cluster."""
    loop, ended = SimLoop(), dict[tuple[str, int], list[float]]()
    crew = Crew(loop, Process("all"))
    meshes = [Shard(crew, clusters, without.get(shard, {})) for shard in range(shards)]

    def rank(cluster: str, shard: int, ranks: Ranks) -> Callable[[], None]:
        def run() -> None:
            chance = random.Random(cluster)  # the ranks of a cluster take the same steps
            company = Company(Siblings(ranks.of(shard)), loop.time)
            times = ended[cluster, shard] = []

            def attend() -> None:
                with contextlib.suppress(Abandoned):
                    meshes[shard].meet(cluster, company, attends=True)

            for _ in range(PHASES):
                crew.sleep(phase * chance.uniform(0.98, 1.02))
                meshes[shard].meet(cluster, company, attends=False)
                company.gather(attend)
                times.append(loop.time())

        return run

    for cluster in clusters:
        ranks = Ranks(crew, shards)
        for shard in range(shards):
            crew.start(rank(cluster, shard, ranks), f"{cluster}/{shard}")
    loop.run_to(PHASES * phase * 3)
    assert not loop.errors, loop.errors
    return [(times[-1] - times[-9]) / 8 for times in ended.values()]


@pytest.mark.parametrize("phase", [0.05, 0.3, 8.0])
@pytest.mark.parametrize(
    ("clusters", "shards", "without"),
    [
        ("ab", 2, {}),
        ("ab", 2, {0: {3: "b"}}),
        ("ab", 2, {1: {3: "b"}}),
        ("ab", 2, {0: {3: "a", 9: "b"}, 1: {6: "b"}}),
        ("ab", 4, {1: {3: "b"}, 2: {3: "b"}}),
        ("abc", 2, {0: {3: "b"}, 1: {5: "c"}}),
        ("abc", 3, {0: {3: "b"}, 1: {4: "c"}, 2: {8: "a"}}),
    ],
)
def test_no_clusters_train_in_turns(
    clusters: str, shards: int, without: Mapping[int, Mapping[int, str]], phase: float
) -> None:
    assert max(seconds_per_phase(clusters, phase, shards, without)) < 1.1 * phase
