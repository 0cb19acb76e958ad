"""Who should vote next.

Voters are spread so that one death, of a worker or of a whole cluster, leaves a quorum: first one worker of
every cluster, its leader by preference, then a second of every cluster, and so on up to the limit. Those who vote
already are preferred within their cluster, because each change costs a decision. The dead are dropped while a
quorum still lives, which is what lets a mesh shrink one by one below half of its former size (dynamic voting,
Jajodia and Mutchler 1990).

Nobody who is doubted is added, and nobody who is only doubted is dropped. A newcomer is never the first of them, if
anybody stays: half of an even number decides with the first (`values`), and should not wait for who never voted. But
the first coordinates, and plans, and a leader hears sooner and more of links than those whom it leads: so one who leads
comes to the front once it votes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ictp2p.sync.rounds.sight import Sight
from ictp2p.types import PeerId


def desired_voters(
    current: Sequence[PeerId], sight: Sight, leaving: Collection[PeerId], limit: int, now: float
) -> tuple[PeerId, ...]:
    """The voters that the mesh should have, in coordinator order; `current` itself if the set is right.

    Args:
        current: the decided voters.
        sight: beliefs about the clusters.
        leaving: voters that asked to be let go.
        limit: most voters.
        now: seconds.
    """
    kept = [v for v in current if v not in leaving and not sight.gone(v, now)]
    columns = _by_cluster(kept, sight, leaving, now)
    chosen = _spread(columns, limit)
    leaders = set(sight.leaders())
    if not chosen or chosen == set(current):
        return _led(current, [v for v in current if v in leaders and not sight.doubted(v, now)])
    newcomers = dict.fromkeys(v for column in columns for v in column if v in chosen and v not in kept)
    return _ordered([v for v in kept if v in chosen], newcomers, leaders)


def _led(current: Sequence[PeerId], leading: Sequence[PeerId]) -> tuple[PeerId, ...]:
    """The same voters, the first of those who lead before all others, if the first does not lead itself."""
    first = current[0] if not leading or current[0] in leading else leading[0]
    return (first, *(v for v in current if v != first))


def _ordered(kept: Sequence[PeerId], newcomers: Iterable[PeerId], leaders: Collection[PeerId]) -> tuple[PeerId, ...]:
    """Leaders first, but a newcomer only behind somebody who stays: the first decides where half is left."""
    order = sorted([*kept, *newcomers], key=lambda v: v not in leaders)
    first = next((v for v in order if v in kept), order[0])
    return (first, *(v for v in order if v != first))


def _by_cluster(kept: Sequence[PeerId], sight: Sight, leaving: Collection[PeerId], now: float) -> list[list[PeerId]]:
    """Per cluster, whom to choose first: its present voters, its leader, its other workers."""
    voting, homeless, columns = frozenset(kept), list(kept), []
    for name, view in sight.clusters.items():
        members = {view.leader, *view.candidates}
        present = [] if members.isdisjoint(voting) else [v for v in kept if v in members]
        homeless = [v for v in homeless if v not in present] if present else homeless
        fresh = sorted(view.candidates, key=lambda peer: (peer != view.leader, peer)) if sight.steady(name) else []
        allowed = [v for v in fresh if v not in present and v not in leaving and not sight.doubted(v, now)]
        columns.append(present + allowed)
    columns = [column for column in columns if column]
    columns.sort(key=lambda column: kept.index(column[0]) if column[0] in kept else len(kept))
    return [[v] for v in homeless] + columns


def _spread(columns: Sequence[Sequence[PeerId]], limit: int) -> set[PeerId]:
    """Take the first of every column, then the second of every column, up to the limit."""
    depth = max((len(column) for column in columns), default=0)
    ranked = [column[level] for level in range(depth) for column in columns if level < len(column)]
    return set(ranked[:limit])
