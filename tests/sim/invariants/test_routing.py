"""Each rule of routing is seen to be broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ictp2p.routing.algebra import INFINITY, Distance
from ictp2p.routing.babel import Babel, RouteChanged
from ictp2p.routing.table import Choice
from sim import World

Broken = Callable[[], list[str]]


def _router(world: World, host: str) -> Babel:
    core = world.hosts[host].core
    assert core is not None
    return core.m.routes


@pytest.fixture(autouse=True)
def _quiet(world: World, broken: Broken) -> None:
    world.run_for(3)
    world.auditor.sweep()
    assert broken() == []
    assert {cluster for cluster, _ in _router(world, "a/0").table.chosen} == {"b", "c"}


@pytest.fixture
def around(world: World) -> RouteChanged:
    """To c they choose each other."""
    for name, other in (("a/0", "b"), ("b/0", "a")):
        _router(world, name).table.chosen["c", 0] = Choice(other, Distance(2**62, 1), 2)
    return RouteChanged("c", 0, "b", 2)


def test_r1_a_loop(world: World, broken: Broken, around: RouteChanged) -> None:
    world.auditor.notice(world.hosts["a/0"], around)
    assert "R1" in broken()


def test_r1_nothing_goes_round_by_a_connection_to_a_process_that_is_no_more(
    world: World, broken: Broken, around: RouteChanged
) -> None:
    near, far = world.hosts["a/0"], world.hosts["b/0"]
    assert near.peer is not None
    assert far.id is not None
    connection = near.peer.driver.connection(far.id)
    assert connection is not None
    connection.process = b"of its former life"
    world.auditor.notice(near, around)
    assert broken() == []


def test_r2_a_next_hop_that_has_promised_no_less(world: World, broken: Broken) -> None:
    near, far = _router(world, "a/0"), _router(world, "b/0")
    mine = far.sources.distance(("c", 0))
    nearer = Distance(mine.seqno, mine.metric - 1)
    near.table.chosen["c", 0] = Choice("b", nearer, mine.metric)
    far.sources._distances["c", 0] = nearer
    world.auditor.sweep()
    assert broken() == []
    far.sources._distances["c", 0] = mine
    world.auditor.sweep()
    assert "R2" in broken()


@pytest.mark.parametrize("metric", [0, INFINITY])
def test_r3_a_selection_that_is_not_finite(world: World, broken: Broken, metric: int) -> None:
    table = _router(world, "a/0").table
    table.chosen["c", 0] = table.chosen["c", 0]._replace(metric=metric)
    world.auditor.sweep()
    assert broken() == ["R3"]


def test_r3_a_selection_that_was_not_feasible(world: World, broken: Broken) -> None:
    router = _router(world, "a/0")
    choice = router.table.chosen["c", 0]
    router.sources._distances["c", 0] = choice.offer
    world.auditor.sweep()
    assert "R3" in broken()


def test_r4_a_promise_that_gets_worse(world: World, broken: Broken) -> None:
    router = _router(world, "a/0")
    mine = router.sources.distance(("c", 0))
    router.sources._distances["c", 0] = Distance(mine.seqno, mine.metric + 1)
    world.auditor.sweep()
    assert "R4" in broken()


def test_r4_nothing_is_promised_any_more_once_a_clock_has_jumped_beyond_what_is_remembered(
    world: World, broken: Broken
) -> None:
    """Regression: what was forgotten and promised anew between two looks passed for a promise that got worse."""
    router = _router(world, "a/0")
    mine = router.sources.distance(("c", 0))
    world.skew("a/0", offset=router.sources.lifetime)
    router.sources._distances["c", 0] = Distance(mine.seqno, mine.metric + 1)
    world.auditor.sweep()
    assert broken() == []


def test_r5_a_sequence_number_that_jumps_or_is_of_another_term(world: World, broken: Broken) -> None:
    router = _router(world, "a/0")
    world.auditor.delivering(world.hosts["a/0"])
    router.seqno += 1
    world.auditor.delivering(world.hosts["a/0"])
    assert broken() == []
    router.seqno += 2
    world.auditor.delivering(world.hosts["a/0"])
    assert broken() == ["R5"]
    router.seqno += 1 << 32
    world.auditor.sweep()
    assert broken() == ["R5", "R5"]
