"""Candidates are predicted by need: whatever cannot be the fastest is left out, and only that."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.planning import candidates, topology
from ictp2p.collectives.planning.candidates import alone, predicted, together
from ictp2p.collectives.planning.packing import pack
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.planning.schedules import parameter_server, tree
from ictp2p.types import PeerId


@given(st.integers(2, 9), st.integers(0, 2**32), st.sampled_from([0, 10, 100_000, 30_000_000]), st.floats(0, 0.1))
@settings(max_examples=60, deadline=None)
def test_the_fastest_tree_by_itself_is_that_of_all_predicted_the_first_of_several(
    size: int, seed: int, elements: int, delay: float
) -> None:
    rng = np.random.default_rng(seed)
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {
        pair: LinkEstimate(float(1e6 * 10 ** rng.integers(0, 4)), delay * float(rng.integers(0, 4)))
        for pair in itertools.permutations(who, 2)
    }
    asked = PlanRequest(who, elements, 4, links, dict(zip(who, 1e7 * rng.uniform(1, 9, size), strict=True)))
    job = asked.job(topology.build(who, links, asked.up, {}))
    trees = [*parameter_server.trees(size), *tree.trees(job.topology, 1, 1)]
    every = [together("tree", [one], job) for one in trees]
    seconds = [one.seconds for one in every if one is not None]
    best = alone("tree", trees, job)
    assert best is not None
    assert best.seconds == min(seconds)
    assert best.trees == (trees[seconds.index(min(seconds))],)


def test_without_trees_there_is_no_candidate() -> None:
    who = (PeerId("0" * 32), PeerId("1" * 32))
    job = PlanRequest(who, 1, 4, {}).job(topology.build(who, {}, {}, {}))
    assert alone("tree", [], job) is None
    assert together("tree", [], job) is None


@given(st.integers(2, 6), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_bytes_take_as_long_as_what_has_most_to_carry(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {pair: LinkEstimate(float(rng.uniform(1e6, 1e8)), 0.01) for pair in itertools.permutations(who, 2)}
    job = PlanRequest(who, 9_000_000, 4, links).job(topology.build(who, links, {}, {}))
    trees = tree.trees(job.topology, 1, 1)
    cuts = [job.elements * n // len(trees) for n in range(len(trees) + 1)]
    found = predicted("tree", trees, cuts, 65536, job)
    loads = job.topology.loads(trees, job.cost) * np.diff(cuts) * 4
    used = loads.sum(axis=1) > 0
    assert found.fluid == pytest.approx((loads.sum(axis=1)[used] / job.topology.capacity[used]).max())
    assert found.seconds >= found.fluid


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_no_packing_is_faster_than_what_the_prices_of_the_even_one_say(
    data: st.DataObject, resources: int, columns: int
) -> None:
    amounts = st.sampled_from([0.0, 1.0, 1.0, 2.0, 5.0])
    entries = st.lists(amounts, min_size=columns, max_size=columns).filter(any)
    loads = np.array([data.draw(entries) for _ in range(resources)]) + np.eye(resources, columns)
    loads[0] += 0.5  # every column loads something
    capacity = np.array([data.draw(st.sampled_from([1.0, 1.0, 3.0, 10.0])) for _ in range(resources)])
    all_alike = loads.sum(axis=1)
    even = float((capacity / all_alike).min())
    most = candidates._most(loads, capacity, all_alike, even)
    assert pack(loads, capacity).sum() <= (1 + 1e-5) * most
    assert even * columns <= (1 + 1e-9) * most


def test_alike_clusters_are_divided_evenly_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(loads: object, capacity: object) -> object:
        raise AssertionError

    monkeypatch.setattr(candidates, "pack", never)
    names = tuple(PeerId(f"{n:032x}") for n in range(40))
    links = {(a, b): LinkEstimate(1e8, 0.02) for a in names for b in names if a != b}
    chosen = plan(PlanRequest(names, 10_000_000, 4, links)).plan
    assert chosen.kind == "star"
    assert len(chosen.shares) == len(names)
