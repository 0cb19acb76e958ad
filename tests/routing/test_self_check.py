"""Periodic updates say what should be held: who holds something else gets everything anew, and nobody else does."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY, Distance, Link
from ictp2p.routing.messages import CHECKSUM, Key, RouteRequest, checksum
from tests.routing.mesh import PROFILE, Mesh
from tests.routing.scenarios import Scenario, assert_optimal, scenarios

REST = 6 * PROFILE.update_interval
GHOSTS: list[Key] = [("ghost", 0), ("ghost", 1), ("spook", 2)]


def at_rest(scenario: Scenario) -> Mesh:
    mesh = scenario.mesh()
    mesh.run(scenario.last_change + REST)
    return mesh


def misheld(mesh: Mesh) -> list[tuple[str, str]]:
    """Pairs of neighbours of which the first does not hold what the second has for it."""
    wrong = []
    for me, neighbour in itertools.permutations(mesh.nodes, 2):
        if (me, neighbour) not in mesh.sessions:
            continue
        theirs = [(key, mesh.nodes[neighbour].next_hop(*key)) for key in mesh.routes()]
        own = [(neighbour, k) for k in range(PROFILE.classes if mesh.relayed[neighbour] else 1)]
        due = [*own, *(key for key, hop in theirs if hop is not None and me not in (hop, key[0]))]
        if mesh.nodes[me].table.offered_by(neighbour) != sorted(due):
            wrong.append((me, neighbour))
    return wrong


@given(scenarios())
@settings(max_examples=50, deadline=None)
def test_nobody_doubts_without_cause(scenario: Scenario) -> None:
    mesh = at_rest(scenario)
    assert not misheld(mesh)
    mesh.sent.clear()
    mesh.run(mesh.now + 3 * PROFILE.update_interval)
    assert not [sent for sent in mesh.sent if isinstance(sent[3], RouteRequest)]


@given(scenarios(), st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_held_wrongly_is_set_right(scenario: Scenario, data: st.DataObject) -> None:
    """By the next periodic update; where a route that nobody has came of it and circles, a hold time later."""
    mesh = at_rest(scenario)
    pairs = sorted(mesh.sessions)
    ghosts: list[Key] = data.draw(st.sampled_from([[], GHOSTS]))
    for me, neighbour in sorted(data.draw(st.sets(st.sampled_from(pairs), max_size=4))) if pairs else ():
        table = mesh.nodes[me].table
        held = [*table.offered_by(neighbour), *ghosts]
        for key in sorted(data.draw(st.sets(st.sampled_from(held)))) if held else ():
            table.learn(key, neighbour, Distance(1, 1 if key in GHOSTS else INFINITY))
    mesh.checking = False
    mesh.run(mesh.now + 1.1 * PROFILE.update_interval + (PROFILE.hold + PROFILE.update_interval if ghosts else 0.0))
    assert not misheld(mesh)
    assert_optimal(mesh)


def test_a_route_that_nobody_has_does_not_circle_for_ever() -> None:
    """Each of three took it from the next. The choice of one was stale, and stood while its neighbour did."""
    mesh = Mesh(["c0", "c1", "c2"], seed=0)
    for one, other in itertools.combinations(mesh.nodes, 2):
        mesh.connect(one, other, Link(0.001, 100_000.0 if one == "c1" else None))
    mesh.run(REST)
    table = mesh.nodes["c0"].table
    for neighbour in ("c1", "c2"):
        table.learn(("ghost", 0), neighbour, Distance(1, 1))
        table.learn((neighbour, 0), neighbour, Distance(1, INFINITY))
    mesh.checking = False
    mesh.run(mesh.now + 1.1 * PROFILE.update_interval)
    assert [mesh.nodes[f"c{n}"].next_hop("ghost") for n in range(3)] == ["c2", "c0", "c1"], "a loop"
    mesh.run(mesh.now + PROFILE.hold + PROFILE.update_interval)
    assert not any(node.next_hop("ghost") for node in mesh.nodes.values())


@given(st.sets(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(0, 10)), max_size=20), st.randoms())
def test_a_checksum_is_of_the_set_and_not_of_its_order(routes: set[Key], rng: object) -> None:
    shuffled = sorted(routes)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert checksum(routes) == checksum(shuffled) <= CHECKSUM
    for one in routes:
        assert checksum(routes - {one}) != checksum(routes)
