"""Candidates are predicted by need: whatever cannot be the fastest is left out, and only that."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives import topology
from ictp2p.collectives.candidates import alone, predicted, together
from ictp2p.collectives.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.schedules import parameter_server, tree
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
