"""Resources, the trees that use them, and plans where relays and trunks limit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.collectives.codecs.prices import CHOICES, PRICES
from ictp2p.collectives.plan import NO_PARENT, Plan, validate
from ictp2p.collectives.planning import topology
from ictp2p.collectives.planning.bounds import lower_bound
from ictp2p.collectives.planning.growing import EXACT, grow
from ictp2p.collectives.planning.planner import PlanRequest, plan
from ictp2p.collectives.planning.schedules import arborescence, halving_doubling, star
from ictp2p.collectives.planning.schedules.trees import WHOLE, Cost, Tree
from ictp2p.collectives.planning.topology import LinkEstimate, Topology, Trunk
from ictp2p.errors import ConfigError, NoRoute
from ictp2p.types import PeerId
from tests.collectives.planning.planned import depths

A, B, C, D = (PeerId(letter * 32) for letter in "abcd")


def full(*names: PeerId, width: float = 1e8) -> dict[topology.Pair, LinkEstimate]:
    return {pair: LinkEstimate(width) for pair in itertools.permutations(names, 2)}


def network(asked: PlanRequest) -> Topology:
    return topology.build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)


def fluid(asked: PlanRequest, made: Plan) -> float:
    """Give the seconds that the most loaded resource needs."""
    found, price = network(asked), PRICES[made.codec].among(len(asked.participants))
    cost = Cost(price.contribution, price.partial, price.result)
    trees = [Tree(s.root, s.reduce_parents, s.broadcast_parents) for s in made.shares]
    load = found.loads(trees, cost) @ [s.stop - s.start for s in made.shares]
    return float(np.nan_to_num(load * asked.itemsize / found.capacity).max())


def test_a_relayed_edge_uses_both_links_and_both_access_links_of_the_relay() -> None:
    links = {**full(A, C), **full(B, C), (A, B): LinkEstimate(None, via=C), (B, A): LinkEstimate(None, via=C)}
    found = topology.build((A, B), links, {C: 5e7}, {})
    assert found.width[0, 1] == 5e7, "what the relay can send"
    load = found.loads([star.star(2, 0)], WHOLE)[:, 0]
    assert np.count_nonzero(load[np.isfinite(found.capacity)]) == 7
    assert load[found.capacity == 5e7] == [2.0], "both directions leave the relay"
    decision = plan(PlanRequest((A, B), 25_000_000, 4, links, {C: 5e7}, {}))
    assert decision.plan.seconds == pytest.approx(4.0, rel=0.05)


def test_a_trunk_is_crossed_once_each_way() -> None:
    across = tuple((a, b) for a in (A, B) for b in (C, D))
    trunks = (Trunk(across, 1e7), Trunk(tuple((b, a) for a, b in across), 1e7))
    asked = PlanRequest((A, B, C, D), 10_000_000, 4, full(A, B, C, D, width=1e9), trunks=trunks)
    made = plan(asked).plan
    assert made.bound == pytest.approx(4.0)
    assert fluid(asked, made) == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_figures_that_cannot_be_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="impossible"):
        plan(PlanRequest((A, B), 10, 4, {**full(A, B), (A, B): LinkEstimate(bad)}))
    with pytest.raises(ConfigError, match="impossible"):
        plan(PlanRequest((A, B), 10, 4, {**full(A, B), (A, B): LinkEstimate(1e6, bad)}))
    if bad != float("inf"):
        with pytest.raises(ConfigError, match="limit of"):
            plan(PlanRequest((A, B), 10, 4, full(A, B), up={A: bad}))


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-200, 1e200, 1.7e308])
def test_rates_that_no_line_has_are_taken_for_the_least_or_the_most(rate: float) -> None:
    """One that is no number to reckon with would have the planner go round for ever, and others say such figures."""
    links = {**full(A, B, C, D), (A, B): LinkEstimate(rate), (C, D): LinkEstimate(None, at_least=rate)}
    limits, line = {A: rate}, Trunk(((B, C), (B, D)), rate)
    found = topology.build((A, B, C, D), links, limits, limits, (line,))
    known = topology.MOST if rate > 1 else topology.LEAST
    assert (found.width[0, 1], found.up[0], found.down[0], found.trunks[0][1]) == (known,) * 4
    assert found.width[2, 3] == (known if rate > 1 else 1e8)
    for only in (None, "star", "ring", "tree"):
        made = plan(PlanRequest((A, B, C, D), 5_000_000, 4, links, limits, limits, (line,), only=only)).plan
        assert validate(made.encode(), (A, B, C, D), 5_000_000) is None


def test_what_carries_nothing_is_no_edge() -> None:
    links = {**full(A, B, C), (A, B): LinkEstimate(0.0), (B, A): LinkEstimate(0.0)}
    asked = PlanRequest((A, B, C), 1_000_000, 4, links)
    assert validate(plan(asked).plan.encode(), asked.participants, 1_000_000) is None
    with pytest.raises(NoRoute):
        plan(PlanRequest((A, B, C), 1_000_000, 4, full(A, B, C), up={B: 0.0}))
    with pytest.raises(NoRoute):
        plan(PlanRequest((A, B, C), 1_000_000, 4, full(A, B)))


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_the_cheapest_tree_is_the_cheapest(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    price = np.where(rng.random((size, size)) < 0.7, rng.integers(0, 9, (size, size)).astype(float), np.inf)
    least = np.inf
    for root in range(size):
        found = arborescence.cheapest(price, root)
        costs = []
        for parents in itertools.product(range(size), repeat=size):
            steps = [parents[node] for node in range(size)]
            if all(_climbs(steps, node, root) for node in range(size)):
                costs.append(sum(price[steps[n], n] for n in range(size) if n != root))
        best = min(costs, default=np.inf)
        assert (np.inf if found is None else found[1]) == best
        if found is not None:
            assert found[0][root] == NO_PARENT
            assert sum(price[p, n] for n, p in enumerate(found[0]) if p != NO_PARENT) == best
        least = min(least, best)
    assert arborescence.cheapest_anywhere(price) == pytest.approx(least)


def _climbs(parents: list[int], node: int, root: int) -> bool:
    for _ in range(len(parents)):
        if node == root:
            return True
        node = parents[node]
    return node == root


@given(st.integers(0, 2**32), st.integers(2, 7))
@example(0, 6)
@settings(max_examples=30, deadline=None)
def test_few_participants_get_the_optimum_and_its_proof(seed: int, size: int) -> None:
    """The bound that the prices prove and the rates that the trees reach meet: both are the optimum."""
    rng = np.random.default_rng(seed)
    width = np.where(rng.random((size, size)) < 0.6, rng.uniform(1, 10, (size, size)), 0.0)
    order = rng.permutation(size)
    width[order, np.roll(order, -1)] = rng.uniform(1, 10, size)
    who = tuple(PeerId(f"{n:032x}") for n in range(size))
    links = {(who[i], who[j]): LinkEstimate(width[i, j]) for i, j in itertools.permutations(range(size), 2)}
    found = topology.build(who, {pair: link for pair, link in links.items() if link.bandwidth}, {}, {})
    grown = grow(found, WHOLE)
    assert 1 / grown.rates.sum() <= 1.1 * grown.bound
    assert grown.bound <= 1 / grown.rates.sum() * (1 + 1e-5)
    assert lower_bound(found, 1.0) <= 1 / grown.rates.sum() * (1 + 1e-5)


@given(st.integers(0, 2**32), st.integers(EXACT + 1, EXACT + 6), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_what_is_proven_among_many_is_a_bound(seed: int, size: int, regions: int) -> None:
    rng = np.random.default_rng(seed)
    who, where = tuple(PeerId(f"{n:032x}") for n in range(size)), np.arange(size) % regions
    width = rng.uniform(1, 10, (size, size)) / np.where(where[:, None] == where, 1, 50)
    links = {(who[i], who[j]): LinkEstimate(width[i, j]) for i, j in itertools.permutations(range(size), 2)}
    line = dict(zip(who, rng.uniform(3, 20, size), strict=True))
    grown = grow(topology.build(who, links, line, line), WHOLE)
    assert grown.bound <= 1 / grown.rates.sum() * (1 + 1e-5)


def test_halving_and_doubling_takes_the_logarithm_of_hops() -> None:
    for size in (2, 3, 8, 13, 64):
        for tree in halving_doubling.trees(size):
            assert max(depths(tree)) <= (size - 1).bit_length()


@given(st.integers(0, 2**32), st.sampled_from(list(PRICES)), st.integers(1, 500_000))
@settings(max_examples=40, deadline=None)
def test_a_plan_for_a_codec_keeps_its_promise(seed: int, codec: str, elements: int) -> None:
    rng = np.random.default_rng(seed)
    links = {pair: LinkEstimate(float(rng.uniform(1e6, 1e8)), 0.01) for pair in itertools.permutations((A, B, C), 2)}
    asked = PlanRequest((A, B, C), elements, 4, links, codec=codec)
    made = plan(asked).plan
    assert made.codec == codec
    assert validate(made.encode(), asked.participants, elements) is None
    assert made.bound <= made.seconds
    assert fluid(asked, made) <= made.seconds * (1 + 1e-6)


def test_the_codec_is_chosen_by_the_link() -> None:
    def chosen(width: float, elements: int) -> str:
        return plan(PlanRequest((A, B), elements, 4, full(A, B, width=width), codec="auto")).plan.codec

    assert chosen(1.25e7, 25_000_000) == "int8", "100 Mbit/s"
    assert chosen(6e8, 25_000_000) in ("int8", "bfloat16"), "5 Gbit/s"
    assert chosen(2e10, 25_000_000) == "none", "memory"
    assert chosen(1.25e8, 10) == "none", "a few bytes"
    assert set(CHOICES) == {"none", "bfloat16", "int8"}
    halves = plan(PlanRequest((A, B), 25_000_000, 2, full(A, B, width=1e7), codec="auto")).plan
    assert halves.codec == "none", "they are short already"
    with pytest.raises(ConfigError, match="codec 'zip'"):
        plan(PlanRequest((A, B), 10, 4, full(A, B), codec="zip"))
