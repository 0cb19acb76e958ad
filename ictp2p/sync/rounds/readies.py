"""The book of READYs: whose contribution stands, and who is still missing from the next attempt.

Of a cluster the newest READY by (term, round) counts, for leaders change and messages overtake each other. It stands
for the next attempt if it is of that round, starts from the agreed state, and comes from somebody who can speak for its
cluster as far as is known. Whoever means to train and does not stand there is due: late, or in another world.

Who brings what can wait for another's end (`Spec.waits_for`) has no part in an attempt while that is brought, and
stands all the same: nobody waits for it, nor turns it away, and it is READY for the round after.

For a call, who has just ended its training is due as well. A program that reduces its figures after its policy does so
in all clusters within moments, in which none of them trains: the first one would call alone, and the others miss it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from ictp2p.sync.credits import same
from ictp2p.sync.messages import Ready
from ictp2p.sync.rounds.failures import Failures
from ictp2p.sync.rounds.opening import Standing
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Spec, Value, upcoming
from ictp2p.types import ClusterId, PeerId


@dataclass(frozen=True, slots=True)
class RollCall:
    """Who is there for the next attempt, and who is not."""

    round: int
    attempt: int
    standing: Standing
    """READYs that could go into it."""
    due: tuple[ClusterId, ...]
    """Clusters that mean to take part and are not READY."""
    absent: tuple[ClusterId, ...]
    """Those of them that are alive and not doubted."""
    again: frozenset[ClusterId] | None
    """The clusters of the attempt that failed; None if none has in this round."""


class Readies:
    """The READYs that reached one peer, by cluster.

    Args:
        sight: beliefs about the clusters.
    """

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._by_cluster: dict[ClusterId, tuple[PeerId, Ready]] = {}

    def put(self, sender: PeerId, message: Ready) -> None:
        """Take a READY; the newest of a cluster by (term, round) counts."""
        known = self._by_cluster.get(message.cluster)
        if known is None or (known[1].term, known[1].round) <= (message.term, message.round):
            self._by_cluster[message.cluster] = (sender, message)

    def withdraw(self, sender: PeerId, cluster: ClusterId, before: float = inf) -> None:
        """Drop a READY; only one that was said `before` its sender knew of the decision in this slot."""
        known = self._by_cluster.get(cluster)
        if known is not None and known[0] == sender and known[1].slot < before:
            del self._by_cluster[cluster]

    def viewed(self) -> None:
        """The view changed: forget what the dead said.

        Of a cluster that has left as well: if it is back one day on other disks, its terms begin anew.
        """
        clusters = self._sight.clusters
        self._by_cluster = {
            name: (leader, ready)
            for name, (leader, ready) in self._by_cluster.items()
            if (clusters[name].alive if name in clusters else not self._sight.knew(leader))
        }

    def of_round(self, number: int) -> list[ClusterId]:
        """The clusters that are READY for a round, whatever they start from."""
        return [name for name, (_, ready) in self._by_cluster.items() if ready.round == number]

    def elect(self, standing: Standing, spec: Spec) -> Standing:
        """Keep those of `standing` that want `spec`, and drop the others for good: they are turned away."""
        for name in [name for name, (_, ready) in standing.items() if ready.spec != spec]:
            del self._by_cluster[name]
        return {name: entry for name, entry in standing.items() if name in self._by_cluster}

    def call(self, tip: Value, failures: Failures, leaving: Collection[PeerId], now: float) -> RollCall:
        """Call the roll for the attempt that would follow `tip`; nobody waits for who is `leaving`."""
        standing = self.standing(tip, failures.barred)
        present = in_turn(standing)
        paused = {name for name in self._sight.clusters if by_call(present) and self._sight.pauses(name, now)}
        due = self._due(tip, standing, failures, leaving, paused)
        absent = tuple(name for name in due if self._sight.steady(name))
        return RollCall(*upcoming(tip), present, due, absent, failures.again)

    def standing(self, tip: Value, barred: Collection[ClusterId]) -> Standing:
        """READYs that could go into the next attempt."""
        return {
            name: (leader, ready)
            for name, (leader, ready) in sorted(self._by_cluster.items())
            if ready.round == upcoming(tip)[0]
            and name not in barred
            and not _stale(ready, tip)
            and self._sight.doubt(name, leader, ready.term) is None
        }

    def _due(
        self,
        tip: Value,
        standing: Standing,
        failures: Failures,
        leaving: Collection[PeerId],
        paused: Collection[ClusterId],
    ) -> tuple[ClusterId, ...]:
        due = upcoming(tip)[0]
        stale = {name for name, (_, ready) in self._by_cluster.items() if ready.round == due and _stale(ready, tip)}
        out = failures.barred | stale
        return tuple(
            name
            for name, view in self._sight.clusters.items()
            if (view.training or name in paused)
            and name not in standing
            and name not in out
            and view.leader not in leaving
            and (failures.again is None or name in failures.again)
        )


def in_turn(standing: Standing) -> Standing:
    """Without those that stand until others of them are done."""
    specs = {ready.spec for _, ready in standing.values()}
    return {name: entry for name, entry in standing.items() if not any(map(entry[1].spec.waits_for, specs))}


def by_call(standing: Standing) -> bool:
    """Whether the round is one of calls, which are lost on who misses it, and not of the state."""
    return any(ready.spec.kind != "sync" for _, ready in standing.values())


def _stale(ready: Ready, tip: Value) -> bool:
    """Whether a sync contribution starts from another state than the agreed one."""
    if ready.spec.kind != "sync":
        return False
    return tip.state.version == 0 or ready.base is None or not same(ready.base, tip.state)
