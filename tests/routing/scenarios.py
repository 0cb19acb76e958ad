"""Random meshes under random faults, and what is to be true of them in the end."""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple

from hypothesis import strategies as st

from ictp2p.routing.algebra import Link
from ictp2p.routing.profile import RoutingProfile
from tests.routing.mesh import DELAY, DETECT, EQUAL, PROFILE, Mesh


class Change(NamedTuple):
    time: float
    kind: str
    a: int
    b: int
    link: Link


class Scenario(NamedTuple):
    size: int
    edges: tuple[tuple[int, int, Link], ...]
    changes: tuple[Change, ...]
    seed: int

    def mesh(self, profile: RoutingProfile = PROFILE, loss: float = 0.0) -> Mesh:
        mesh = Mesh([f"c{i}" for i in range(self.size)], self.seed, profile, loss)
        for a, b, link in self.edges:
            mesh.connect(f"c{a}", f"c{b}", link)
        for change in self.changes:
            mesh.at(change.time, partial(self._apply, mesh, change))
        return mesh

    @property
    def last_change(self) -> float:
        return max((change.time for change in self.changes), default=0.0) + DETECT

    @staticmethod
    def _apply(mesh: Mesh, change: Change) -> None:
        a, b = f"c{change.a}", f"c{change.b}"
        match change.kind:
            case "restart":
                mesh.restart(a)
            case "fail":
                mesh.fail(a, b)
            case "isolate":
                mesh.isolate(a)
            case "toggle":
                mesh.toggle(a)
            case "connect":
                mesh.connect(a, b, change.link)
            case "change":
                mesh.change(a, b, change.link)
            case _:
                raise AssertionError(f"no such change: {change.kind}")


LINKS = st.builds(
    Link,
    st.sampled_from([0.001, 0.004, 0.02, 0.05, 0.1, 0.3]),
    st.sampled_from([None, 100e3, 300e3, 600e3, 2e6, 100e6]),
)


@st.composite
def scenarios(
    draw: st.DrawFn, kinds: tuple[str, ...] = ("fail", "connect", "change", "isolate", "toggle"), most: int = 8
) -> Scenario:
    size = draw(st.integers(3, 7))
    pairs = list(itertools.combinations(range(size), 2))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, size)]
    chosen = dict.fromkeys(tree + draw(st.lists(st.sampled_from(pairs), max_size=2 * size)))
    edges = tuple((a, b, draw(LINKS)) for a, b in chosen)
    existing = st.sampled_from([(a, b) for a, b in chosen])
    changes = []
    for _ in range(draw(st.integers(0, most if kinds else 0))):
        kind = draw(st.sampled_from(kinds))
        a, b = draw(st.sampled_from(pairs) if kind == "connect" else existing)
        if draw(st.booleans()):
            a, b = b, a
        changes.append(Change(draw(st.floats(0.0, 30.0)), kind, a, b, draw(LINKS)))
    return Scenario(size, edges, tuple(changes), draw(st.integers(0, 2**32)))


def clique(size: int, seed: int, link: Link = EQUAL) -> Mesh:
    mesh = Mesh([f"c{i}" for i in range(size)], seed)
    for a, b in itertools.combinations(mesh.nodes, 2):
        mesh.connect(a, b, link)
    return mesh


def bound(scenario: Scenario) -> float:
    """R6 in seconds: three waves through the mesh, and three retries."""
    return 3 * scenario.size * (DELAY + PROFILE.trigger_most) + sum(PROFILE.retries)


def assert_reachability(mesh: Mesh) -> None:
    for key in mesh.routes():
        reachable = mesh.distances(*key)
        for name, node in mesh.nodes.items():
            has = node.next_hop(*key) is not None
            assert name == key[0] or has == (name in reachable), f"{name} to {key}: {has}"


def assert_optimal(mesh: Mesh) -> None:
    for key in mesh.routes():
        expected = mesh.distances(*key)
        del expected[key[0]]
        found = {name: node.table.chosen[key].metric for name, node in mesh.nodes.items() if key in node.table.chosen}
        assert found == expected, f"towards {key}"
