"""Of all paths the chosen one is nearly the best for what is to be sent: the second half of R7."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.routing.algebra import Link, link_cost, seconds
from tests.routing.mesh import Mesh


def all_paths(costs: dict[str, dict[str, tuple[int, float]]], at: str, to: str) -> Iterator[tuple[int, float]]:
    """(metric, bottleneck) of every simple path, by brute force."""

    def walk(at: str, seen: frozenset[str], metric: int, narrowest: float) -> Iterator[tuple[int, float]]:
        if at == to:
            yield metric, narrowest
            return
        for hop, (cost, bandwidth) in costs[at].items():
            if hop not in seen:
                yield from walk(hop, seen | {hop}, metric + cost, min(narrowest, bandwidth))

    return walk(at, frozenset({at}), 0, float("inf"))


@given(
    st.integers(3, 6),
    st.lists(
        st.builds(Link, st.floats(0.0, 0.4), st.floats(250_000.0, 1_999_999.0)),
        min_size=15,
        max_size=15,
    ),
    st.lists(st.booleans(), min_size=15, max_size=15),
    st.sampled_from([0, 10_000, 1_000_000, 100_000_000]),
)
@settings(max_examples=60, deadline=None)
def test_the_chosen_class_is_within_a_factor_two_of_the_best_path(
    size: int, links: list[Link], present: list[bool], transfer: int
) -> None:
    names = [f"c{i}" for i in range(size)]
    mesh = Mesh(names, 0)
    graph: dict[str, dict[str, tuple[int, float]]] = {name: {} for name in names}
    for (a, b), link, there in zip(itertools.combinations(names, 2), links, present, strict=False):
        if there:
            mesh.connect(a, b, link)
            assert link.bandwidth is not None
            graph[a][b] = graph[b][a] = (link_cost(link), link.bandwidth)
    mesh.run(100.0)
    for a, b in itertools.permutations(names, 2):
        route = mesh.nodes[a].best(b, transfer)
        exact = [seconds(metric) + transfer / width for metric, width in all_paths(graph, a, b)]
        assert (route is None) == (not exact)
        if route is not None:
            metric, width, at = 0, float("inf"), a
            while at != b:
                hop = mesh.nodes[at].next_hop(b, route.traffic_class)
                assert hop is not None
                metric, width, at = metric + graph[at][hop][0], min(width, graph[at][hop][1]), hop
            actual = seconds(metric) + transfer / width
            assert actual <= route.delay + transfer / route.bandwidth + 1e-9, "a class promised more than its links"
            assert actual <= 2 * min(exact) + 1e-9
