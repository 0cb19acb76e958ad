from __future__ import annotations

import copy
import math
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.pace import AdaptivePace, Pace
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo

MILLION = 10**6


def said(*measured: tuple[float, float]) -> list[Any]:
    """Notes of clusters whose steps and rounds take so many milliseconds."""
    return [(f"c{n}", struct.pack("<QQ", *(int(v * MILLION) for v in pair))) for n, pair in enumerate(measured)]


LONG = 10**9
"""Steps of a training that has come so far that they bound nothing."""


def decided(pace: AdaptivePace, *measured: tuple[float, float], taken: int = LONG) -> int:
    counters = {**pace.counters, "round": 1, "steps of all phases": taken - pace.steps}
    pace.decide(counters, {}, said(*measured))
    return counters["steps per phase"]


@given(
    st.floats(0.5, 0.99),
    st.lists(st.tuples(st.floats(1.0, 1e3), st.floats(10.0, 1e5)), min_size=1, max_size=5),
    st.booleans(),
)
def test_the_target_utilization_is_reached(
    target: float, measured: list[tuple[float, float]], proportional: bool
) -> None:
    pace = AdaptivePace(100, utilization=target, least=1, most=10**6, proportional=proportional)
    wanted = decided(pace, *measured)
    step = (min if proportional else max)(s for s, _ in measured)
    waits = min(r for _, r in measured)
    compute = wanted * step
    if wanted == 100:  # steady: within a quarter of what was wanted
        assert 100 / 1.26 - 1 <= target / (1 - target) * waits / step <= 126
    elif wanted < 10**6:
        assert compute / (compute + waits) >= target * (1 - 1e-9)
        assert wanted == 1 or (compute - step) / (compute - step + waits) < target + 1e-6


@given(st.integers(0, 12), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9))
def test_what_training_covers_is_the_steps_that_a_round_still_has(aloft: int, steps: list[float]) -> None:
    pace = Pace(10)
    pace.fit(1, 8)
    assert pace.covered(0) == 0.0, "how long a step takes is not known"
    for seconds in steps:
        pace.stepped(seconds)
    left = max(0, 8 - aloft)
    assert left * min(steps) * (1 - 1e-9) <= pace.covered(aloft) <= left * max(steps) * (1 + 1e-9)


def test_by_hand() -> None:
    pace = AdaptivePace(100, utilization=0.95, least=10, most=1000)
    # 0.95 / 0.05 = 19: rounds of 1 s need 19 s of steps.
    assert decided(pace, (50.0, 1000.0)) == 380
    assert decided(pace, (50.0, 1000.0), (50.0, 4000.0)) == 380, "the longer one had to wait for the other"
    assert decided(pace, (190.0, 1000.0)) == 100
    assert decided(pace, (180.0, 1000.0)) == 100, "within a quarter of what it is"
    assert decided(pace, (1.0, 1000.0)) == 1000, "the most"
    assert decided(pace, (100.0, 10.0)) == 10, "the least"
    assert decided(pace) == decided(pace, (0.0, 0.0)) == decided(pace, (50.0, 0.0)) == 100, "nothing was measured"


@pytest.mark.parametrize(("steps", "phase"), [(5, 0.1), (25, 0.5), (50, 1.0), (51, 1.0), (500, 1.0)])
def test_a_longer_phase_is_stepped_after_once(steps: int, phase: float) -> None:
    pace = AdaptivePace(50, least=5, most=500)
    assert pace.phase({**pace.counters, "round": 0, "steps per phase": steps}) == phase


@given(st.integers(1, 10**5), st.floats(1.0, 1e3), st.floats(1.0, 1e5))
def test_a_phase_is_no_longer_than_what_is_trained_allows(taken: int, step: float, took: float) -> None:
    """Up to the root of the steps taken, times those that a round takes; but no shorter than the reference for that."""
    found = decided(AdaptivePace(50, most=10**6), (step, took), taken=taken + 50)
    assert found <= max(50.0, math.sqrt(took / step * (taken + 50)) * 1.001)
    assert found == 50 or found >= 10


def test_h_grows_with_the_training_by_hand() -> None:
    pace = AdaptivePace(50)
    # Rounds of 2 s are 40 steps of 50 ms; a utilization of 0.95 would need 760.
    assert decided(pace, (50.0, 2000.0), taken=100) == 63
    assert decided(pace, (50.0, 2000.0), taken=1000) == 200
    assert decided(pace, (50.0, 2000.0), taken=10_000) == 632
    assert decided(pace, (50.0, 2000.0), taken=100_000) == 760


def test_what_overlaps_costs_nothing() -> None:
    pace = AdaptivePace(100, least=1)
    pace.fit(1, 10)
    assert decided(pace, (50.0, 1000.0)) == 190, "half of the round is under cover"
    assert decided(pace, (200.0, 1000.0)) == 10, "a round ends before the next begins"


def test_every_fragment_has_a_round_to_wait_for() -> None:
    pace = AdaptivePace(100, utilization=0.5, least=1)
    pace.fit(4, 0)
    assert decided(pace, (50.0, 2000.0)) == 160, "four rounds of 40 steps each"
    assert decided(pace, (50.0, 1.0)) == 4, "a step for each"


@given(st.integers(1, 500), st.integers(1, 40))
def test_every_fragment_has_its_turn_once_per_phase(steps: int, fragments: int) -> None:
    pace = Pace(steps)
    if fragments > steps:
        with pytest.raises(ConfigError, match=f"sync_every {steps} is fewer"):
            pace.fit(fragments, 0)
        return
    pace.fit(fragments, steps // fragments)
    turns = [pace.length(number) for number in range(3 * fragments)]
    assert 1 <= min(turns) <= max(turns) <= min(turns) + 1
    assert all(sum(turns[k : k + fragments]) == steps for k in range(2 * fragments)), "each every H steps exactly"
    assert min(turns) >= pace.overlap, "a round has landed before the next turn"
    if steps % fragments == 0:
        assert set(turns) == {steps // fragments}
    with pytest.raises(ConfigError, match="overlap"):
        pace.fit(fragments, steps // fragments + 1)


@given(st.integers(1, 6), st.lists(st.tuples(st.floats(1.0, 50.0), st.floats(1.0, 1e4)), min_size=1, max_size=30))
def test_each_fragments_phase_is_what_it_was_trained_for(fragments: int, measured: list[tuple[float, float]]) -> None:
    """While H changes, the phase of a fragment is the sum of the turns since its own last round."""
    pace = AdaptivePace(100, least=6, most=400)
    pace.fit(fragments, 0)
    counters, turns = {"round": 0, **pace.counters}, []
    for pair in measured:
        fragment = counters["round"] % fragments
        pace.landed(counters, {})
        turns.append(pace.length(fragment))
        assert pace.phase(counters) == min(1.0, sum(turns[-fragments:]) / 100)
        counters["round"] += 1
        pace.decide(counters, {}, said(pair))


def test_a_note_that_makes_no_sense_counts_for_nothing() -> None:
    pace = AdaptivePace(100)
    counters = {**pace.counters, "round": 1, "steps of all phases": LONG}
    pace.decide(counters, {}, [("a", b"x"), ("b", b""), *said((50.0, 1000.0)), ("d", b"\xff" * 16)])
    assert counters["steps per phase"] == 380


@given(st.integers(1, 6), st.floats(0.0, 0.95), st.booleans(), st.lists(st.floats(-2.0, 2.0), min_size=3, max_size=3))
def test_a_phase_of_n_lengths_moves_as_n_phases_would(
    phases: int, momentum: float, nesterov: bool, delta: list[float]
) -> None:
    """The correction for a changed H, against the steps that it stands for."""
    start, before = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), torch.tensor([0.3, -1.0, 2.0])
    ends, buffers = [], []
    for length, times in ((phases, 1), (1, phases)):
        param = torch.nn.Parameter(start.clone())
        optimizer = Nesterov([param], lr=0.7, momentum=momentum, nesterov=nesterov)
        if momentum:
            optimizer.state[param]["momentum_buffer"] = before.double()
        optimizer.phase = length
        for _ in range(times):
            param.grad = torch.tensor(delta, dtype=torch.float64) / times
            optimizer.step()
        ends.append(param.detach())
        buffers.append(optimizer.state[param].get("momentum_buffer", torch.zeros(3)))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(buffers[0], buffers[1], rtol=1e-9, atol=1e-12)


@given(st.floats(0.2, 3.0), st.floats(0.2, 3.0))
def test_phases_add_up(one: float, other: float) -> None:
    """Also for parts of a phase: two in a row of one slope are one of both lengths."""
    ends = []
    for lengths in ((one, other), (one + other,)):
        param = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
        optimizer = Nesterov([param], lr=0.7, momentum=0.9, nesterov=False)
        for length in lengths:
            optimizer.phase = length
            param.grad = torch.tensor([length], dtype=torch.float64)
            optimizer.step()
        ends.append((float(param.detach()), float(optimizer.state[param]["momentum_buffer"])))
    assert math.isclose(ends[0][1], ends[1][1], rel_tol=1e-9)


def worker(pace: Pace, steps: int, times: list[float] | None = None) -> Callable[[Any], Any]:
    """A training loop whose steps take a second each on the clock that `times` holds."""

    def body(mesh: Any) -> Any:
        model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        lengths, last = [], 0
        with DiLoCo(mesh, model, inner, sync_every=pace) as policy:
            for number in range(1, steps + 1):
                model(torch.ones(2)).square().backward()
                if times is not None:
                    times[0] += 1.0
                version = policy.version
                inner.step()
                inner.zero_grad()
                if policy.version > version:
                    lengths.append(number - last)
                    last = number
            return lengths, policy

    return body


def test_h_follows_the_measured_times_and_is_the_same_everywhere(make_world: Any) -> None:
    """Steps of a second, rounds of 18: a utilization of 0.4 needs 12 steps, decided with the second round."""
    world = make_world(a=2, b=1)
    clocks = {name: [0.0] for name in ("a_0", "a_1", "b_0")}
    world.clock = lambda name: clocks[name.replace("/", "_")][0]
    world.seconds = lambda cluster: 18.0
    paces = {name: AdaptivePace(4, utilization=0.4, least=2) for name in clocks}
    found = world.run(**{name: worker(paces[name], 46, clocks[name]) for name in clocks})
    for lengths, policy in found.values():
        assert lengths == [4, 4, 12, 12, 12]
        assert policy.sync_every == 12
    assert len({policy.digest() for _, policy in found.values()}) == 1


def test_a_slower_cluster_takes_fewer_steps_so_that_both_arrive_together(make_world: Any) -> None:
    world = make_world(a=1, b=1)
    clocks = {"a_0": [0.0], "b_0": [0.0]}
    world.clock = lambda name: clocks[name.replace("/", "_")][0] * (3.0 if name == "b/0" else 1.0)
    world.seconds = lambda cluster: 2.0
    paces = {name: AdaptivePace(6, utilization=0.75, least=2) for name in clocks}
    steps = {"a_0": 30, "b_0": 14}
    found = world.run(**{name: worker(paces[name], steps[name], clocks[name]) for name in clocks})
    assert found["a_0"][0] == [6] * 5
    assert found["b_0"][0] == [6, 2, 2, 2, 2]


def test_the_fastest_is_not_forgotten_with_a_round_that_it_has_no_part_in() -> None:
    """Regression: a slow cluster that had a round alone took as many steps as the fastest, and came ever later."""
    slow = AdaptivePace(20, least=20, most=20)
    slow.stepped(0.5)
    counters, lengths = {"round": 0, **slow.counters}, []
    for steps in ((100.0, 500.0), (500.0,), (100.0,), (500.0,), *[(500.0,)] * 20):
        counters["round"] += 1
        slow.decide(counters, {}, said(*((step, 10.0) for step in steps)))
        slow.landed(counters, {})
        lengths.append(slow.length())
    assert lengths[:6] == [4, 4, 4, 4, 5, 6]
    assert lengths == [4, 4, 4, *sorted(lengths[3:])]
    assert lengths[-1] == 20, "if it has gone for good, the others are the fastest in the end"


def test_a_fixed_pace_is_diloco_as_it_was(make_world: Any) -> None:
    found = [make_world(a=1).run(a_0=worker(pace, 9))["a_0"] for pace in (Pace(4), 4)]  # type: ignore[arg-type]
    assert found[0][0] == found[1][0] == [4, 4]
    assert found[0][1].digest() == found[1][1].digest()


def test_a_newcomer_of_the_cluster_launches_with_the_others(make_world: Any, killed: Any) -> None:
    world = make_world(a=2)
    clocks = {"a_0": [0.0], "a_1": [0.0]}
    world.clock = lambda name: clocks[name.replace("/", "_")][0]
    world.seconds = lambda cluster: 18.0
    world.faults["a/0", "all_reduce", 11] = killed
    paces = {name: AdaptivePace(4, utilization=0.4, least=2) for name in clocks}
    found = world.run(**{name: worker(paces[name], 30, clocks[name]) for name in clocks})
    assert found["a_1"][0] == [4, 4, 12]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"steps": 0}, "sync_every 0"),
        ({"steps": 2.5}, "sync_every 2.5"),
        ({"utilization": 1.0}, "utilization 1.0"),
        ({"steps": 5, "least": 6}, "least = 6"),
        ({"steps": 5, "least": 1, "most": 4}, "most = 4"),
        ({"least": 0}, "least 0"),
        ({"least": "x"}, "least 'x'"),
        ({"least": 1.5}, "least 1.5"),
        ({"most": None}, "most None"),
        ({"utilization": "x"}, "utilization 'x'"),
        ({"steps": True}, "sync_every True"),
        ({"proportional": "x"}, "proportional 'x' is neither True nor False"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        AdaptivePace(**settings)


def test_numpy_agrees_on_a_half_phase() -> None:
    """Half a phase, worked out by hand: m = sqrt(mu), gained = (1 - m) / (1 - mu)."""
    param = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    optimizer = Nesterov([param], lr=1.0, momentum=0.25)
    optimizer.state[param]["momentum_buffer"] = torch.tensor([4.0], dtype=torch.float64)
    optimizer.phase = 0.5
    param.grad = torch.tensor([1.0], dtype=torch.float64)
    optimizer.step()
    kept, gained = 0.5, 0.5 / 0.75
    each = 1.0 / 0.5
    total = 4.0 * 0.25 * gained + each * (0.5 - 0.25 * gained) / 0.75
    np.testing.assert_allclose(float(optimizer.state[param]["momentum_buffer"]), 4.0 * kept + each * gained)
    np.testing.assert_allclose(float(param.detach()), -(1.0 + 0.25 * total))


@pytest.mark.parametrize("pace", [3, 5, AdaptivePace(4, least=3, proportional=False)])
@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("fragments", [1, 3])
def test_the_steps_that_are_agreed_are_those_of_who_was_there_from_the_beginning(
    make_world: Any, pace: Any, fragments: int, overlap: int
) -> None:
    """And a cluster that joins late has them at once, for a schedule to follow."""
    let_in = threading.Event()

    def steps(mesh: Any) -> Iterator[Any]:
        model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(3)))
        inner = torch.optim.SGD(model.parameters(), lr=1e-4)  # a product of layers has no least value
        every = copy.deepcopy(pace)
        with StreamingDiLoCo(mesh, model, inner, sync_every=every, fragments=fragments, overlap=overlap) as policy:
            yield policy
            while policy.progress.step < 20 or not let_in.is_set():  # who leaves may take along what was just decided
                model(torch.ones(1, 1)).sum().backward()
                inner.step()
                inner.zero_grad()
                yield policy

    def early(mesh: Any) -> None:
        for policy in steps(mesh):
            assert policy.schedule_step == policy.progress.step

    def late(mesh: Any) -> int:
        try:
            return next(steps(mesh)).schedule_step
        finally:
            let_in.set()

    world = make_world(a=1)
    for thread in (world.start("a_0", early), world.start("b_0", late, after=3)):
        thread.join(60)
    assert not world.errors
    assert world.results["b_0"] >= 3 * 3 // fragments


def scheduled(kind: Callable[..., Any], steps: int, **options: Any) -> Callable[[Any], list[tuple[int, int]]]:
    """Trains so far, and gives the step and what a schedule follows, before the first one and after each."""

    def body(mesh: Any) -> list[tuple[int, int]]:
        model = torch.nn.Linear(1, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with kind(mesh, model, inner, **options) as policy:
            seen = [(policy.progress.step, policy.schedule_step)]
            while policy.progress.step < steps:
                model(torch.ones(1, 1)).sum().backward()
                inner.step()
                inner.zero_grad()
                seen.append((policy.progress.step, policy.schedule_step))
        return seen

    return body


@pytest.mark.parametrize(
    ("kind", "options"),
    [(StreamingDiLoCo, {"fragments": 1, "overlap": 3}), (StreamingDiLoCo, {"fragments": 2}), (EagerDiLoCo, {})],
)
def test_a_schedule_does_not_go_backwards_while_a_round_is_under_way(
    make_world: Any, kind: Any, options: dict[str, Any]
) -> None:
    """Regression: the steps before a launch were missing from it until the round had landed."""
    seen = make_world(a=1).run(a_0=scheduled(kind, 26, sync_every=8, **options))["a_0"]
    assert seen == [(step, step) for step in range(27)]


@pytest.mark.parametrize(("kind", "overlap"), [(DiLoCo, {}), (StreamingDiLoCo, {"fragments": 1, "overlap": 2})])
def test_a_schedule_stays_where_a_round_comes_to_nothing_and_a_newcomer_is_where_the_others_are(
    make_world: Any, kind: Any, overlap: dict[str, int]
) -> None:
    """Workers of one cluster that had each a learning rate of its own would part."""
    world = make_world(a=1)
    world.aborts = {1}
    body = scheduled(kind, 24, sync_every=4, **overlap)
    for thread in (world.start("a_0", body), world.start("a_1", body, after=2)):
        thread.join(60)
    assert not world.errors
    first, second = world.results["a_0"], world.results["a_1"]
    values = [value for _, value in first]
    assert values == sorted(values)
    assert first[-1] == (24, 20), "one phase of six came to nothing"
    lost = {8 + overlap.get("overlap", 0) + n for n in range(5)}
    held = {value for step, value in first if step in lost}
    assert held == {8 + overlap.get("overlap", 0)}
    assert set(second) <= set(first)
    assert len(second) > 1


def test_who_begins_anew_from_a_file_is_at_the_phases_that_are_agreed(make_world: Any, tmp_path: Path) -> None:
    """As each newcomer: by how much more its cluster was further, no file says."""

    def body(steps: int, *, load: bool = False) -> Callable[[Any], list[int]]:
        def run(mesh: Any) -> list[int]:
            model = torch.nn.Linear(1, 1)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            policy = DiLoCo(mesh, model, inner, sync_every=4)
            if load:
                policy.load(tmp_path / "at")
            with policy:
                seen = [policy.schedule_step]
                for _ in range(steps):
                    model(torch.ones(1, 1)).sum().backward()
                    inner.step()
                    inner.zero_grad()
                    seen.append(policy.schedule_step)
                policy.save(tmp_path / "at", local=True)
            return seen

        return run

    world = make_world(a=1)
    world.aborts = {1}
    assert world.run(a_0=body(10))["a_0"] == [*range(9), 8, 8]
    assert make_world(a=1).run(a_0=body(2, load=True))["a_0"] == [4, 5, 6]
