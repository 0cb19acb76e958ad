from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ictp2p.errors import ConfigError, NotFinite
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.pace import AdaptivePace
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.eager import EagerDiLoCo, EagerWeights
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId

Array = NDArray[np.float32]
F = np.float32
START = np.array([1.0, -2.0, 0.5], F)
EVERY = 4


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-3, 4, (steps, 3)).astype(F)


def worker(
    data: Array, policy: Any = EagerDiLoCo, weights: Sequence[float] | None = None, **options: Any
) -> Callable[[Any], Any]:
    def body(mesh: Any) -> Any:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        trace = []
        with policy(mesh, model, inner, sync_every=EVERY, **options) as it:
            for row, weight in zip(data, weights or [1.0] * len(data), strict=True):
                it.weight = weight
                model.w.grad = torch.from_numpy(row) + model.w.detach()
                inner.step()
                trace.append(model.w.detach().numpy().copy())
            return trace, it

    return body


class Golden:
    """Eager updates over clusters of one worker, in NumPy, written from the paper's equation."""

    def __init__(self, clusters: int) -> None:
        self.w = [START.copy() for _ in range(clusters)]
        self.start = [START.copy() for _ in range(clusters)]
        self.others = [np.zeros(3, F) for _ in range(clusters)]
        self.agreed, self.buffer = START.copy(), np.zeros(3, F)
        self.sent: list[Array] | None = None
        self.count = F(1)

    def outer(self, delta: Array) -> tuple[Array, Array]:
        buffer = self.buffer * F(0.9) + delta
        return self.agreed - (buffer * F(0.9) + delta) * F(0.7), buffer

    def boundary(self) -> None:
        if self.sent is not None:
            self.count = F(len(self.sent))
            mean = np.asarray(sum(self.sent) / self.count, F)
            self.agreed, self.buffer = self.outer(mean)
            self.others = [mean - delta / self.count for delta in self.sent]
        self.sent = [start - w for start, w in zip(self.start, self.w, strict=True)]
        estimates = [d / self.count + o for d, o in zip(self.sent, self.others, strict=True)]
        self.w = [self.outer(estimate)[0] for estimate in estimates]
        self.start = [w.copy() for w in self.w]

    def run(self, data: Sequence[Array]) -> list[list[Array]]:
        traces: list[list[Array]] = [[] for _ in self.w]
        for step in range(len(data[0])):
            self.w = [w - F(0.125) * (d[step] + w) for w, d in zip(self.w, data, strict=True)]
            if (step + 1) % EVERY == 0:
                self.boundary()
            for trace, w in zip(traces, self.w, strict=True):
                trace.append(w.copy())
        return traces


def test_every_step_is_the_papers(make_world: Any) -> None:
    data = [rows(i, 18) for i in range(2)]
    found = make_world(x=1, y=1).run(x_0=worker(data[0]), y_0=worker(data[1]))
    golden = Golden(2)
    for name, wanted in zip(("x_0", "y_0"), golden.run(data), strict=True):
        trace, policy = found[name]
        np.testing.assert_array_equal(np.array(trace), np.array(wanted))
        np.testing.assert_array_equal(policy.state.committed["w"].numpy(), golden.agreed)
        assert policy.version == 4
    assert found["x_0"][1].digest() == found["y_0"][1].digest()


class Weighted:
    """The same where clusters count differently, and rounds may come to nothing; `weights` are by phase and cluster."""

    def __init__(self, weights: Sequence[Sequence[float]]) -> None:
        self.weights = weights
        clusters = len(weights[0])
        self.w = [START.copy() for _ in range(clusters)]
        self.start = [START.copy() for _ in range(clusters)]
        self.sent = [np.zeros(3, F) for _ in range(clusters)]
        self.held = [0.0] * clusters
        self.last: tuple[list[Array], list[float]] = ([np.zeros(3, F)] * clusters, [0.0] * clusters)
        self.agreed, self.buffer = START.copy(), np.zeros(3, F)
        self.unlanded = False

    def outer(self, delta: Array) -> tuple[Array, Array]:
        buffer = self.buffer * F(0.9) + delta
        return self.agreed - (buffer * F(0.9) + delta) * F(0.7), buffer

    def land(self) -> None:
        self.last = [each.copy() for each in self.sent], list(self.held)
        self.held, self.unlanded = [0.0] * len(self.held), False
        if sum(self.last[1]):
            self.agreed, self.buffer = self.outer(mean(*self.last))

    def launch(self, phase: int) -> None:
        """What each cluster thinks that the average will be: its own part new, that of all others as it was."""
        for cluster in range(len(self.w)):
            moved = self.start[cluster] - self.w[cluster]
            self.held[cluster] += self.weights[phase][cluster]
            self.sent[cluster] = (moved + self.sent[cluster]) if self.unlanded else moved
            if not self.held[cluster]:
                self.sent[cluster] = np.zeros(3, F)
        self.unlanded = True
        for cluster in range(len(self.w)):
            deltas, weights = [*self.last[0]], [*self.last[1]]
            deltas[cluster], weights[cluster] = self.sent[cluster], self.held[cluster]
            self.w[cluster] = self.outer(mean(deltas, weights))[0]
            self.start[cluster] = self.w[cluster].copy()

    def run(self, data: Sequence[Array], aborted: Collection[int]) -> list[Array]:
        for step in range(len(data[0])):
            phase = step // EVERY
            for cluster in range(len(self.w)):
                if phase >= len(self.weights) or self.weights[phase][cluster]:
                    self.w[cluster] = self.w[cluster] - F(0.125) * (data[cluster][step] + self.w[cluster])
            if (step + 1) % EVERY == 0:
                if phase and phase - 1 not in aborted:
                    self.land()
                self.launch(phase)
        return self.w


def mean(deltas: Sequence[Array], weights: Sequence[float]) -> Array:
    total = sum(weights)
    return np.asarray(
        sum(F(w / total) * d for w, d in zip(weights, deltas, strict=True)) if total else deltas[0] * 0, F
    )


@given(
    weights=st.integers(1, 3).flatmap(
        lambda clusters: st.lists(
            st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0, 100.0]), min_size=clusters, max_size=clusters),
            min_size=4,
            max_size=4,
        )
    ),
    aborted=st.sets(st.integers(0, 3), max_size=2),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
def test_a_clusters_own_part_of_an_estimate_is_its_share_of_the_weight(
    make_world: Any, weights: list[list[float]], aborted: set[int]
) -> None:
    names = "xyz"[: len(weights[0])]
    data = [rows(i, 4 * EVERY) for i in range(len(names))]
    world = make_world(**dict.fromkeys(names, 1))
    world.aborts = aborted
    rates = [[phase[i] for phase in weights for _ in range(EVERY)] for i in range(len(names))]
    found = world.run(**{f"{n}_0": worker(data[i], weights=rates[i]) for i, n in enumerate(names)})
    golden = Weighted(weights)
    for name, wanted in zip(names, golden.run(data, aborted), strict=True):
        trace, policy = found[f"{name}_0"]
        np.testing.assert_allclose(trace[-1], wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(policy.state.committed["w"].numpy(), golden.agreed, rtol=1e-4, atol=1e-4)


def test_alone_it_is_diloco_with_the_agreed_state_one_round_behind(make_world: Any) -> None:
    data = rows(0, 13)
    eager, policy = make_world(x=1).run(x_0=worker(data))["x_0"]
    plain, other = make_world(x=1).run(x_0=worker(data, DiLoCo))["x_0"]
    np.testing.assert_array_equal(np.array(eager), np.array(plain))
    assert (policy.version, other.version) == (3, 4)


@pytest.mark.parametrize("aborted", [{0}, {1}, {0, 1}])
def test_what_a_failed_round_brought_is_brought_again(make_world: Any, aborted: set[int]) -> None:
    """Alone, with an outer step that adds up, nothing may be missing in the end."""
    world, data = make_world(x=1), rows(0, 17)
    world.aborts = aborted

    def plain(parameters: Any) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr=1.0)

    trace, policy = world.run(x_0=worker(data, outer=plain))["x_0"]
    alone = START
    for row in data:
        alone = alone - F(0.125) * (row + alone)
    np.testing.assert_allclose(trace[-1], alone, rtol=1e-5, atol=1e-6)
    assert policy.version == 4 - len(aborted)


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "broadcast"])
@pytest.mark.parametrize("count", range(0, 36, 5))
def test_whoever_leads_next_goes_on_from_the_same_estimate(
    make_world: Any, killed: Any, operation: str, count: int
) -> None:
    data = [rows(0, 14)] * 2
    world = make_world(x=2, y=1)
    world.faults["x/0", operation, count] = killed
    found = world.run(x_0=worker(data[0]), x_1=worker(data[0]), y_0=worker(data[1]))
    adopted = any(fields.get("verdict") == "ADOPT" for name, _, fields in world.events if name == "x/1")
    weights = [[world.weights[number][cluster] for cluster in "xy"] for number in range(2)]
    seen = 3 * EVERY - 1  # what a third round weighs is not told: nobody waits for it
    golden = Weighted(weights)
    golden.run([part[:seen] for part in data], ())
    for cluster, name in enumerate(("x_1", "y_0")):
        trace, policy = found[name]
        assert (policy.version, policy.digest()) == (3, found["y_0"][1].digest())
        if not adopted:  # else x/1 never saw the average, and estimates from the one before
            np.testing.assert_allclose(trace[seen - 1], golden.w[cluster], rtol=1e-4, atol=1e-5)


def test_the_agreed_running_statistics_are_the_means_of_the_clusters_own(make_world: Any) -> None:
    def body(mesh: Any) -> Any:
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
        torch.nn.init.ones_(model[1].weight)
        torch.nn.init.zeros_(model[1].bias)
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(ord(mesh.cluster))
        kept = []
        with EagerDiLoCo(mesh, model, inner, sync_every=5) as policy:
            for _ in range(20):
                inner.zero_grad()
                model(0.1 * torch.randn(16, 2, generator=generator) + ord(mesh.cluster)).sum().backward()
                inner.step()
                kept.append([model[0].running_mean.clone(), model[0].running_var.clone()])
            agreed = policy.global_parameters()
            return kept, [agreed["0.running_mean"], agreed["0.running_var"]], policy.version

    found = make_world(a=1, b=1).run(a_0=body, b_0=body)
    (a, agreed, version), (b, _, _) = found["a_0"], found["b_0"]
    assert version == 4, "the round that was launched after 15 steps landed after 20"
    for one, other, mean in zip(a[14], b[14], agreed, strict=True):
        torch.testing.assert_close(mean, (one + other) / 2)


def test_what_was_dropped_is_in_no_later_capture() -> None:
    """`load` begins anew, as after a round that was missed: of what had been captured nothing is left."""
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
    weights = EagerWeights(model, None, [], cluster=ClusterId("a"))
    for moved in (F(0.5), F(0.25)):
        model.w.data.sub_(float(moved))
        weights.capture(1.0)
        np.testing.assert_array_equal(weights.delta.numpy(), np.full(3, moved))
        weights.load()
        np.testing.assert_array_equal(model.w.detach().numpy(), START)


def test_all_workers_of_a_cluster_estimate_by_the_round_that_they_saw_last() -> None:
    """Regression: a leader went by an attempt of fewer that came to nothing, of which its followers never heard."""
    workers = ("leader", "follower", "newcomer")
    found = {name: EagerWeights(_one(START), _delayed, [], cluster=ClusterId("a")) for name in workers}
    for name in ("leader", "follower"):
        found[name].capture(1.0)
        found[name].average.fill_(0.5)
        found[name].finish(_parts(4))
        found[name].commit(1)
    found["leader"].restart(_parts(3))
    state = found["follower"].state
    state.hand_on(state.digest, 1, found["newcomer"].state)
    found["newcomer"].take_over(found["follower"].carried(captured=False))
    for weights in found.values():
        weights.tensors()[0].data.fill_(3.0)
        weights.capture(1.0)
    np.testing.assert_array_equal(found["leader"].tensors()[0].detach(), found["follower"].tensors()[0].detach())
    np.testing.assert_array_equal(found["newcomer"].tensors()[0].detach(), found["follower"].tensors()[0].detach())


def _one(values: Array) -> torch.nn.Module:
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.from_numpy(values.copy()))
    return model


def _delayed(params: list[torch.nn.Parameter]) -> DelayedNesterov:
    return DelayedNesterov(params, every=4)


def _parts(count: int) -> list[Participant]:
    return [Participant(ClusterId("abcd"[i]), PeerId(str(i) * 32), 0, 1.0, b"") for i in range(count)]


def test_what_has_diverged_is_not_brought(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        data = rows(0, EVERY)
        data[-1, 1] = np.nan
        worker(data)(mesh)

    with pytest.raises(NotFinite, match="w hold NaN or infinity"):
        make_world(a=1).run(a_0=body)


def test_what_a_failed_round_brought_outlives_a_capture_that_was_refused(make_world: Any) -> None:
    """Regression: what is no number was added to it, and so to all that came later, though the program went back."""
    world, data = make_world(x=1), rows(0, 5 * EVERY)
    world.aborts = {0}

    def body(mesh: Any) -> Any:
        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.from_numpy(START.copy()))
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        captured = START
        with EagerDiLoCo(mesh, model, inner, partial(Nesterov, lr=1.0, momentum=0.0), sync_every=EVERY) as policy:
            for step, row in enumerate(data):
                before = model.w.detach().clone()
                model.w.grad = torch.from_numpy(row) + model.w.detach()
                if step == 2 * EVERY - 1:
                    model.w.grad[1] = np.nan
                    with pytest.raises(NotFinite, match="w hold NaN or infinity"):
                        inner.step()
                    model.w.data.copy_(before)
                    captured = before.numpy()  # at the beginning of the next step
                    continue
                version = policy.version
                inner.step()
                if policy.version > version:
                    np.testing.assert_allclose(policy.global_parameters()["w"].numpy(), captured, rtol=1e-5)
                if policy.progress.aloft == 1:
                    captured = model.w.detach().numpy().copy()
        return policy.version

    assert world.run(x_0=body) == {"x_0": 4}


@pytest.mark.parametrize("options", [{"fragments": 2}, {"overlap": 2}, {"mix": 0.5}])
def test_what_a_round_of_the_whole_model_has_no_use_for_is_refused(options: dict[str, Any]) -> None:
    """Regression: `mix` was taken, and nothing was mixed."""
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=f"takes no {next(iter(options))}"):
        EagerDiLoCo(None, model, inner, **options)  # type: ignore[arg-type]


def test_a_phase_that_follows_from_how_long_rounds_take_is_refused() -> None:
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="EagerDiLoCo takes no AdaptivePace, for a round takes a phase"):
        EagerDiLoCo(None, model, inner, sync_every=AdaptivePace(30))  # type: ignore[arg-type]
