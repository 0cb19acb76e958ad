"""Lower bounds: what no plan can beat on given links, however clever. They certify a plan's quality.

All are for the fluid model: every participant holds S bytes, and nothing computes inside the network.

- *Node*: everybody must send S bytes at least once, and receive S.
- *Volume*: each element needs 2 (N-1) transfers between participants (the directed gossip number).
- *Cut*: what one side lacks, S bytes, must come in from the other. All cuts are tried where participants are few.
- *Partition*: merge participants into k groups; groups behave as participants do: each sends and receives S, and
  2 (k-1) S cross the borders. Evaluated along the single-linkage dendrogram of the links, which finds the regions.
- *Merged*: what all plans can do on the merged network is no less than on this one; if there are few groups, a program
  over its trees says it exactly (`growing`), where volumes assume that all that crosses a border could be made use of.
- *Price*: put a price on each resource. Every element climbs one tree and descends one, both with the same root; so it
  costs no less than the cheapest such pair, and all elements together no more than all capacity for the whole time.
  The prices of an optimal packing over all trees make this bound the optimum itself (duality), any prices a bound.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ictp2p.collectives.planning.schedules.trees import Matrix
from ictp2p.collectives.planning.topology import LinkEstimate, Topology, build
from ictp2p.types import PeerId

ALL_CUTS = 10
"""Up to this many participants all cuts are tried."""


def lower_bound(topology: Topology, size: float) -> float:
    """Give the largest of the bounds that need no prices, in seconds, on all-reducing `size` bytes."""
    if topology.size < 2 or not size:
        return 0.0
    bound = max(partition_bound(topology, size, groups) for groups in linkage(topology.fair()))
    return max(bound, cut_bound(topology, size)) if topology.size <= ALL_CUTS else bound


def partition_bound(topology: Topology, size: float, groups: tuple[tuple[int, ...], ...]) -> float:
    """Bound the time with each of `groups` taken as one participant; singletons give the node and volume bounds."""
    member, apart = _borders(topology, groups)
    out = member @ np.minimum(topology.up, apart.sum(axis=1))
    into = member @ np.minimum(topology.down, apart.sum(axis=0))
    free, total = apart, 0.0
    for over, line in topology.trunks:
        free = np.where(over, 0.0, free)
        total += min(line, float((apart * over).sum()))
    if topology.trunks:
        shared = [(member @ (apart * over), (apart * over) @ member.T, line) for over, line in topology.trunks]
        out = np.minimum(out, member @ free.sum(axis=1) + sum(np.minimum(n, s.sum(axis=1)) for s, _, n in shared))
        into = np.minimum(into, member @ free.sum(axis=0) + sum(np.minimum(n, s.sum(axis=0)) for _, s, n in shared))
    slowest = min(out.min(), into.min())
    if slowest <= 0:
        return float("inf")
    volume = min(out.sum(), into.sum(), total + free.sum())
    return float(max(size / slowest, 2 * (len(groups) - 1) * size / volume))


def merged(topology: Topology, groups: tuple[tuple[int, ...], ...]) -> Topology:
    """Take each of the groups for one participant: what its members can do together, and nothing shared any more."""
    member, apart = _borders(topology, groups)
    width, names = member @ apart @ member.T, [PeerId(f"{number:032x}") for number in range(len(groups))]
    links = {(names[a], names[b]): LinkEstimate(float(width[a, b])) for a, b in zip(*np.nonzero(width), strict=True)}
    up, down = (
        member @ np.minimum(topology.up, apart.sum(axis=1)),
        member @ np.minimum(topology.down, apart.sum(axis=0)),
    )
    return build(tuple(names), links, dict(zip(names, up, strict=True)), dict(zip(names, down, strict=True)))


def cut_bound(topology: Topology, size: float) -> float:
    """Bound the time by the narrowest cut, of all of them."""
    count = topology.size
    inside = (np.arange(1, (1 << count) - 1)[:, None] >> np.arange(count) & 1).astype(float)
    sent = inside * np.minimum(topology.up, (1 - inside) @ topology.width.T)
    taken = (1 - inside) * np.minimum(topology.down, inside @ topology.width)
    narrowest = float(np.minimum(sent.sum(axis=1), taken.sum(axis=1)).min())
    return size / narrowest if narrowest > 0 else float("inf")


def price_bound(worth: float, cheapest: float, size: float) -> float:
    """Bound the time where all capacity is worth so much per second, and the cheapest pair of trees costs so much."""
    return cheapest * size / worth if worth > 0 else 0.0


def linkage(width: Matrix) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Merge the two groups joined by the widest link, again and again; give every partition of two groups or more."""
    size = len(width)
    both = width + width.T
    group: dict[int, tuple[int, ...]] = {node: (node,) for node in range(size)}
    yield tuple((node,) for node in range(size))
    first, second = np.triu_indices(size, 1)
    for index in np.argsort(-both[first, second], kind="stable"):
        one, two = group[int(first[index])], group[int(second[index])]
        if one == two:
            continue
        merged = tuple(sorted(one + two))
        group |= dict.fromkeys(merged, merged)
        if len(merged) == size:
            return
        yield tuple(sorted(set(group.values())))


def _borders(topology: Topology, groups: tuple[tuple[int, ...], ...]) -> tuple[Matrix, Matrix]:
    """Give who is in which group, by group, and the widths of the edges that lead from one group to another."""
    member = np.zeros((len(groups), topology.size))
    for number, group in enumerate(groups):
        member[number, list(group)] = 1
    return member, topology.width * (1 - member.T @ member)
