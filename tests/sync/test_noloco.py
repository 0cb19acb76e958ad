"""NoLoCo against a trace in plain NumPy; joins, deaths and aborts in the middle of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import ConfigError, LocalGroupError, StateError
from ictp2p.sync.diloco import DiLoCo
from ictp2p.sync.noloco import NoLoCo
from ictp2p.sync.outer import Nesterov
from ictp2p.sync.own import Name, OwnState
from ictp2p.sync.sampler import ElasticSampler
from ictp2p.sync.state import entry

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE, LR, MU, PULL = 2, F(0.125), F(0.75), F(0.5), F(1.25)
START = np.array([1.0, -2.0, 0.5], F)
SETTINGS = {"sync_every": EVERY, "lr": float(LR), "momentum": float(MU), "pull": float(PULL)}
DEADLINE = 20.0


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-4, 5, (steps, 3)).astype(F)


class Model(torch.nn.Module):
    def __init__(self, start: Array = START) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(start.copy()))
        self.register_buffer("seen", torch.zeros(1))


def train(model: Any, inner: Any, data: Array) -> list[Array]:
    """The gradient is the row plus the weights; the buffer counts the sum of the rows."""
    trace = []
    for row in data:
        model.w.grad = torch.from_numpy(row) + model.w.detach()
        model.seen += float(row.sum())
        inner.step()
        trace.append(model.w.detach().numpy().copy())
    return trace


def worker(
    data: Array,
    bases: list[bytes] | None = None,
    weight: float = 1.0,
    met: threading.Barrier | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """Trains; gives the parameters after each step, the cluster's own global ones, the buffer, and the policy.

    With `met` nobody begins the second phase before everybody has the first round behind it.
    """

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **{**SETTINGS, **options}) as policy:
            policy.weight = weight
            trace = []
            for step, row in enumerate(data):
                if met is not None and step == EVERY:
                    met.wait(DEADLINE)
                before = (policy.version, policy.state.digest)
                trace += train(model, inner, row[None])
                if bases is not None and policy.version > before[0]:
                    bases.append(before[1])
        agreed = policy.state.committed
        return trace, agreed["w"].numpy().copy(), float(agreed["buffer seen"]), policy

    return body


def drawn(base: bytes, names: Sequence[str]) -> list[list[int]]:
    """The pairs, written down once more: sorted by a keyed hash of the names, two by two."""
    order = sorted(names, key=lambda n: hashlib.blake2b(n.encode(), key=base, digest_size=16).digest())
    numbers = [names.index(name) for name in order]
    return [sorted(numbers[i : i + 2]) for i in range(0, len(numbers), 2)]


class Golden:
    """NoLoCo over clusters of one worker, in NumPy, one rounded operation at a time."""

    def __init__(self, weights: Sequence[float]) -> None:
        count = len(weights)
        self.weights = [F(EVERY * w) for w in weights]
        self.theta = [START.copy() for _ in range(count)]
        self.phi = [START.copy() for _ in range(count)]
        self.momentum = [np.zeros(3, F) for _ in range(count)]
        self.traces: list[list[Array]] = [[] for _ in range(count)]

    def steps(self, data: Sequence[Array]) -> None:
        for row in zip(*data, strict=True):
            for i, g in enumerate(row):
                self.theta[i] = self.theta[i] - RATE * (g + self.theta[i])
                self.traces[i].append(self.theta[i])

    def meet(self, groups: Sequence[Sequence[int]]) -> None:
        phi, momentum = list(self.phi), list(self.momentum)
        for group in groups:
            total = F(sum(self.weights[i] for i in group))
            delta = np.asarray(sum(self.weights[i] * (phi[i] - self.theta[i]) for i in group), F) / total
            mean = np.asarray(sum(self.weights[i] * phi[i] for i in group), F) / total
            for i in group:
                self.momentum[i] = momentum[i] * MU + (delta * LR + (phi[i] - mean) * PULL)
                self.phi[i] = phi[i] - self.momentum[i]
                self.theta[i] = self.traces[i][-1] = self.phi[i].copy()


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0), (1.0, 1.0, 1.0), (2.0, 1.0, 1.0, 4.0)], ids=len)
def test_every_step_is_that_of_the_paper_to_the_bit(make_world: Any, weights: Sequence[float]) -> None:
    names = "abcd"[: len(weights)]
    data = [rows(i, 5 * EVERY) for i in range(len(weights))]
    bases: list[bytes] = []
    bodies = {f"{n}_0": worker(d, bases if n == "a" else None, w) for n, d, w in zip(names, data, weights, strict=True)}
    found = make_world(**dict.fromkeys(names, 1)).run(**bodies)
    golden = Golden(weights)
    for number, base in enumerate(bases):
        golden.steps([d[number * EVERY : (number + 1) * EVERY] for d in data])
        golden.meet(drawn(base, names))
    assert len(bases) == 5
    for i, name in enumerate(names):
        trace, phi, _, policy = found[f"{name}_0"]
        np.testing.assert_array_equal(np.array(trace), np.array(golden.traces[i]))
        np.testing.assert_array_equal(phi, golden.phi[i])
        np.testing.assert_array_equal(policy.state.committed["outer momentum_buffer of w"].numpy(), golden.momentum[i])
        assert policy.digest() == found["a_0"][3].digest(), "all agree on what was done"
    if len(weights) > 2:
        assert not np.array_equal(found["a_0"][1], found["b_0"][1]), "and hold what they have made of it"


def test_the_first_two_rounds_by_hand(make_world: Any) -> None:
    """One parameter, two clusters, lr 1, momentum 1/2, pull 1; the inner steps take away 1 and 3, then 2 and 0.

    Round 1: both hold 0, the mean pseudo-gradient is 2, so b = 2 and phi = -2 for both. Round 2: mean 1, b = 1 + 1, and
    phi = -4. Equal clusters that meet each other never part, so the pull stays 0.
    """

    def body(moves: Sequence[float]) -> Callable[[Any], float]:
        def run(mesh: Any) -> float:
            w = torch.nn.Parameter(torch.zeros(1))
            inner = torch.optim.SGD([w], lr=1.0)
            with NoLoCo(mesh, torch.nn.ParameterList([w]), inner, sync_every=1, lr=1.0, momentum=0.5, pull=1.0):
                for move in moves:
                    w.grad = torch.tensor([move])
                    inner.step()
            return float(w.detach())

        return run

    found = make_world(a=1, b=1).run(a_0=body([1.0, 2.0]), b_0=body([3.0, 0.0]))
    assert found == {"a_0": -4.0, "b_0": -4.0}


def test_one_cluster_alone_is_diloco_with_a_heavy_ball(make_world: Any) -> None:
    def alone(mesh: Any) -> list[Array]:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))

        def outer(p: list[torch.nn.Parameter]) -> Nesterov:
            return Nesterov(p, lr=1.0, momentum=float(MU), nesterov=False)

        with DiLoCo(mesh, model, inner, outer, sync_every=EVERY):
            return train(model, inner, rows(0, 8))

    one = make_world(a=1).run(a_0=alone)["a_0"]
    other = make_world(a=1).run(a_0=worker(rows(0, 8), lr=1.0))["a_0"][0]
    np.testing.assert_array_equal(np.array(other), np.array(one))


def test_buffers_are_the_pairs_mean_of_where_they_are_by_now(make_world: Any) -> None:
    data = [rows(i, 2 * EVERY) for i in range(2)]
    found = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    assert found["a_0"][2] == found["b_0"][2] == float(sum(d.sum() for d in data)) / 2


def test_an_aborted_round_leaves_everything_bit_for_bit_as_it_was(make_world: Any) -> None:
    world, data, bases = make_world(a=1, b=1, c=1), [rows(i, 3 * EVERY) for i in range(3)], list[bytes]()
    world.aborts = {1}
    found = world.run(**{f"{n}_0": worker(d, bases if n == "a" else None) for n, d in zip("abc", data, strict=True)})
    golden = Golden([1.0] * 3)
    golden.steps([d[:EVERY] for d in data])
    golden.meet(drawn(bases[0], "abc"))
    golden.weights = [F(2 * EVERY)] * 3
    golden.steps([d[EVERY:] for d in data])
    golden.meet(drawn(bases[1], "abc"))
    for i, name in enumerate("abc"):
        trace, phi, _, policy = found[f"{name}_0"]
        np.testing.assert_array_equal(np.array(trace), np.array(golden.traces[i]))
        np.testing.assert_array_equal(phi, golden.phi[i])
        assert policy.version == 3


def test_who_missed_a_round_keeps_what_it_has_and_brings_all_to_the_next(make_world: Any) -> None:
    """Its own global parameters lie nowhere else: it takes over the name of the state, and no content."""
    world, data = make_world(a=1, b=1), [rows(0, 4 * EVERY), rows(1, 3 * EVERY)]
    world.absent = {1: {"b"}}
    met = threading.Barrier(2)
    found = world.run(a_0=worker(data[0], met=met), b_0=worker(data[1], met=met))
    golden = Golden([1.0] * 2)
    golden.steps([d[:EVERY] for d in data])
    golden.meet([[0, 1]])
    b = golden.phi[1], golden.momentum[1]
    golden.steps([d[EVERY : 2 * EVERY] for d in data])
    late = golden.theta[1]
    golden.meet([[0], [1]])
    golden.phi[1], golden.momentum[1], golden.theta[1] = *b, late  # b was not there: nothing of it moved
    golden.steps([data[0][2 * EVERY : 3 * EVERY], np.zeros((EVERY, 3), F)])
    golden.theta[1] = late
    golden.meet([[0, 1]])
    golden.steps([data[0][3 * EVERY :], data[1][2 * EVERY :]])
    golden.meet([[0, 1]])
    for i, name in enumerate(("a_0", "b_0")):
        np.testing.assert_array_equal(found[name][1], golden.phi[i])
        np.testing.assert_array_equal(found[name][0][-1], golden.theta[i])
    assert found["a_0"][3].digest() == found["b_0"][3].digest()
    assert found["a_0"][3].version == 5


def test_a_newcomer_begins_as_a_copy_of_one_that_is_there(make_world: Any) -> None:
    world = make_world(a=1)
    ready, met = threading.Event(), threading.Event()
    seen: dict[str, Array] = {}

    def old(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **SETTINGS) as policy:
            train(model, inner, rows(0, 2 * EVERY))
            seen.update({name: t.numpy().copy() for name, t in policy.state.committed.items()})
            world.clusters["b"] = type(world.clusters["a"])(1)
            ready.set()
            assert met.wait(DEADLINE)
            train(model, inner, rows(2, EVERY))
            return policy.digest()

    def new(mesh: Any) -> Any:
        model = Model(np.full(3, 9.0, F))
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **SETTINGS) as policy:
            got = {name: t.numpy().copy() for name, t in policy.state.committed.items()}
            np.testing.assert_array_equal(model.w.detach().numpy(), got["w"])
            met.set()
            train(model, inner, rows(3, EVERY))
            return got, policy.digest()

    first = world.start("a_0", old)
    assert ready.wait(DEADLINE)
    world.start("b_0", new).join(30)
    first.join(30)
    assert not world.errors, world.errors
    got, digest = world.results["b_0"]
    assert digest == world.results["a_0"]
    assert seen["outer momentum_buffer of w"].any()
    for name, content in seen.items():
        np.testing.assert_array_equal(got[name], content)


def test_other_initial_weights_are_noticed_and_replaced(make_world: Any) -> None:
    """Before the first round the name covers the content: all begin with the same."""

    def body(start: float) -> Callable[[Any], Array]:
        def run(mesh: Any) -> Array:
            model = Model(np.full(3, start, F))
            with NoLoCo(mesh, model, torch.optim.SGD(model.parameters(), lr=0.1), **SETTINGS):
                return model.w.detach().numpy().copy()

        return run

    found = make_world(a=1, b=1).run(a_0=body(1.0), b_0=body(2.0))
    np.testing.assert_array_equal(found["a_0"], found["b_0"])


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "broadcast", "outer_round", "vote", "committed"])
@pytest.mark.parametrize("count", range(0, 8, 2))
def test_whoever_leads_next_goes_on_as_the_dead_would_have(
    make_world: Any, killed: Any, operation: str, count: int
) -> None:
    """The same data for all, so that with whom one meets, or that one is alone, makes no difference."""
    data = rows(0, 4 * EVERY)
    world = make_world(a=2, b=1)
    world.faults["a/0", operation, count] = killed
    found = world.run(a_0=worker(data), a_1=worker(data), b_0=worker(data))
    golden = Golden([1.0])
    for number in range(4):
        golden.steps([data[number * EVERY : (number + 1) * EVERY]])
        golden.meet([[0]])
    for name in ("a_1", "b_0"):
        trace, phi, _, policy = found[name]
        assert (policy.version, policy.digest()) == (5, found["b_0"][3].digest())
        np.testing.assert_array_equal(trace[-1], golden.theta[0])
        np.testing.assert_array_equal(phi, golden.phi[0])


def test_an_heir_without_the_result_steps_alone_and_counts_its_training_once(make_world: Any, killed: Any) -> None:
    """The leader falls silent in its cluster, has the round committed, and dies: what the partner sent died with it."""
    data = [rows(0, EVERY), rows(1, EVERY)]
    world = make_world(a=2, b=1)
    world.faults["a/0", "broadcast", 2] = lambda: LocalGroupError("silent")
    world.faults["a/0", "committed", 0] = killed
    found = world.run(a_0=worker(data[0]), a_1=worker(data[0]), b_0=worker(data[1]))
    both, alone = Golden([2.0, 1.0]), Golden([2.0, 1.0])
    for golden, groups in ((both, [[0, 1]]), (alone, [[0], [1]])):
        golden.steps(data)
        golden.meet(groups)
    verdicts = [fields["verdict"] for n, kind, fields in world.events if (n, kind) == ("a/1", "outer")]
    assert verdicts[-1] == "ADOPT"
    np.testing.assert_array_equal(found["b_0"][1], both.phi[1])
    np.testing.assert_array_equal(found["a_1"][1], alone.phi[0])
    np.testing.assert_array_equal(found["a_1"][0][-1], alone.theta[0])
    assert found["a_1"][3].digest() == found["b_0"][3].digest()
    assert found["a_1"][3].progress.weights == [0.0]


def test_a_newcomer_of_the_cluster_holds_what_its_leader_holds(make_world: Any) -> None:
    world = make_world(a=1, b=1)
    started, joined = threading.Event(), threading.Event()

    def old(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **SETTINGS) as policy:
            train(model, inner, rows(0, EVERY + 1))
            started.set()
            assert joined.wait(DEADLINE)
            train(model, inner, rows(1, EVERY + 1))
            return policy.state.contents

    def new(mesh: Any) -> Any:
        model = Model(np.zeros(3, F))
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        wants = mesh.roster_ready
        mesh.roster_ready = lambda *given: (wants(*given), joined.set())
        with NoLoCo(mesh, model, inner, **SETTINGS) as policy:
            train(model, inner, rows(1, EVERY + 1))
            return policy.state.contents

    first, other = world.start("a_0", old), world.start("b_0", worker(rows(5, 2 * EVERY)))
    assert started.wait(DEADLINE)
    second = world.start("a_1", new)
    for thread in (first, second, other):
        thread.join(30)
    assert not world.errors, world.errors
    assert world.results["a_0"] == world.results["a_1"]


def test_a_mesh_goes_on_from_its_clusters_own_files(make_world: Any, tmp_path: Path) -> None:
    data = [rows(i, 6 * EVERY) for i in range(3)]

    def body(name: str, part: Array, load: bool) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model = Model()
            inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
            policy = NoLoCo(mesh, model, inner, **SETTINGS)
            if load:
                policy.load(tmp_path / name)
            with policy:
                train(model, inner, part)
                policy.save(tmp_path / name)
                return policy.global_parameters()["w"].numpy(), policy.digest()

        return run

    def run(load: bool, span: slice) -> Any:
        bodies = {f"{n}_0": body(n, d[span], load) for n, d in zip("abc", data, strict=True)}
        return make_world(a=1, b=1, c=1).run(**bodies)

    run(False, slice(0, 3 * EVERY))
    halves, whole = run(True, slice(3 * EVERY, None)), run(False, slice(None))
    assert len({digest for _, digest in halves.values()}) == 1
    assert not np.array_equal(halves["a_0"][0], halves["b_0"][0])
    for name, (parameters, digest) in whole.items():
        np.testing.assert_array_equal(halves[name][0], parameters)
        assert digest == halves[name][1]


def test_a_damaged_file_is_noticed_though_the_name_says_nothing_of_the_content(tmp_path: Path, make_world: Any) -> None:
    def run(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with NoLoCo(mesh, model, inner, **SETTINGS) as policy:
            train(model, inner, rows(0, EVERY))
            policy.save(tmp_path / "at")

    make_world(a=1).run(a_0=run)
    written = bytearray((tmp_path / "at").read_bytes())
    written[-1] ^= 1
    (tmp_path / "at").write_bytes(written)
    model = Model()
    policy = NoLoCo(None, model, torch.optim.SGD(model.parameters(), lr=0.1), **SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="digest"):
        policy.load(tmp_path / "at")


def test_the_name_says_who_was_in_a_round(make_world: Any) -> None:
    """The same number of rounds, of the same clusters with other weights: nobody may take the one for the other."""
    data = [rows(i, EVERY) for i in range(2)]
    one = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    other = make_world(a=1, b=1).run(a_0=worker(data[0], weight=2.0), b_0=worker(data[1]))
    again = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    assert one["a_0"][3].digest() == again["b_0"][3].digest() != other["a_0"][3].digest()


class TestOwnState:
    def make(self, value: float) -> OwnState:
        state = OwnState([entry("w", torch.zeros(4))])
        state.begin()["w"].fill_(value)
        return state

    def test_the_name_covers_the_content_until_the_first_round_and_then_what_was_done(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        assert one.seal({"round": 0}) != other.seal({"round": 0})
        assert one.seal({"round": 1}) == other.seal({"round": 1})
        assert one.seal({"round": 2}) != other.seal({"round": 1})
        assert one.next_contents != other.next_contents

    def test_a_manifest_of_another_round_is_refused(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        one.seal({"round": 3})
        one.commit(4)
        with pytest.raises(StateError, match="named"):
            other.expect(one.manifest(one.digest), b"?" * 32)

    def test_a_name_alone_leaves_the_content_as_it_is(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        for state, number in ((one, 3), (other, 2)):
            state.seal({"round": number})
            state.commit(number + 1)
        name = Name(other)
        assert name.expect(one.manifest(one.digest), one.digest) == []
        name.verified(one.version)
        assert (other.version, other.digest, other.counters) == (4, one.digest, {"round": 3})
        assert other.committed["w"].tolist() == [2.0] * 4
        with pytest.raises(StateError, match="not asked for"):
            name.take(0, memoryview(b""))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pull": -0.5}, "pull -0.5"),
        ({"pull": 3.0}, "pull 3.0"),
        ({"pull": float("nan")}, "pull nan"),
        ({"sync_every": 2.5}, "sync_every 2.5"),
        ({"codec": "int8"}, "no codec"),
        ({"sampler": ElasticSampler(8, 2)}, "no sampler"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=message):
        NoLoCo(None, model, torch.optim.SGD(model.parameters()), **options)  # type: ignore[arg-type]
