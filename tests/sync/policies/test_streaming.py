from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import ConfigError, NoQuorum
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.two_level.stream import Publisher

Array = NDArray[np.float32]
F = np.float32
START = {"a.w": np.array([1.0, -2.0], F), "b.w": np.array([0.5], F)}


class Part(torch.nn.Module):
    def __init__(self, start: Array) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(start.copy()))


class Model(torch.nn.Module):
    """Two layers of different sizes, so of two fragments."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Part(START["a.w"]), Part(START["b.w"])

    def values(self) -> Array:
        return torch.cat([self.a.w.detach(), self.b.w.detach()]).numpy().copy()


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-3, 4, (steps, 3)).astype(F)


def worker(
    data: Array,
    policy: Any = StreamingDiLoCo,
    every: int = 4,
    together: threading.Barrier | None = None,
    stays: threading.Event | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        trace = []
        with policy(mesh, model, inner, sync_every=every, **options) as it:
            if together is not None:
                together.wait(20.0)
            for row in data:
                model.a.w.grad = torch.from_numpy(row[:2]) + model.a.w.detach()
                model.b.w.grad = torch.from_numpy(row[2:]) + model.b.w.detach()
                inner.step()
                trace.append(model.values())
            assert stays is None or stays.wait(20.0)
            return trace, it

    return body


class Golden:
    """Streaming DiLoCo over clusters of one worker, in NumPy, written from the paper's algorithm 2.

    Of every `every` steps the last is the second fragment's, and the one in the middle, or the one before, the first's:
    then it is sent; `overlap` steps later the outer step is taken from the fragment's last sync, and the result mixed
    into what training made of it meanwhile.
    """

    def __init__(self, clusters: int, every: int, overlap: int, mix: float, lr: float = 0.4) -> None:
        self.parts = [slice(0, 2), slice(2, 3)]
        self.every, self.overlap, self.mix, self.lr = every, overlap, F(mix), F(lr)
        start = np.concatenate(list(START.values()))
        self.w = [start.copy() for _ in range(clusters)]
        self.base, self.buffer = start.copy(), np.zeros(3, F)
        self.sent: tuple[int, slice, Array] | None = None
        self.rounds = 0

    def run(self, data: Sequence[Array]) -> list[list[Array]]:
        traces: list[list[Array]] = [[] for _ in self.w]
        for step in range(1, len(data[0]) + 1):
            self.w = [w - F(0.125) * (d[step - 1] + w) for w, d in zip(self.w, data, strict=True)]
            self.land(step)
            if step % self.every in (self.every // 2, 0):
                part = self.parts[self.rounds % 2]
                share = F(1.0 / len(self.w))
                delta = sum(share * (self.base - w)[part] for w in self.w)
                self.sent = (step, part, np.asarray(delta, F))
                self.rounds += 1
            self.land(step)
            for trace, w in zip(traces, self.w, strict=True):
                trace.append(w.copy())
        return traces

    def land(self, step: int) -> None:
        if self.sent is None or step < self.sent[0] + self.overlap:
            return
        _, part, delta = self.sent
        self.sent = None
        self.buffer[part] = self.buffer[part] * F(0.9) + delta
        self.base[part] = self.base[part] - (self.buffer[part] * F(0.9) + delta) * self.lr
        for w in self.w:
            w[part] = w[part] * self.mix + self.base[part] * (F(1.0) - self.mix)


@pytest.mark.parametrize(("every", "within"), [(4, 0.0), (5, 1e-6)])  # with 5, torch's own SGD rounds less often
@pytest.mark.parametrize(("overlap", "mix"), [(0, 0.0), (1, 0.0), (1, 0.5), (2, 0.0), (2, 0.25)])
def test_every_step_is_the_papers(make_world: Any, overlap: int, mix: float, every: int, within: float) -> None:
    data = [rows(i, 13) for i in range(2)]
    options = {"fragments": [["a"], ["b"]], "overlap": overlap, "mix": mix, "every": every}
    found = make_world(x=1, y=1).run(x_0=worker(data[0], **options), y_0=worker(data[1], **options))
    expected = Golden(2, every, overlap, mix).run(data)
    for name, wanted in zip(("x_0", "y_0"), expected, strict=True):
        trace, policy = found[name]
        np.testing.assert_allclose(np.array(trace), np.array(wanted), rtol=within, atol=within)
        assert policy.version == 1 + sum(step % every in (every // 2, 0) for step in range(1, 14 - overlap))
    assert found["x_0"][1].digest() == found["y_0"][1].digest()


@pytest.mark.parametrize("clusters", [1, 2])
def test_one_fragment_without_overlap_is_diloco(make_world: Any, clusters: int) -> None:
    data = [rows(i, 12) for i in range(clusters)]

    def run(*kinds: Any, **options: Any) -> list[Any]:
        found = make_world(**{f"c{i}": 1 for i in range(clusters)}).run(
            **{f"c{i}_0": worker(data[i], *kinds, outer=nesterov, **options) for i in range(clusters)}
        )
        return [found[f"c{i}_0"][0] for i in range(clusters)]

    def nesterov(parameters: Any) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)

    streamed = run(StreamingDiLoCo, fragments=1, overlap=0, mix=0.0)
    np.testing.assert_array_equal(np.array(streamed), np.array(run(DiLoCo)))


def test_weights_count_since_the_fragments_own_last_sync(make_world: Any) -> None:
    found = make_world(x=1).run(x_0=worker(rows(0, 9), fragments=2, overlap=1))
    _, policy = found["x_0"]
    # a was sent at steps 2 and 6, b at 4 and 8; the last one has landed at step 9.
    assert policy.progress.weights == [3.0, 1.0]


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "broadcast"])
@pytest.mark.parametrize("count", range(0, 40, 3))
def test_a_leader_that_dies_with_a_round_under_way_loses_nothing(
    make_world: Any, killed: Any, operation: str, count: int
) -> None:
    """Whoever leads next holds what was captured, and lands it at the same step; all work is counted once."""
    data = [rows(0, 12)] * 2
    world = make_world(x=2, y=1)
    world.faults["x/0", operation, count] = killed
    options = {"fragments": 2, "overlap": 1, "mix": 0.5}
    found = world.run(x_0=worker(data[0], **options), x_1=worker(data[0], **options), y_0=worker(data[1], **options))
    expected = Golden(2, 4, 1, 0.5).run(data)
    for name, wanted in zip(("x_1", "y_0"), expected, strict=True):
        trace, policy = found[name]
        np.testing.assert_allclose(np.array(trace), np.array(wanted), rtol=1e-4, atol=1e-5)
        assert policy.version == 6
    assert found["y_0"][1].progress.weights == [2.0, 4.0]
    a, b = found["x_1"][1].progress.weights
    assert 2.0 <= a <= 4.0 <= b <= 8.0, "of two workers at first, then of one"


@pytest.mark.parametrize("aborted", [{0}, {1}, {0, 1, 2}])
def test_a_round_that_comes_to_nothing_leaves_training_alone(make_world: Any, aborted: set[int]) -> None:
    """The same fragment is due again, with more in it; until then nothing shows."""
    world, data = make_world(x=1), rows(0, 8)
    world.aborts = aborted
    found = world.run(x_0=worker(data, fragments=2, overlap=1))
    trace, policy = found["x_0"]
    alone = np.concatenate(list(START.values()))
    for step in range(2 * (min(aborted) + 1) + 1):
        if min(aborted) == 0:
            alone = alone - F(0.125) * (data[step] + alone)
            np.testing.assert_array_equal(trace[step], alone)
    assert policy.version == 1 + 3 - len(aborted)


def test_a_cluster_that_was_missed_keeps_what_it_learnt(make_world: Any) -> None:
    world, data = make_world(x=1, y=1), [rows(i, 5) for i in range(2)]
    world.absent = {0: {"y"}, 1: {"y"}, 2: {"y"}, 3: {"y"}}
    options = {"fragments": [["a"], ["b"]], "overlap": 1, "together": threading.Barrier(2)}
    found = world.run(x_0=worker(data[0], **options), y_0=worker(data[1][:3], **options))
    alone = np.concatenate(list(START.values()))
    for row in data[1][:3]:
        alone = alone - F(0.125) * (row + alone)
    trace, policy = found["y_0"]
    moved = np.concatenate([policy.state.committed[n].numpy() for n in START]) - np.concatenate(list(START.values()))
    np.testing.assert_allclose(trace[-1], alone + moved, rtol=1e-5, atol=1e-5)
    assert policy.progress.weights == [3.0, 3.0]


def test_without_a_quorum_training_may_go_on(make_world: Any) -> None:
    world = make_world(x=1)
    world.faults["x/0", "outer_round", 0] = partial(NoQuorum, "nobody")
    found = world.run(x_0=worker(rows(0, 8), fragments=2, overlap=1, without_quorum="continue"))
    assert found["x_0"][1].version == 3


def test_leaving_withdraws_what_is_under_way(make_world: Any) -> None:
    world = make_world(x=1, y=1)
    world.absent = {0: {"y"}}

    found = world.run(x_0=worker(rows(0, 1), fragments=2, overlap=2), y_0=worker(rows(1, 2), fragments=2, overlap=2))
    assert found["y_0"][1].version == 1, "nobody ever decided it"


def test_a_landing_that_is_interrupted_leaves_no_round_under_way(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the mesh takes its time: nothing may touch the tensors once the policy is left."""

    class Interrupted(BaseException):
        pass

    def interrupted(publisher: Publisher) -> None:
        raise Interrupted

    world = make_world(x=1, y=1)
    world.absent = {0: {"y"}}
    together = threading.Barrier(2, lambda: monkeypatch.setattr(Publisher, "wait", interrupted))
    over = threading.Event()

    def lands(mesh: Any) -> None:
        with pytest.raises(Interrupted):
            worker(rows(1, 3), fragments=2, overlap=1, together=together)(mesh)
        over.set()
        assert "ictp2p outer round" not in [thread.name for thread in threading.enumerate()]

    # Without x there would be no round to wait for, so it stays.
    world.run(x_0=worker(rows(0, 1), fragments=2, overlap=1, together=together, stays=over), y_0=lands)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"overlap": 3}, r"overlap 3 .* from 0 to the 2 steps between two rounds \(sync_every 4 / fragments 2\)"),
        ({"overlap": -1}, "overlap -1"),
        ({"mix": 1.0}, "mix 1.0"),
        ({"fragments": 3}, "fragments 3 is not from 1 to 2, the layers that this model has"),
        ({"fragments": 5}, "sync_every 4 is fewer inner steps than there are fragments: 5"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], match: str) -> None:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=match):
        StreamingDiLoCo(None, model, inner, **{"sync_every": 4, "fragments": 2, "overlap": 1, **options})  # type: ignore[arg-type]


def test_a_mesh_with_another_overlap_is_another_training() -> None:
    digests = set()
    for overlap in (0, 1):
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = StreamingDiLoCo(None, model, inner, sync_every=4, fragments=2, overlap=overlap)  # type: ignore[arg-type]
        digests.add(policy.digest())
    assert len(digests) == 2
