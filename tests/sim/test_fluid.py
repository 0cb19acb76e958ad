"""Transfers take what their shares of what they pass allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.flows import Flow
from sim.fluid import Fluid
from sim.loop import SimLoop


def _transfer(size: float, capacity: float, round_trip: float, loss: float = 0.0) -> float:
    loop, left, ended = SimLoop(), [size], []

    def passed(amount: float) -> None:
        left[0] -= amount
        if left[0] <= 1e-3 and not ended:
            ended.append(loop.now)

    fluid = Fluid(loop)
    fluid.start(Flow(lambda: [("x", capacity)], lambda: round_trip, lambda: loss, lambda: max(0.0, left[0]), passed))
    loop.run_to(1000.0)
    return ended[0]


def test_a_long_transfer_takes_its_size_over_the_bandwidth_and_a_slow_start() -> None:
    assert _transfer(10e6, 1e6, 0.0) == pytest.approx(10.0, rel=0.01)
    slow = _transfer(10e6, 1e6, 0.1)
    assert 10.0 < slow < 10.6


def test_loss_caps_a_flow_as_mathis_found() -> None:
    assert _transfer(1e6, 1e9, 0.05, loss=0.01) == pytest.approx(1e6 / (1.22 * 1460 / (0.05 * 0.1)), rel=0.1)


@given(st.lists(st.tuples(st.sampled_from([1e4, 1e6]), st.booleans()), min_size=1, max_size=6))
def test_a_flow_that_starts_again_has_what_its_path_has_by_then(turns: list[tuple[float, bool]]) -> None:
    """Paths are looked at once after each change: a flow that rested, or lost its row meanwhile, must not miss one."""
    loop, capacity, left, tiny, ended = SimLoop(), [1e6], [0.0], [0.0], [0.0]

    def flow(size: list[float]) -> Flow:
        def passed(amount: float) -> None:
            size[0] -= amount
            ended[0] = loop.now

        return Flow(lambda: [("x", capacity[0])], lambda: 0.0, lambda: 0.0, lambda: max(0.0, size[0]), passed)

    fluid, one, another = Fluid(loop), flow(left), flow(tiny)
    for bandwidth, dropped in turns:
        if bandwidth != capacity[0]:
            capacity[0] = bandwidth
            fluid.changed()
        left[0], tiny[0], began = 1e6, 1.0, loop.now
        if dropped:
            fluid.drop(one)
            fluid.start(another)  # in the row that was the other's
        fluid.start(one)
        loop.run_to(began + 1000.0)
        assert ended[0] - began == pytest.approx(1e6 / bandwidth, rel=0.01, abs=0.01)


@given(late=st.floats(-2e-6, 2e-6))
@example(late=5e-7)
def test_a_flow_goes_on_though_rates_changed_in_the_moment_in_which_it_had_sent_all(late: float) -> None:
    loop, left = SimLoop(), [0.9 + late]

    def passed(amount: float) -> None:
        left[0] -= amount

    def flow(head: Callable[[], float], passed: Callable[[float], None]) -> Flow:
        return Flow(lambda: [("x", 1.0)], lambda: 0.0, lambda: 0.0, head, passed)

    fluid, one = Fluid(loop), flow(lambda: left[0] if left[0] > 1e-6 else 0.0, passed)  # the rest is rounding
    fluid.start(one)
    loop.run_to(0.9)
    fluid.start(flow(lambda: 1.0, lambda _: None))
    loop.run_to(2.0)
    left[0] += 1.0
    fluid.start(one)
    loop.run_to(4.1)
    assert left[0] == pytest.approx(0.0, abs=1e-4)


def _run(size: float, limit: float, *rests: float, loss: float = 0.0) -> tuple[Flow, list[float]]:
    """Send so much over 1 MB/s and 100 ms, and again after each rest; the seconds that each took."""
    loop, left, took = SimLoop(), [0.0], list[float]()

    def passed(amount: float) -> None:
        left[0] -= amount

    def head() -> float:
        return left[0] if left[0] > 1e-6 else 0.0

    fluid = Fluid(loop)
    flow = Flow(lambda: [("x", 1e6)], lambda: 0.1, lambda: loss, head, passed, lambda: limit)
    for rest in (0.0, *rests):
        loop.run_to(loop.now + rest)
        left[0], began = size, loop.now
        fluid.start(flow)
        while head():
            loop.run_to(loop.now + 0.001)
        loop.run_to(loop.now + 0.01)
        took.append(loop.now - began)
    return flow, took


def test_after_a_rest_who_reacts_to_losses_starts_slowly_and_bbr_goes_on() -> None:
    _, (first, soon, rested) = _run(1e5, 1e9, 0.1, 5.0)
    assert first > soon + 0.1
    assert rested <= soon, "its window has grown meanwhile, and stays"
    _, (first, soon, rested) = _run(1e5, 1e9, 0.1, 5.0, loss=1e-5)
    assert first > soon + 0.1
    assert rested == pytest.approx(first, abs=0.01)


@pytest.mark.parametrize(("size", "limit", "held"), [(2e6, 2e4, 9.9), (8e3, 1e4, 0.0), (2e6, 2e5, 0.0)])
def test_the_account_says_whether_hosts_or_the_line_bound_a_flow(size: float, limit: float, held: float) -> None:
    """What is sent in the first round trip the hosts hold."""
    flow, (took,) = _run(size, limit)
    assert flow.busy == pytest.approx(took, abs=0.02)
    assert flow.held == pytest.approx(held, rel=0.02, abs=0.02)


def test_a_flow_that_starts_again_knows_how_fast_it_was_and_looks_at_no_path_that_has_not_changed() -> None:
    loop, left, looks = SimLoop(), [0.0], list[float]()

    def passed(amount: float) -> None:
        left[0] -= amount

    def round_trip() -> float:
        looks.append(loop.now)
        return 0.0

    fluid = Fluid(loop)
    flow = Flow(lambda: [("x", 1e6)], round_trip, lambda: 0.0, lambda: max(0.0, left[0]), passed)
    assert flow.delivered == 0.0
    for _ in range(2):
        left[0] = 1e5
        fluid.start(flow)
        loop.run_to(loop.now + 1.0)
        assert left[0] == pytest.approx(0.0, abs=1e-4)
    fluid.start(flow)
    assert flow.delivered == pytest.approx(1e6)
    assert looks == [0.0]
