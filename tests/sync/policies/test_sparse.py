from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ictp2p.collectives.codecs.topk import BLOCK
from ictp2p.collectives.codecs.topk2bit import KEPT
from ictp2p.errors import ConfigError, LocalGroupError, NotFinite
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.sparse import SparseDiLoCo, _most_in_a_block

Array = NDArray[np.float32]
F = np.float32
SIZE, CHUNK, KEEP = 10, 4, 1
START = np.linspace(-2.0, 2.5, SIZE, dtype=F)
EVERY = 2
SMALL = {"chunk": CHUNK, "keep": KEEP, "codec": "none"}


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-9, 10, (steps, SIZE)).astype(F)


def worker(data: Array, policy: Any = SparseDiLoCo, rate: float = 0.25, **options: Any) -> Callable[[Any], Any]:
    """Trains, and gives the parameters after each step, the residual after each, and the policy."""

    def body(mesh: Any) -> Any:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        inner = torch.optim.SGD(model.parameters(), lr=rate)
        trace, kept = [], []
        with policy(mesh, model, inner, sync_every=EVERY, **options) as it:
            for row in data:
                model.w.grad = torch.from_numpy(row.copy())
                inner.step()
                trace.append(model.w.detach().numpy().copy())
                kept += [residual.numpy().copy() for residual in getattr(it._weights, "residuals", ())]
        return trace, kept, it

    return body


sparse = partial(worker, **SMALL)


def bfloat16(value: Array) -> Array:
    """Round to nearest even in the upper half of the bits, as IEEE 754 has it."""
    bits = value.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(F)


def largest(vector: Array) -> Array:
    """Of every `CHUNK` elements the `KEEP` of largest magnitude, of equals the first; the others are zero."""
    brought = np.zeros_like(vector)
    for start in range(0, len(vector), CHUNK):
        part = vector[start : start + CHUNK]
        for place in sorted(range(len(part)), key=lambda i: (-abs(part[i]), i))[:KEEP]:
            brought[start + place] = bfloat16(part[place : place + 1])[0]
    return brought


class Golden:
    """SparseLoCo over clusters of one worker, in NumPy, written from the paper's algorithm."""

    def __init__(self, clusters: int, decay: float = 0.95, rate: float = 0.25) -> None:
        self.w = [START.copy() for _ in range(clusters)]
        self.residuals = [np.zeros(SIZE, F) for _ in range(clusters)]
        self.agreed, self.decay, self.rate = START.copy(), F(decay), F(rate)

    def outer(self) -> None:
        accumulated = [self.agreed - w + e * self.decay for w, e in zip(self.w, self.residuals, strict=True)]
        brought = [largest(a) for a in accumulated]
        self.residuals = [a - b for a, b in zip(accumulated, brought, strict=True)]
        self.agreed = self.agreed - np.asarray(sum(brought) / F(len(brought)), F)
        self.w = [self.agreed.copy() for _ in self.w]

    def run(self, data: Sequence[Array], aborts: Collection[int] = ()) -> tuple[list[list[Array]], list[list[Array]]]:
        """Train; rounds in `aborts`, counted from 0, come to nothing."""
        traces: list[list[Array]] = [[] for _ in self.w]
        kept: list[list[Array]] = [[] for _ in self.w]
        for step in range(len(data[0])):
            self.w = [w - self.rate * d[step] for w, d in zip(self.w, data, strict=True)]
            if (step + 1) % EVERY == 0 and step // EVERY not in aborts:
                self.outer()
            for cluster in range(len(self.w)):
                traces[cluster].append(self.w[cluster].copy())
                kept[cluster].append(self.residuals[cluster].copy())
        return traces, kept


@pytest.mark.parametrize("decay", [0.95, 1.0, 0.0])
def test_every_step_and_every_residual_is_the_papers(make_world: Any, decay: float) -> None:
    data = [rows(i, 13) for i in range(2)]
    x, y = (sparse(d, decay=decay) for d in data)
    found = make_world(x=1, y=1).run(x_0=x, y_0=y)
    traces, kept = Golden(2, decay).run(data)
    for cluster, name in enumerate(("x_0", "y_0")):
        trace, residuals, policy = found[name]
        np.testing.assert_array_equal(np.array(trace), np.array(traces[cluster]))
        np.testing.assert_array_equal(np.array(residuals), np.array(kept[cluster]))
        assert policy.version == 7
    assert found["x_0"][2].digest() == found["y_0"][2].digest()
    assert not np.array_equal(found["x_0"][1][-1], found["y_0"][1][-1]), "a residual is its cluster's own"


@given(
    seeds=st.lists(st.integers(0, 2**31), min_size=1, max_size=3),
    decay=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
    aborts=st.sets(st.integers(0, 5)),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
def test_whichever_rounds_come_to_nothing_what_follows_is_the_papers(
    make_world: Any, seeds: list[int], decay: float, aborts: set[int]
) -> None:
    names = "xyz"[: len(seeds)]
    data = [rows(seed, 6 * EVERY + 1) for seed in seeds]
    world = make_world(**dict.fromkeys(names, 1))
    world.aborts = aborts
    found = world.run(**{f"{name}_0": sparse(each, decay=decay) for name, each in zip(names, data, strict=True)})
    traces, kept = Golden(len(seeds), decay).run(data, aborts)
    for cluster, name in enumerate(names):
        np.testing.assert_array_equal(np.array(found[f"{name}_0"][0]), np.array(traces[cluster]))
        np.testing.assert_array_equal(np.array(found[f"{name}_0"][1]), np.array(kept[cluster]))
        assert found[f"{name}_0"][2].version == 7 - len(aborts)


def test_what_is_kept_whole_and_fits_bfloat16_is_local_sgd(make_world: Any) -> None:
    data = [rows(i, 7) for i in range(2)]
    whole = {"chunk": 4, "keep": 4, "codec": "none", "rate": 0.5}
    found = make_world(x=1, y=1).run(x_0=worker(data[0], **whole), y_0=worker(data[1], **whole))
    plain = [worker(d, LocalSGD, rate=0.5) for d in data]
    wanted = make_world(x=1, y=1).run(x_0=plain[0], y_0=plain[1])
    for name in ("x_0", "y_0"):
        np.testing.assert_array_equal(np.array(found[name][0]), np.array(wanted[name][0]))
        assert not found[name][1][-1].any()


@given(seed=st.integers(0, 2**31), rounds=st.integers(1, 6), aborts=st.sets(st.integers(0, 5)))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
def test_what_was_brought_and_what_is_kept_is_all_that_was_trained(
    make_world: Any, seed: int, rounds: int, aborts: set[int]
) -> None:
    """Whole numbers of few bits add exactly, so not one bit may be missing, whichever rounds came to nothing."""
    world, data = make_world(x=1), rows(seed, rounds * EVERY)
    world.aborts = aborts
    trace, kept, policy = world.run(x_0=sparse(data, decay=1.0, rate=0.5))["x_0"]
    brought = START - policy.state.committed["w"].numpy()
    not_yet = policy.state.committed["w"].numpy() - trace[-1]
    np.testing.assert_array_equal(brought + kept[-1] + not_yet, data.sum(0) * F(0.5))
    assert policy.version == 1 + rounds - len({number for number in aborts if number < rounds})


def test_an_aborted_round_leaves_everything_bit_for_bit_as_it_was(make_world: Any) -> None:
    world, data = make_world(x=1, y=1), [rows(i, 6) for i in range(2)]
    world.aborts = {1}
    found = world.run(x_0=sparse(data[0]), y_0=sparse(data[1]))
    for cluster, name in enumerate(("x_0", "y_0")):
        trace, kept, policy = found[name]
        after_first, stepped = trace[1], data[cluster]
        local = after_first - F(0.25) * stepped[2] - F(0.25) * stepped[3]
        np.testing.assert_array_equal(trace[3], local)
        np.testing.assert_array_equal(kept[3], kept[1])
        assert policy.version == 3
    golden = Golden(2)
    for step in range(6):
        golden.w = [w - F(0.25) * d[step] for w, d in zip(golden.w, data, strict=True)]
        if step in (1, 5):
            golden.outer()
    for cluster, name in enumerate(("x_0", "y_0")):
        np.testing.assert_array_equal(found[name][0][-1], golden.w[cluster])
        np.testing.assert_array_equal(found[name][1][-1], golden.residuals[cluster])


def test_a_round_that_went_on_without_us_takes_nothing_of_the_residual(make_world: Any) -> None:
    """What was brought in vain is brought to the very next round, once; whole numbers, so all of it is exact."""
    world, data = make_world(x=1, y=1), [rows(0, 8), rows(1, 6)]
    world.absent = {1: {"y"}}
    x, y = (sparse(d, decay=1.0, rate=0.5) for d in data)
    found = world.run(x_0=x, y_0=y)
    moves = [d.reshape(-1, EVERY, SIZE).sum(1) * F(0.5) for d in data]
    agreed, residuals = START.copy(), [np.zeros(SIZE, F), np.zeros(SIZE, F)]
    for x_moves, y_moves in ((0, 0), (1, None), (2, 1), (3, 2)):
        brought = []
        for cluster, number in enumerate((x_moves, y_moves)):
            if number is not None:
                accumulated = moves[cluster][number] + residuals[cluster]
                brought.append(largest(accumulated))
                residuals[cluster] = accumulated - brought[-1]
        agreed = agreed - sum(brought) / F(len(brought))
    for cluster, name in enumerate(("x_0", "y_0")):
        _, kept, policy = found[name]
        np.testing.assert_array_equal(policy.state.committed["w"].numpy(), agreed)
        np.testing.assert_array_equal(kept[-1], residuals[cluster])


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "broadcast", "outer_round", "vote", "committed"])
@pytest.mark.parametrize("count", range(0, 12, 2))
def test_whoever_leads_next_keeps_the_same_residual(make_world: Any, killed: Any, operation: str, count: int) -> None:
    """Whole numbers, and the same data for all, so that every repetition and every weight gives exactly the same."""
    data = [rows(0, 8)] * 2
    world = make_world(x=2, y=1)
    world.faults["x/0", operation, count] = killed
    x, y = (partial(sparse, d, decay=1.0, rate=0.5) for d in data)
    found = world.run(x_0=x(), x_1=x(), y_0=y())
    traces, kept = Golden(2, 1.0, 0.5).run(data)
    for name, cluster in (("x_1", 0), ("y_0", 1)):
        trace, residuals, policy = found[name]
        assert (policy.version, policy.digest()) == (5, found["y_0"][2].digest())
        np.testing.assert_array_equal(trace[-1], traces[cluster][-1])
        np.testing.assert_array_equal(residuals[-1], kept[cluster][-1])


@pytest.mark.parametrize(("count", "seen"), [(2, "ADOPT"), (7, "ADOPT"), (8, "COMMIT")])
def test_a_contribution_that_the_mesh_has_moves_the_residual(
    make_world: Any, killed: Any, count: int, seen: str
) -> None:
    """The leader falls silent in the cluster, has the round committed, and dies: the next one fetches the result."""
    data = [rows(0, 8)] * 2
    world = make_world(x=2, y=1)
    world.faults["x/0", "broadcast", count] = lambda: LocalGroupError("silent")
    world.faults["x/0", "committed", 0] = killed
    x, y = (partial(sparse, d, decay=1.0, rate=0.5) for d in data)
    found = world.run(x_0=x(), x_1=x(), y_0=y())
    traces, kept = Golden(2, 1.0, 0.5).run(data)
    trace, residuals, policy = found["x_1"]
    assert (policy.version, policy.digest()) == (5, found["y_0"][2].digest())
    np.testing.assert_array_equal(trace[-1], traces[0][-1])
    np.testing.assert_array_equal(residuals[-1], kept[0][-1])
    assert [fields["verdict"] for n, kind, fields in world.events if (n, kind) == ("x/1", "outer")][1] == seen


@pytest.mark.parametrize("overlap", [0, 2], ids=["between rounds", "while a round is under way"])
def test_a_newcomer_of_the_cluster_takes_the_residual_over(make_world: Any, overlap: int) -> None:
    world, data = make_world(x=1), rows(0, 8)
    started, joined = threading.Event(), threading.Event()

    def model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        module = torch.nn.Module()
        module.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        return module, torch.optim.SGD(module.parameters(), lr=0.25)

    def train(module: Any, inner: Any, part: Array) -> None:
        for row in part:
            module.w.grad = torch.from_numpy(row.copy())
            inner.step()

    def old(mesh: Any) -> Any:
        module, inner = model()
        with SparseDiLoCo(mesh, module, inner, sync_every=EVERY, overlap=overlap, **SMALL) as policy:
            train(module, inner, data[:3])
            started.set()
            assert joined.wait(20)
            train(module, inner, data[3:])
            return policy

    def new(mesh: Any) -> Any:
        module, inner = model()
        wants = mesh.roster_ready
        mesh.roster_ready = lambda *given: (wants(*given), joined.set())
        with SparseDiLoCo(mesh, module, inner, sync_every=EVERY, overlap=overlap, **SMALL) as policy:
            first = policy._weights.residuals[0].numpy().copy()
            train(module, inner, data[3:])
            return first, policy

    first = world.start("x_0", old)
    assert started.wait(20)
    second = world.start("x_1", new)
    first.join(30)
    second.join(30)
    assert not world.errors, world.errors
    policy, (residual, twin) = world.results["x_0"], world.results["x_1"]
    np.testing.assert_array_equal(twin._weights.residuals[0].numpy(), policy._weights.residuals[0].numpy())
    assert policy._weights.residuals[0].any()
    if not overlap:
        _, kept = Golden(1).run([data])
        np.testing.assert_array_equal(residual, kept[0][2])
        np.testing.assert_array_equal(policy._weights.residuals[0].numpy(), kept[0][-1])


@given(
    chunk=st.integers(1, 9000),
    keep=st.integers(1, 5),
    places=st.lists(st.integers(0, 20_000), unique=True, max_size=60),
)
def test_as_many_as_may_lie_in_a_block_of_the_codec(chunk: int, keep: int, places: list[int]) -> None:
    kept = [place for n, place in enumerate(places) if sum(p // chunk == place // chunk for p in places[:n]) < keep]
    blocks = [place // BLOCK for place in kept]
    assert max(map(blocks.count, blocks), default=0) <= _most_in_a_block(chunk, keep)


def test_the_papers_choice_fits_the_codec() -> None:
    assert _most_in_a_block(BLOCK, 64) == _most_in_a_block(64, 1) == _most_in_a_block(8 * BLOCK, 64) == KEPT
    assert _most_in_a_block(3000, 1) == 3


def two_bits(block: Array) -> Array:
    """The 64 largest of a block: the mean of the lower or upper half of their magnitudes, and their signs."""
    kept = np.sort(np.argsort(-np.abs(block), kind="stable")[:KEPT])
    magnitudes = np.abs(block[kept]).astype(np.float64)
    upper = magnitudes > (magnitudes.min() + magnitudes.max()) / 2
    levels = [
        bfloat16(np.array([half.mean() if len(half) else 0.0], F))[0]
        for half in (magnitudes[~upper], magnitudes[upper])
    ]
    brought = np.zeros_like(block)
    brought[kept] = np.copysign(np.where(upper, levels[1], levels[0]), block[kept])
    return brought


@pytest.mark.parametrize("decay", [0.95, 1.0])
def test_two_bits_are_the_papers_and_what_they_lose_comes_later(make_world: Any, decay: float) -> None:
    """Three blocks, the last one short; whole numbers as gradients, so the order of a sum does not matter."""
    size, rounds = 2 * BLOCK + 100, 4
    data = [np.random.default_rng(i).integers(-99, 100, (rounds, size)).astype(F) for i in range(2)]

    def body(part: Array) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            w = torch.nn.Parameter(torch.zeros(size))
            inner = torch.optim.SGD([w], lr=0.25)
            model = torch.nn.ParameterDict({"w": w})
            with SparseDiLoCo(mesh, model, inner, sync_every=1, decay=decay, codec="topk2bit") as it:
                for row in part:
                    w.grad = torch.from_numpy(row.copy())
                    inner.step()
                return w.detach().numpy().copy(), it._weights.residuals[0].numpy().copy()

        return run

    found = make_world(x=1, y=1).run(x_0=body(data[0]), y_0=body(data[1]))
    agreed, residuals = np.zeros(size, F), [np.zeros(size, F) for _ in data]
    cuts = [slice(start, start + BLOCK) for start in range(0, size, BLOCK)]
    for number in range(rounds):
        brought = []
        for i, part in enumerate(data):
            accumulated = (agreed - (agreed - F(0.25) * part[number])) + F(decay) * residuals[i]
            brought.append(np.concatenate([two_bits(accumulated[cut]) for cut in cuts]))
            residuals[i] = accumulated - brought[-1]
        agreed = agreed - (brought[0] + brought[1]) / F(2)
    for i, name in enumerate(("x_0", "y_0")):
        np.testing.assert_array_equal(found[name][0], agreed)
        np.testing.assert_array_equal(found[name][1], residuals[i])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 32, "codec": "topk2bit"}, "carries 64 of 4096 elements, not 32 of 4096"),
        ({"chunk": 2048, "codec": "topk2bit"}, "not 64 of 2048"),
        ({"chunk": 0}, "chunk 0"),
        ({"chunk": 65537}, "chunk 65537"),
        ({"keep": 0}, "keep 0"),
        ({"chunk": "x"}, "chunk 'x'"),
        ({"keep": 1.5}, "keep 1.5"),
        ({"keep": True}, "keep True"),
        ({"decay": "x"}, "decay 'x'"),
        ({"decay": True}, "decay True"),
        ({"keep": 5000, "codec": "none"}, "keep 5000"),
        ({"decay": 1.5}, "decay 1.5"),
        ({"decay": float("nan")}, "decay nan"),
        ({"codec": "int8"}, "codec 'int8'"),
        ({"keep": 65}, "may be 65 of 4096"),
        ({"without_quorum": "continue"}, "'continue'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=message):
        SparseDiLoCo(None, model, torch.optim.SGD(model.parameters()), **options)  # type: ignore[arg-type]


def test_double_precision_is_refused() -> None:
    model = torch.nn.Linear(2, 2).double()
    with pytest.raises(ConfigError, match="float64"):
        SparseDiLoCo(None, model, torch.optim.SGD(model.parameters()))  # type: ignore[arg-type]


def test_each_fragment_has_a_residual_of_its_own(make_world: Any) -> None:
    """What a fragment's round left out comes with its own next round: model and residual hold all that was trained."""
    data = rows(0, 18)

    def body(mesh: Any) -> tuple[Array, int]:
        parts = torch.nn.ParameterDict({name: torch.from_numpy(START.copy()) for name in "uvw"})
        inner = torch.optim.SGD(parts.parameters(), lr=0.25)
        cuts, trained = [[name] for name in parts], []
        with SparseDiLoCo(mesh, parts, inner, sync_every=3, fragments=cuts, decay=1.0, **SMALL) as it:
            for row in data:
                for part in parts.values():
                    part.grad = torch.from_numpy(row.copy())
                inner.step()
                both = zip(parts.values(), it._weights.residuals, strict=True)
                trained.append([(part.detach() - residual).numpy() for part, residual in both])
        return np.array(trained), it.version

    trained, version = make_world(x=1).run(x_0=body)["x_0"]
    assert version > 2 * len("uvw"), "each left something out, and brought it"
    expected = START - F(0.25) * np.cumsum(data, axis=0)
    for fragment in range(len("uvw")):
        np.testing.assert_array_equal(trained[:, fragment], expected)


@pytest.mark.parametrize("codec", ["topk", "topk2bit", "none"])
def test_what_overflows_with_what_was_kept_back_is_not_brought(make_world: Any, codec: Any) -> None:
    """Regression: some of it was brought as infinity, and the rest was gone."""

    def body(mesh: Any) -> str:
        w = torch.nn.Parameter(torch.zeros(4 * BLOCK))
        inner = torch.optim.SGD([w], lr=1.0)
        with SparseDiLoCo(mesh, torch.nn.ParameterList([w]), inner, sync_every=1, codec=codec) as policy:
            w.grad = torch.full_like(w, 3e38)
            inner.step()
            before = policy.digest()
            w.grad.masked_fill_(w != 0.0, 0.0)  # the parameter itself stays finite
            with pytest.raises(NotFinite, match="0 hold NaN or infinity"):
                inner.step()
            assert policy.digest() == before
            assert policy.version == 2
        return before

    make_world(a=1).run(a_0=body)
