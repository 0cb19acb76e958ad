"""What is to be planned, by a table of bandwidths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from ictp2p.collectives.plan import NO_PARENT, ONE_SHOT, Plan
from ictp2p.collectives.planning import topology
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.collectives.planning.topology import Topology
from ictp2p.types import PeerId

ACROSS = 50
"""How many times slower links between regions are."""


def names(size: int) -> tuple[PeerId, ...]:
    return tuple(PeerId(f"{n:032x}") for n in range(size))


def request(
    width: np.ndarray, elements: int = 1_000_000, delay: float | np.ndarray = 0.0, **more: object
) -> PlanRequest:
    who, delays = names(len(width)), np.broadcast_to(delay, width.shape)
    links = {
        (who[i], who[j]): LinkEstimate(float(width[i, j]), float(delays[i, j]))
        for i, j in itertools.permutations(range(len(width)), 2)
        if width[i, j] > 0
    }
    return PlanRequest(who, elements, 4, links, **more)  # type: ignore[arg-type]


@st.composite
def widths(draw: st.DrawFn) -> np.ndarray:
    """Connected graphs: a random tree in both directions, and some more links."""
    size = draw(st.integers(2, 6))
    speed = st.floats(1e6, 1e9)
    width = np.zeros((size, size))
    for node in range(1, size):
        other = draw(st.integers(0, node - 1))
        width[node, other], width[other, node] = draw(speed), draw(speed)
    for i, j in itertools.permutations(range(size), 2):
        if draw(st.booleans()):
            width[i, j] = draw(speed)
    return width


def bytes_between(plan: Plan, source: int, target: int, itemsize: int = 4) -> int:
    """What participant `source` sends to `target`, at `itemsize` bytes per element."""
    if plan.kind == ONE_SHOT:
        return itemsize * plan.elements * (source != target)
    return itemsize * sum(
        (share.stop - share.start)
        * ((share.reduce_parents[source] == target) + (share.broadcast_parents[target] == source))
        for share in plan.shares
    )


def loads(chosen: Plan) -> np.ndarray:
    size = len(chosen.participants)
    return np.array([[bytes_between(chosen, i, j) if i != j else 0 for j in range(size)] for i in range(size)])


def depths(tree: Tree) -> tuple[int, int]:
    """Give the longest way up, and the longest way down, in hops."""
    up, down = (
        max(sum(1 for _ in _way(parents, node)) for node in range(len(parents)))
        for parents in (tree.reduce_parents, tree.broadcast_parents)
    )
    return up, down


def _way(parents: Sequence[int], node: int) -> Iterator[int]:
    while (node := parents[node]) != NO_PARENT:
        yield node


def alike(size: int, speed: float) -> np.ndarray:
    width = np.full((size, size), speed)
    np.fill_diagonal(width, 0)
    return width


def network(asked: PlanRequest) -> Topology:
    return topology.build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)


def oceans(size: int, regions: int, seed: int) -> tuple[np.ndarray, dict[str, dict[str, float]]]:
    """Regions with a link for each pair, fast inside and slow across, and access lines that limit as well."""
    rng = np.random.default_rng(seed)
    where = np.arange(size) % regions
    width = rng.uniform(1e7, 1e8, (size, size)) / np.where(where[:, None] == where, 1, ACROSS)
    np.fill_diagonal(width, 0.0)
    return width, {way: dict(zip(names(size), rng.uniform(3e7, 2e8, size), strict=True)) for way in ("up", "down")}
