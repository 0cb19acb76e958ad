from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives import bounds, planner, topology
from ictp2p.collectives.candidates import CHUNK, CHUNK_SECONDS, MIN_CHUNK, cut
from ictp2p.collectives.exchange import STAGING_BYTES
from ictp2p.collectives.packing import Packing, pack
from ictp2p.collectives.plan import Plan, validate
from ictp2p.collectives.planner import LinkEstimate, PlanRequest, Trunk, plan, plan_broadcast, predict
from ictp2p.collectives.schedules import ring, tree
from ictp2p.collectives.schedules.trees import Tree
from ictp2p.collectives.search import MARGIN
from ictp2p.collectives.topology import Topology
from ictp2p.errors import ConfigError, NoRoute
from ictp2p.types import PeerId


def names(size: int) -> tuple[PeerId, ...]:
    return tuple(PeerId(f"{n:032x}") for n in range(size))


def request(width: np.ndarray, elements: int = 1_000_000, delay: float = 0.0, **more: object) -> PlanRequest:
    who = names(len(width))
    links = {
        (who[i], who[j]): LinkEstimate(float(width[i, j]), delay)
        for i, j in itertools.permutations(range(len(width)), 2)
        if width[i, j] > 0
    }
    return PlanRequest(who, elements, 4, links, **more)  # type: ignore[arg-type]


@st.composite
def widths(draw: st.DrawFn) -> np.ndarray:
    """Connected graphs: a random tree in both directions, and some more links."""
    size = draw(st.integers(2, 6))
    speed = st.floats(1e6, 1e9)
    width = np.zeros((size, size))
    for node in range(1, size):
        other = draw(st.integers(0, node - 1))
        width[node, other], width[other, node] = draw(speed), draw(speed)
    for i, j in itertools.permutations(range(size), 2):
        if draw(st.booleans()):
            width[i, j] = draw(speed)
    return width


def loads(chosen: Plan) -> np.ndarray:
    size = len(chosen.participants)
    return np.array([[chosen.bytes_between(i, j, 4) if i != j else 0 for j in range(size)] for i in range(size)])


@given(widths(), st.integers(0, 3_000_000), st.floats(0, 0.2))
@settings(max_examples=100, deadline=None)
def test_any_connected_graph_gets_a_valid_plan_that_keeps_its_promise(
    width: np.ndarray, elements: int, delay: float
) -> None:
    asked = request(width, elements, delay)
    decision = plan(asked)
    chosen = decision.plan
    assert validate(chosen.encode(), asked.participants, elements) is None
    used = loads(chosen)
    assert not used[width == 0].any(), "a link that is not there"
    rounding = 4 * len(chosen.shares) * len(width) + 1
    assert (used <= chosen.seconds * width * (1 + 1e-6) + rounding).all(), "a link carries more than was promised"
    assert chosen.seconds >= chosen.bound
    assert decision.reason.startswith(chosen.kind)
    assert plan(asked).plan.encode() == chosen.encode()


@given(st.lists(st.floats(1e6, 1e9), min_size=2, max_size=8))
@settings(deadline=None)
def test_where_access_links_limit_the_star_is_optimal(speeds: list[float]) -> None:
    who = names(len(speeds))
    links = {pair: LinkEstimate(1e12) for pair in itertools.permutations(who, 2)}
    caps = dict(zip(who, speeds, strict=True))
    asked = PlanRequest(who, 50_000_000, 4, links, caps, caps, only="star")
    made = plan(asked).plan
    optimum = bounds.hose_optimum(np.array(speeds), 50_000_000 * 4.0)
    assert made.bound == pytest.approx(optimum)
    assert optimum <= made.seconds <= 1.02 * optimum + len(speeds) * 2**20 / min(speeds)
    assert plan(replace(asked, only=None)).plan.seconds <= MARGIN * made.seconds, "less crowded, and hardly slower"


def test_of_plans_that_are_as_fast_the_one_that_crowds_no_line_is_taken() -> None:
    """Five lines are full in either; in the star of five weights seven connections divide some of them."""
    up = np.array([100, 100, 80, 80, 60, 60, 30, 50]) * 1e5
    down = np.array([100, 100, 80, 80, 60, 100, 30, 80]) * 1e5
    who = names(len(up))
    links = {
        (a, b): LinkEstimate(float(min(up[i], down[j])), 0.02)
        for (i, a), (j, b) in itertools.permutations(enumerate(who), 2)
    }
    asked = PlanRequest(who, 5_000_000, 4, links, dict(zip(who, up, strict=True)), dict(zip(who, down, strict=True)))
    made = plan(asked).plan
    assert made.seconds <= MARGIN * plan(replace(asked, only="star")).plan.seconds
    edges = {edge for s in made.shares for edge in Tree(s.root, s.reduce_parents, s.broadcast_parents).edges()}
    assert made.kind != "star"
    assert len(edges) <= 2 * len(who), "a connection each way, on average"


def test_a_slow_participant_roots_less() -> None:
    who = names(3)
    links = {pair: LinkEstimate(1e9) for pair in itertools.permutations(who, 2)}
    caps = {who[0]: 1e8, who[1]: 1e8, who[2]: 5.5e7}
    chosen = plan(PlanRequest(who, 30_000_000, 4, links, caps, caps)).plan
    sizes = {share.root: share.stop - share.start for share in chosen.shares}
    assert sizes.get(2, 0) < sizes[0] * 0.5


def test_a_missing_pair_is_routed_around() -> None:
    width = np.full((4, 4), 1e8)
    np.fill_diagonal(width, 0)
    width[0, 2] = width[2, 0] = 0
    decision = plan(request(width, 10_000_000))
    assert decision.plan.kind in ("ring", "tree")
    assert decision.plan.seconds < 1.3 * decision.plan.bound + 0.05


def test_a_path_has_only_trees() -> None:
    width = np.zeros((4, 4))
    for i in range(3):
        width[i, i + 1] = width[i + 1, i] = 1e8
    assert plan(request(width)).plan.kind == "tree"


def test_a_hub_is_a_parameter_server() -> None:
    width = np.zeros((4, 4))
    width[3, :3] = width[:3, 3] = 1e8
    chosen = plan(request(width)).plan
    assert chosen.kind == "parameter_server"
    assert [share.root for share in chosen.shares] == [3]


def test_a_slow_link_among_fast_ones_is_avoided() -> None:
    width = np.full((4, 4), 1e8)
    np.fill_diagonal(width, 0)
    width[0, 1] = width[1, 0] = 1e6
    decision = plan(request(width, 10_000_000))
    assert decision.plan.seconds < 1.5 * decision.plan.bound
    assert "star" in decision.reason
    assert decision.plan.kind != "star"


@given(widths(), st.integers(1, 3_000_000), st.floats(0, 0.2))
@settings(max_examples=40, deadline=None)
def test_a_plan_is_predicted_on_other_links_as_on_its_own(width: np.ndarray, elements: int, delay: float) -> None:
    asked = request(width, elements, delay)
    made = plan(asked).plan
    assert predict(asked, made) == pytest.approx(made.seconds, rel=1e-6) or made.seconds == made.bound
    slower = request(width / 10, elements, delay)
    assert predict(slower, made) >= predict(asked, made)
    assert predict(request(width[:-1, :-1], elements, delay), made) == 0.0, "other participants"
    assert predict(request(np.zeros_like(width), elements, delay), made) == 0.0, "no such links"


def test_small_tensors_choose_by_delay() -> None:
    width = np.full((6, 6), 1e8)
    np.fill_diagonal(width, 0)
    assert plan(request(width, 600, 0.05)).plan.seconds == pytest.approx(0.1, rel=0.01)


def test_what_cannot_be_planned_is_named() -> None:
    lonely = np.zeros((3, 3))
    lonely[0, 1] = lonely[1, 0] = 1e6
    with pytest.raises(NoRoute, match="connects"):
        plan(request(lonely))
    with pytest.raises(NoRoute, match="no ring"):
        plan(request(np.array([[0, 1e6, 1e6], [1e6, 0, 0], [1e6, 0, 0]]), only="ring"))
    with pytest.raises(ConfigError, match="stands twice"):
        plan(PlanRequest((names(1)[0],) * 2, 1, 4, {}))
    with pytest.raises(ConfigError, match="-1 elements"):
        plan(PlanRequest(names(1), -1, 4, {}))


def test_one_participant_needs_no_links() -> None:
    decision = plan(PlanRequest(names(1), 100, 4, {}))
    assert validate(decision.plan.encode(), names(1), 100) is None
    assert decision.plan.seconds == 0


def test_unmeasured_links_are_taken_for_average_ones() -> None:
    who = names(3)
    links = {pair: LinkEstimate(None if who[2] in pair else 1e7) for pair in itertools.permutations(who, 2)}
    chosen = plan(PlanRequest(who, 10_000_000, 4, links)).plan
    sizes = [share.stop - share.start for share in chosen.shares]
    assert max(sizes) - min(sizes) <= 64 * 1024


@given(st.floats(1e6, 1e9), st.floats(0, 1e9), st.integers(3, 6))
def test_or_for_what_they_did_at_least_if_that_is_more(median: float, bound: float, size: int) -> None:
    who = names(size)
    links = {pair: LinkEstimate(median) for pair in itertools.permutations(who, 2)}
    short = (who[0], who[1])
    links[short] = LinkEstimate(None, at_least=bound)
    width = topology.build(who, links, {}, {}).width
    assert width[0, 1] == max(median, bound)
    links[short] = LinkEstimate(median, at_least=bound)
    assert topology.build(who, links, {}, {}).width[0, 1] == median, "what was measured counts"


@given(st.integers(2, 40))
@settings(max_examples=20, deadline=None)
def test_chunks_leave_room_for_a_window(size: int) -> None:
    chosen = plan(request(alike(size, 1e9), 10_000_000, only="star")).plan
    assert chosen.chunk * 4 * 4 * (size - 1) <= max(STAGING_BYTES, 4 * 4096 * 4 * (size - 1))


def alike(size: int, speed: float) -> np.ndarray:
    width = np.full((size, size), speed)
    np.fill_diagonal(width, 0)
    return width


@given(st.integers(2, 12), st.integers(0, 100_000_000), st.floats(1e6, 1e11), st.sampled_from(["star", "ring"]))
@settings(max_examples=60, deadline=None)
def test_a_chunk_neither_holds_a_link_up_nor_falls_out_of_the_caches(
    size: int, elements: int, speed: float, kind: str
) -> None:
    chunk = 4 * plan(request(alike(size, speed), elements, only=kind)).plan.chunk
    assert chunk <= CHUNK
    assert chunk <= max(MIN_CHUNK, speed * CHUNK_SECONDS)


def test_on_one_machine_long_tensors_travel_in_whole_chunks_and_ask_for_no_room() -> None:
    who = names(4)
    links = {pair: LinkEstimate() for pair in itertools.permutations(who, 2)}
    for size in (2, 3, 4):
        chosen = plan(
            PlanRequest(who[:size], 25_000_000, 4, {p: links[p] for p in links if {*p} <= {*who[:size]}})
        ).plan
        assert 4 * chosen.chunk == CHUNK
        assert all(share.room == 0 for share in chosen.shares)


@pytest.mark.parametrize("kind", ["star", "ring"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_where_all_links_are_alike_all_have_equal_shares(size: int, kind: str) -> None:
    """Of several divisions that are as fast: with one root of two, one would do all the adding."""
    shares = plan(request(alike(size, 4e9), 25_000_000, only=kind)).plan.shares
    assert sorted(share.root for share in shares) == list(range(size))
    sizes = [share.stop - share.start for share in shares]
    assert max(sizes) - min(sizes) <= 64 * 1024


def test_a_broadcast_takes_a_chain_where_the_roots_own_link_is_narrow() -> None:
    who = names(4)
    links = {pair: LinkEstimate(1e8) for pair in itertools.permutations(who, 2)}
    caps = dict.fromkeys(who, 1e8)
    decision = plan_broadcast(PlanRequest(who, 50_000_000, 4, links, caps, caps), who[1])
    assert validate(decision.plan.encode(), who, 50_000_000) is None
    assert {share.root for share in decision.plan.shares} == {1}
    assert decision.plan.seconds < 1.1 * decision.plan.bound
    with pytest.raises(ConfigError, match="is not among"):
        plan_broadcast(request(np.ones((2, 2))), PeerId("f" * 32))


def test_sixty_four_participants_are_planned_in_seconds() -> None:
    rng = np.random.default_rng(1)
    width = rng.uniform(1e7, 1e8, (64, 64))
    np.fill_diagonal(width, 0)
    chosen = plan(request(width, 10_000_000)).plan
    assert validate(chosen.encode(), names(64), 10_000_000) is None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_regions_joined_by_narrow_lines_are_planned_at_their_bound(seed: int) -> None:
    """Trees that were grown greedily at all prices ended up to a third above it."""
    rng = np.random.default_rng(seed)
    size, count = 48, 3
    who, where = names(size), np.arange(size) % count
    width = 1e8 * 10 ** rng.random((size, size))
    np.fill_diagonal(width, 0)
    lines = tuple(
        Trunk(tuple((who[i], who[j]) for i in range(size) for j in range(size) if (where[i], where[j]) == way), line)
        for way, line in zip(itertools.permutations(range(count), 2), 1e7 * 10 ** rng.random(6), strict=True)
    )
    up, down = (dict(zip(who, 6e7 * 20 ** rng.random(size), strict=True)) for _ in range(2))
    chosen = plan(request(width, 250_000_000, up=up, down=down, trunks=lines)).plan
    assert chosen.seconds <= 1.05 * chosen.bound


def network(asked: PlanRequest) -> Topology:
    return topology.build(asked.participants, asked.links, asked.up, asked.down, asked.trunks)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_more_capacity_never_raises_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    who = names(size)
    width, factor = rng.uniform(1, 9, (size, size)), rng.uniform(1, 2, (size, size))
    up, more = rng.uniform(1, 20, size), rng.uniform(1, 2, size)
    line = (Trunk(((who[0], who[1]), (who[1], who[0])), float(rng.uniform(1, 9))),)
    low = network(request(width, up=dict(zip(who, up, strict=True)), trunks=line))
    high = network(request(width * factor, up=dict(zip(who, up * more, strict=True))))
    assert bounds.lower_bound(high, 1.0) <= bounds.lower_bound(low, 1.0) * (1 + 1e-9)


def test_two_regions_are_bounded_by_the_link_between_them() -> None:
    width = np.full((4, 4), 1e9)
    width[:2, 2:] = width[2:, :2] = 1e6
    np.fill_diagonal(width, 0)
    bound = bounds.lower_bound(network(request(width)), 8e6)
    assert bound == pytest.approx(2.0)


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=7).filter(sum),
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(1, 9),
)
def test_a_cut_is_exact_and_in_proportion(parts: list[float], elements: int, line: int, block: int) -> None:
    ends = cut(np.array(parts), elements, line * block, block)
    assert ends[0] == 0
    assert ends[-1] == elements
    assert ends == sorted(ends)
    assert all(end % block == 0 for end in ends[:-1] if end < elements)
    exact = np.array(parts) / sum(parts) * elements
    assert (abs(np.diff(ends) - exact) <= 2 * line * block + 1).all()


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_the_linear_program_meets_its_dual_bound(seed: int) -> None:
    """Found at once or column by column, it is the best vertex's total; and its own prices prove it."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    table = rng.uniform(0, 1, (rows, columns)) * (rng.random((rows, columns)) < 0.7)
    table[rng.integers(0, rows, columns), np.arange(columns)] += 0.5
    capacity = rng.uniform(0.5, 2, rows)
    rates = pack(table, capacity)
    assert (rates >= 0).all()
    assert (table @ rates <= capacity * (1 + 1e-5)).all()
    best = max(_vertices(table, capacity))
    assert rates.sum() == pytest.approx(best, rel=1e-5)
    growing = Packing(capacity)
    for column in range(columns):
        growing.add(table[:, column : column + 1])
    assert growing.rates().sum() == pytest.approx(best, rel=1e-5)
    prices = growing.prices()
    assert (prices @ table >= 1 - 1e-5).all(), "a column would gain"
    assert prices @ capacity == pytest.approx(best, rel=1e-5)


def _vertices(table: np.ndarray, capacity: np.ndarray) -> list[float]:
    """List the totals of all feasible vertices of the polytope, by brute force."""
    rows, columns = table.shape
    constraints = np.vstack([table, -np.eye(columns)])
    limits = np.concatenate([capacity, np.zeros(columns)])
    totals = [0.0]
    for tight in itertools.combinations(range(rows + columns), columns):
        matrix = constraints[list(tight)]
        if abs(np.linalg.det(matrix)) > 1e-9:
            point = np.linalg.solve(matrix, limits[list(tight)])
            if (constraints @ point <= limits + 1e-9).all():
                totals.append(float(point.sum()))
    return totals


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_the_best_cycle_has_the_widest_narrowest_link(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    width = rng.integers(0, 6, (size, size)).astype(float)
    every = [
        min(width[order[n], order[(n + 1) % size]] for n in range(size))
        for rest in itertools.permutations(range(1, size))
        for order in [(0, *rest)]
    ]
    found = ring.best_cycle(width, np.zeros((size, size)))
    if found is None:
        assert max(every) == 0
    else:
        assert sorted(found) == list(range(size))
        assert min(width[found[n], found[(n + 1) % size]] for n in range(size)) == max(every)


def test_a_large_ring_is_found_greedily() -> None:
    width = np.full((12, 12), 1.0)
    order = ring.best_cycle(width, np.zeros((12, 12)))
    assert order is not None
    assert sorted(order) == list(range(12))
    assert ring.best_cycle(np.zeros((12, 12)), np.zeros((12, 12))) is None


def test_trees_stay_shallow_where_they_can() -> None:
    width = np.full((20, 20), 1.0)
    np.fill_diagonal(width, 0)
    assert all(max(t.depths()) <= tree.DEPTH for t in tree.trees(network(request(width)), 2, 2))


def test_planner_reason_names_the_losers() -> None:
    width = np.full((3, 3), 1e8)
    np.fill_diagonal(width, 0)
    reason = plan(request(width)).reason
    assert reason.startswith("star: ")
    assert "parameter_server" in reason
    assert "ring" in reason
    assert planner.plan(request(width, only="ring")).plan.kind == "ring"


@pytest.mark.parametrize("size", [3, 4, 6])
def test_where_cores_limit_bytes_come_from_one_at_a_time(size: int) -> None:
    """As many bytes for everybody, but in a ring they come from one neighbour; on a slow wire that hides the work."""
    unknown = {pair: LinkEstimate() for pair in itertools.permutations(names(size), 2)}
    assert plan(PlanRequest(names(size), 25_000_000, 4, unknown)).plan.kind == "ring"
    assert plan(PlanRequest(names(size), 1000, 4, unknown)).plan.kind != "ring"
    slow = {pair: LinkEstimate(1e8) for pair in unknown}
    lines = dict.fromkeys(names(size), 1e8)
    assert plan(PlanRequest(names(size), 25_000_000, 4, slow, lines, lines)).plan.kind == "star"
