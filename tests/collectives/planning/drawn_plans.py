"""Plans drawn at random: all that people know, and trees that nobody would plan."""

from __future__ import annotations

from hypothesis import strategies as st

from ictp2p.collectives.plan import Plan, Share
from ictp2p.collectives.planning.schedules import parameter_server, ring, star
from ictp2p.collectives.planning.schedules.trees import Tree

PARTIAL_BYTES = 1024
"""What a chunk is taken to have where rooms are drawn: for none, for less than one, for some."""


def random_parents(draw: st.DrawFn, size: int, root: int) -> tuple[int, ...]:
    order = [root, *(n for n in draw(st.permutations(range(size))) if n != root)]
    parents = [-1] * size
    for place, node in enumerate(order[1:], 1):
        parents[node] = order[draw(st.integers(0, place - 1))]
    return tuple(parents)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    size = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["star", "ring", "server", "random"]))
    trees: tuple[Tree, ...]
    if kind == "star":
        trees = star.trees(size)
    elif kind == "ring":
        trees = ring.trees(draw(st.permutations(range(size))))
    elif kind == "server":
        trees = (draw(st.sampled_from(parameter_server.trees(size))),)
    else:
        roots = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4))
        trees = tuple(Tree(r, random_parents(draw, size, r), random_parents(draw, size, r)) for r in roots)
    shares, start = [], 0
    for tree in trees:
        stop = start + draw(st.integers(0, 12))
        shares.append(Share(start, stop, *tree, draw(st.integers(0, 4 * PARTIAL_BYTES))))
        start = stop
    chunk, seconds = draw(st.integers(1, 3)), draw(st.sampled_from((0.0, 60.0)))
    return Plan(kind, tuple(f"{n:032x}" for n in range(size)), tuple(shares), chunk, seconds, 0.0)
