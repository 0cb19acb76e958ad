"""The invariants of the routing machine, checked after every event of random meshes under random faults.

What must hold at every instant `Mesh` checks after each event; here is what must hold eventually, and how soon.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY, Link
from ictp2p.routing.babel import RouteChanged
from ictp2p.routing.messages import Update
from tests.routing.mesh import DELAY, DETECT, PROFILE, Mesh
from tests.routing.scenarios import Scenario, assert_optimal, assert_reachability, bound, clique, scenarios

# Always: R1 to R5 (checked inside). At rest: R7.


@given(scenarios())
@settings(max_examples=100, deadline=None)
def test_there_is_never_a_loop_and_rest_is_optimal(scenario: Scenario) -> None:
    mesh = scenario.mesh()
    mesh.run(scenario.last_change + 6 * PROFILE.update_interval)
    assert_optimal(mesh)
    before = len(mesh.notices)
    mesh.run(mesh.now + 4 * PROFILE.update_interval)
    assert len(mesh.notices) == before, "routes still change though nothing else does"


@given(
    scenarios(kinds=("fail", "connect", "change", "isolate", "toggle", "restart")),
    st.sampled_from([0.1, 0.4]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_loss_disorder_and_restarts_cost_time_but_never_make_a_loop(
    scenario: Scenario, loss: float, in_order: bool
) -> None:
    mesh = scenario.mesh(loss=loss)
    mesh.in_order = in_order
    mesh.run(scenario.last_change)
    mesh.loss, mesh.in_order = 0.0, True
    mesh.run(mesh.now + 8 * PROFILE.update_interval)
    assert_optimal(mesh)


@given(st.integers(3, 6), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_equals_do_not_choose_each_other_when_their_destination_dies(size: int, seed: int) -> None:
    mesh = clique(size, seed)
    mesh.run(10.0)
    mesh.isolate("c0")
    mesh.run(10.0 + 5.0)
    assert all(node.next_hop("c0") is None for name, node in mesh.nodes.items() if name != "c0")


# Soon: R6, R8, R9, R10


@given(scenarios(kinds=("fail", "connect", "isolate", "toggle", "restart")))
@settings(max_examples=100, deadline=None)
def test_routes_come_back_and_dead_ones_are_retracted_within_the_bound(scenario: Scenario) -> None:
    mesh = scenario.mesh()
    mesh.run(scenario.last_change + bound(scenario))
    assert_reachability(mesh)
    settled = mesh.now
    mesh.run(settled + 4 * PROFILE.update_interval)
    for time, sender, _, message in mesh.sent:
        if time > settled and isinstance(message, Update):
            for advert in message.adverts:
                reachable = sender in mesh.distances(advert.destination, advert.first)
                assert reachable or advert.metric == INFINITY, "R8: a dead route was advertised again"


@given(scenarios(kinds=()), st.integers(0, 10), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_restart_with_nothing_but_a_higher_incarnation_is_healed_within_the_bound(
    scenario: Scenario, who: int, seed: int
) -> None:
    mesh = scenario.mesh()
    mesh.run(20.0)
    mesh.restart(f"c{who % scenario.size}")
    mesh.run(mesh.now + 2 * DETECT + bound(scenario))
    assert_reachability(mesh)


@given(st.integers(3, 7), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_partitioned_destination_is_not_counted_to_infinity(size: int, seed: int) -> None:
    mesh = clique(size, seed)
    mesh.run(10.0)
    mesh.sent.clear()
    mesh.isolate("c0")
    mesh.run(11.0)
    finite = [a.metric for *_, m in mesh.sent if isinstance(m, Update) for a in m.adverts if a.destination == "c0"]
    assert max(finite, default=0) in (0, INFINITY), "a router found a way to a dead destination"
    assert len(mesh.sent) <= 2 * size * size, "each router retracts once to each neighbour, and asks at most once"


def test_a_dropped_link_is_rerouted_in_the_same_instant_where_a_feasible_way_exists() -> None:
    mesh = Mesh(["a", "b", "c", "d"], 0)
    for x, y, srtt in (("a", "b", 0.01), ("b", "d", 0.01), ("a", "c", 0.01), ("c", "d", 0.012)):
        mesh.connect(x, y, Link(srtt))
    mesh.run(10.0)
    a = mesh.nodes["a"]
    assert a.next_hop("d") == "b"
    effects = a.link_down("b", mesh.now)
    assert a.next_hop("d") == "c"
    assert RouteChanged("d", 0, "c", a.table.chosen["d", 0].metric) in effects


def test_retry_finds_the_way_when_the_first_requests_are_lost() -> None:
    """The direct link fails, the only other way is longer, hence infeasible, and the requests for it get lost."""
    mesh = Mesh(["a", "b", "d"], 0)
    for x, y in (("a", "b"), ("b", "d"), ("a", "d")):
        mesh.connect(x, y, Link(0.02))
    mesh.run(10.0)
    mesh.fail("a", "d")
    mesh.loss = 1.0
    mesh.run(10.0 + DETECT + 0.1)
    mesh.loss = 0.0
    assert mesh.nodes["a"].next_hop("d") is None
    mesh.run(10.0 + DETECT + 0.1 + sum(PROFILE.retries[:2]))
    assert mesh.nodes["a"].next_hop("d") == "b"


@given(st.integers(3, 6), st.lists(st.floats(0.002, 0.16), min_size=15, max_size=15), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_where_nothing_is_lost_a_failure_needs_no_repeat_of_a_request(size: int, trips: list[float], seed: int) -> None:
    """The requests for it may meet routers whose own next hop changes while they carry them."""
    mesh = Mesh([f"c{i}" for i in range(size)], seed, replace(PROFILE, retries=(1000.0,), classes=1))
    for (a, b), trip in zip(itertools.combinations(mesh.nodes, 2), trips, strict=False):
        mesh.connect(a, b, Link(trip))
    mesh.run(30.0)
    mesh.fail("c0", "c1")
    mesh.run(30.0 + DETECT + 3 * size * (DELAY + PROFILE.trigger_most))
    assert_reachability(mesh)


def test_the_judge_sees_the_loops_of_naive_bellman_ford(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.routing.sources.SourceTable.feasible", lambda *_: True)
    monkeypatch.setattr(
        Mesh, "_check", lambda self, name, before: [self._check_path(name, key) for key in self.routes()]
    )
    monkeypatch.setattr("tests.routing.mesh.nearer", lambda *_: True)

    def loops(seed: int) -> bool:
        mesh = clique(4, seed)
        mesh.run(10.0)
        mesh.isolate("c0")
        try:
            mesh.run(12.0)
        except AssertionError as error:
            return "R1" in str(error)
        return False

    assert any(loops(seed) for seed in range(20))
