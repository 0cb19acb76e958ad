"""DiPaCo against a trace in plain NumPy: paths that overlap, joins, deaths, missed rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec import msgpack
from numpy.typing import NDArray

from ictp2p.errors import ConfigError, LocalGroupError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.rounds.modules import NAME, Card
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId

Array = NDArray[np.float32]
F = np.float32
EVERY, RATE, LR, MU = 2, F(0.125), F(0.75), F(0.5)
POOL = {name: np.arange(1, 4, dtype=F) * (n + 1) for n, name in enumerate("vwxyz")}
DEADLINE = 20.0


class Part(torch.nn.Module):
    def __init__(self, start: Array) -> None:
        super().__init__()
        self.p = torch.nn.Parameter(torch.from_numpy(start.copy()))


def path(names: str, shift: float = 0.0) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({name: Part(POOL[name] + F(shift)) for name in names})


def rows(worker: int, steps: int, names: str) -> dict[str, Array]:
    return {n: np.random.default_rng([worker, ord(n)]).integers(-4, 5, (steps, 3)).astype(F) for n in names}


def nesterov(parameters: list[torch.nn.Parameter]) -> Nesterov:
    return Nesterov(parameters, lr=float(LR), momentum=float(MU))


def train(model: Any, inner: Any, data: Mapping[str, Array], steps: range) -> None:
    for step in steps:
        for name, part in model.items():
            part.p.grad = torch.from_numpy(data[name][step].copy()) + part.p.detach()
        inner.step()


def worker(
    data: Mapping[str, Array],
    weight: float = 1.0,
    kind: Any = DiPaCo,
    shift: float = 0.0,
    met: threading.Barrier | None = None,
) -> Callable[[Any], Any]:
    """Trains a path; gives its local and its agreed parameters by module, and the policy."""

    def body(mesh: Any) -> Any:
        model = path("".join(data), shift)
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        steps = len(next(iter(data.values())))
        with kind(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
            policy.weight = weight
            train(model, inner, data, range(min(steps, EVERY)))
            if met is not None:
                met.wait(DEADLINE)
            train(model, inner, data, range(EVERY, steps))
        local = {name: part.p.detach().numpy().copy() for name, part in model.items()}
        return local, {name: policy.state.committed[f"{name}.p"].numpy().copy() for name in data}, policy

    return body


class Golden:
    """A pool of modules with an outer momentum each, and clusters with a path through it, one worker each."""

    def __init__(self, paths: Mapping[str, str], weights: Mapping[str, float]) -> None:
        self.paths, self.weights = dict(paths), dict(weights)
        self.phi = {name: POOL[name].copy() for name in POOL}
        self.momentum = {name: np.zeros(3, F) for name in POOL}
        self.theta = {(c, m): POOL[m].copy() for c, names in paths.items() for m in names}

    def steps(self, data: Mapping[str, Mapping[str, Array]], steps: range, only: str = "") -> None:
        for cluster, names in self.paths.items():
            for step in steps if cluster in (only or cluster) else ():
                for m in names:
                    theta = self.theta[cluster, m]
                    self.theta[cluster, m] = theta - RATE * (data[cluster][m][step] + theta)

    def meet(self, clusters: str, brought: Mapping[str, Mapping[str, Array]] | None = None) -> None:
        """Average each module over those of `clusters` that hold it; some bring what they moved from elsewhere."""
        for m in POOL:
            holders = [c for c in clusters if m in self.paths.get(c, "")]
            if not holders:
                continue
            weights = {c: F(EVERY * self.weights[c]) for c in holders}
            moved = {c: (brought or {}).get(c, {}).get(m, self.phi[m] - self.theta[c, m]) for c in holders}
            delta = np.asarray(sum(weights[c] * moved[c] for c in holders), F) / F(sum(weights.values()))
            self.momentum[m] = self.momentum[m] * MU + delta
            self.phi[m] = self.phi[m] - (self.momentum[m] * MU + delta) * LR
            self.theta.update({(c, m): self.phi[m].copy() for c in holders})


def alone(names: str) -> Any:
    """The weights of a path, of no cluster."""
    model = path(names)
    return DiPaCo(None, model, torch.optim.SGD(model.parameters()))._weights  # type: ignore[arg-type]


PATHS = {"a": "vx", "b": "xy", "c": "yz"}
"""v and z are held by one cluster each, x and y by two."""


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 3.0, "c": 2.0}], ids=str)
def test_every_module_is_averaged_over_its_holders_to_the_bit(make_world: Any, weights: dict[str, float]) -> None:
    data = {c: rows(n, 4 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    bodies = {f"{c}_0": worker(data[c], weights[c], shift=float(n)) for n, c in enumerate(PATHS)}
    found = make_world(a=1, b=1, c=1).run(**bodies)
    golden = Golden(PATHS, weights)
    # All begin with what the first holder of a module has: x is a's, y is b's, which are shifted by 0 and by 1.
    for m, shift in (("y", 1.0), ("z", 2.0)):
        golden.phi[m] = POOL[m] + F(shift)
        golden.theta.update({key: golden.phi[m].copy() for key in golden.theta if key[1] == m})
    for number in range(4):
        golden.steps(data, range(number * EVERY, (number + 1) * EVERY))
        golden.meet("abc")
    for c, names in PATHS.items():
        local, agreed, policy = found[f"{c}_0"]
        for m in names:
            np.testing.assert_array_equal(agreed[m], golden.phi[m])
            np.testing.assert_array_equal(local[m], golden.phi[m])
            momentum = policy.state.committed[f"outer momentum_buffer of {m}.p"].numpy()
            np.testing.assert_array_equal(momentum, golden.momentum[m])
        assert policy.version == 6
        assert policy.digest() == found["a_0"][2].digest()


def test_a_round_by_hand(make_world: Any) -> None:
    """Two clusters share s, each has a module of its own; outer lr 1, no momentum; all begin with 0."""

    def body(own: str, shared: float, alone: float) -> Callable[[Any], dict[str, float]]:
        def run(mesh: Any) -> dict[str, float]:
            model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.zeros(1)) for n in ("s", own)})
            inner = torch.optim.SGD(model.parameters(), lr=1.0)
            outer = partial(Nesterov, lr=1.0, momentum=0.0)
            with DiPaCo(mesh, model, inner, outer, sync_every=1, modules=["s", own]):
                model["s"].grad, model[own].grad = torch.tensor([shared]), torch.tensor([alone])
                inner.step()
            return {name: float(p.detach()) for name, p in model.items()}

        return run

    found = make_world(a=1, b=1).run(a_0=body("left", 1.0, 5.0), b_0=body("right", 3.0, 7.0))
    assert found == {"a_0": {"s": -2.0, "left": -5.0}, "b_0": {"s": -2.0, "right": -7.0}}


def test_one_path_for_all_is_diloco_to_the_bit(make_world: Any) -> None:
    data = [rows(n, 4 * EVERY, "vw") for n in range(2)]
    found = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    wanted = make_world(a=1, b=1).run(a_0=worker(data[0], kind=DiLoCo), b_0=worker(data[1], kind=DiLoCo))
    for name in ("a_0", "b_0"):
        for m in "vw":
            np.testing.assert_array_equal(found[name][1][m], wanted[name][1][m])


def there_before(
    world: Any, data: Mapping[str, Mapping[str, Array]], steps: int, come: threading.Event
) -> Callable[[str], Callable[[Any], Any]]:
    """What three clusters do who all have trained so many steps before d may come, and train on."""
    there = threading.Barrier(3)

    def old(cluster: str) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model = path(PATHS[cluster])
            inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
            with DiPaCo(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
                train(model, inner, data[cluster], range(steps))
                there.wait(DEADLINE)
                world.clusters.setdefault("d", type(world.clusters["a"])(1))
                come.set()
                train(model, inner, data[cluster], range(steps, len(next(iter(data[cluster].values())))))
                return {m: policy.state.committed[f"{m}.p"].numpy().copy() for m in model}, policy.digest()

        return run

    return old


def test_a_newcomer_gets_its_modules_from_who_holds_them_before_it_trains(make_world: Any) -> None:
    """The newcomer has x, which a and b hold, z, which c holds, and w, which nobody does: that begins as it is."""
    world = make_world(a=1, b=1, c=1)
    data = {c: rows(n, 3 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    data["d"] = rows(7, EVERY, "wxz")
    come = threading.Event()
    old = there_before(world, data, EVERY, come)
    begun: dict[str, Array] = {}

    def new(mesh: Any) -> Any:
        model = path("wxz", 50.0)
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with DiPaCo(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
            begun.update({m: part.p.detach().numpy().copy() for m, part in model.items()})
            train(model, inner, data["d"], range(EVERY))
            return {m: policy.state.committed[f"{m}.p"].numpy().copy() for m in model}, policy.digest()

    threads = [world.start(f"{c}_0", old(c)) for c in PATHS]
    assert come.wait(DEADLINE)
    threads.append(world.start("d_0", new))
    for thread in threads:
        thread.join(30)
    assert not world.errors, world.errors
    golden = Golden(PATHS, dict.fromkeys("abcd", 1.0))
    golden.steps(data, range(EVERY))
    golden.meet("abc")
    golden.steps(data, range(EVERY, 2 * EVERY))
    golden.meet("abc")  # d looks on, and takes the same step
    for m in "xz":
        np.testing.assert_array_equal(begun[m], golden.phi[m])
    np.testing.assert_array_equal(begun["w"], POOL["w"] + F(50.0))
    golden.phi["w"] = begun["w"]
    golden.paths["d"] = "wxz"
    golden.theta.update({("d", m): golden.phi[m].copy() for m in "wxz"})
    shifted = {**data, "d": {m: np.concatenate([np.zeros((2 * EVERY, 3), F), d]) for m, d in data["d"].items()}}
    golden.steps(shifted, range(2 * EVERY, 3 * EVERY))
    golden.meet("abcd")
    for name, (agreed, digest) in world.results.items():
        for m, values in agreed.items():
            np.testing.assert_array_equal(values, golden.phi[m], err_msg=f"{m} of {name}")
        assert digest == world.results["a_0"][1]


def test_the_dead_leave_the_groups_at_the_next_round(make_world: Any, killed: Any) -> None:
    """When c dies as it should bring its second phase, y is b's alone and z is nobody's from then on."""
    world = make_world(a=1, b=1, c=1)
    data = {c: rows(n, 3 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    world.faults["c/0", "outer_round", 2] = killed
    found = world.run(**{f"{c}_0": worker(data[c]) for c in PATHS})
    golden = Golden(PATHS, dict.fromkeys("abc", 1.0))
    for number, clusters in enumerate(("abc", "ab", "ab")):
        golden.steps(data, range(number * EVERY, (number + 1) * EVERY))
        golden.meet(clusters)
    for c in "ab":
        for m in PATHS[c]:
            np.testing.assert_array_equal(found[f"{c}_0"][1][m], golden.phi[m])


def test_who_missed_a_round_gets_what_it_lacks_and_brings_what_it_trained(make_world: Any) -> None:
    """In the second trained round b is missing: a steps x and c steps y alone. What b trained is in the next one."""
    world = make_world(a=1, b=1, c=1)
    data = {c: rows(n, (3 if c == "b" else 4) * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    world.absent = {2: {"b"}}
    met = threading.Barrier(3)
    found = world.run(**{f"{c}_0": worker(data[c], met=met) for c in PATHS})
    golden = Golden(PATHS, dict.fromkeys("abc", 1.0))
    golden.steps(data, range(EVERY))
    golden.meet("abc")
    golden.steps(data, range(EVERY, 2 * EVERY))
    moved = {m: golden.phi[m] - golden.theta["b", m] for m in PATHS["b"]}
    golden.meet("ac")
    golden.steps(data, range(2 * EVERY, 3 * EVERY), only="ac")
    golden.meet("abc", {"b": moved})
    late = {**data, "b": {m: np.concatenate([part[:EVERY], part]) for m, part in data["b"].items()}}
    golden.steps(late, range(3 * EVERY, 4 * EVERY))
    golden.meet("abc")
    for c, names in PATHS.items():
        for m in names:
            np.testing.assert_array_equal(found[f"{c}_0"][1][m], golden.phi[m], err_msg=f"{m} of {c}")
        assert found[f"{c}_0"][2].digest() == found["a_0"][2].digest()


def test_who_was_away_when_a_module_was_begun_anew_brings_back_what_it_knows(make_world: Any, killed: Any) -> None:
    """Regression: a and b hold x; a dies, b misses the round, and d begins x anew in it. All that b knew was lost."""
    world = make_world(a=1, b=1, c=1)
    data = {c: rows(n, {"a": 3, "b": 3, "c": 4}[c] * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    data["d"] = rows(7, EVERY, "x")
    world.absent = {3: {"b"}}
    world.faults["a/0", "outer_round", 3] = killed
    come = threading.Event()
    old = there_before(world, data, 2 * EVERY, come)

    def new(mesh: Any) -> Any:
        model = path("x", 50.0)
        inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
        with DiPaCo(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
            assert model["x"].p.detach().min() > 25.0, "nobody else was there to give it more"
            train(model, inner, data["d"], range(EVERY))
            return {m: policy.state.committed[f"{m}.p"].numpy().copy() for m in model}, policy.digest()

    threads = [world.start(f"{c}_0", old(c)) for c in PATHS]
    assert come.wait(DEADLINE)
    threads.append(world.start("d_0", new))
    for thread in threads:
        thread.join(30)
    assert not world.errors, world.errors
    (b, b_digest), (d, d_digest) = world.results["b_0"], world.results["d_0"]
    np.testing.assert_array_equal(b["x"], d["x"])
    assert np.abs(b["x"] - POOL["x"]).max() < 25.0, "it goes on from what b held of it"
    assert b_digest == d_digest == world.results["c_0"][1]


@pytest.mark.parametrize("operation", ["all_gather", "all_reduce", "broadcast", "outer_round", "vote", "committed"])
@pytest.mark.parametrize("count", range(0, 8, 2))
def test_holders_of_a_module_hold_the_same_whoever_dies_when(
    make_world: Any, killed: Any, operation: str, count: int
) -> None:
    data = {c: rows(n, 4 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    world = make_world(a=1, b=2, c=1)
    world.faults["b/0", operation, count] = killed
    names = ("a_0", "b_0", "b_1", "c_0")
    found = world.run(**{name: worker(data[name[0]]) for name in names})
    for m, (one, other) in {"x": ("a_0", "b_1"), "y": ("b_1", "c_0")}.items():
        np.testing.assert_array_equal(found[one][1][m], found[other][1][m])
    assert len({found[name][2].digest() for name in ("a_0", "b_1", "c_0")}) == 1


def test_an_heir_without_the_result_does_not_bring_it_twice(make_world: Any, killed: Any) -> None:
    """The leader falls silent in its cluster, has the round committed, and dies: its training is in x of a and y of c.

    The heir begins its next phase where it began the last one, and what it moves from there is in the next round.
    """
    data = {c: rows(n, 2 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    world = make_world(a=1, b=2, c=1)
    world.faults["b/0", "broadcast", 8] = lambda: LocalGroupError("silent")
    world.faults["b/0", "committed", 1] = killed
    found = world.run(
        a_0=worker(data["a"], 2.0), b_0=worker(data["b"]), b_1=worker(data["b"]), c_0=worker(data["c"], 2.0)
    )
    verdicts = [fields["verdict"] for n, kind, fields in world.events if (n, kind) == ("b/1", "outer")]
    assert verdicts == ["COMMIT", "COMMIT", "ADOPT", "COMMIT"]
    golden = Golden(PATHS, {"a": 2.0, "b": 2.0, "c": 2.0})  # b has two workers, until one dies
    golden.steps(data, range(EVERY))
    golden.meet("abc")
    golden.theta.update({("b", m): POOL[m].copy() for m in PATHS["b"]})
    golden.steps(data, range(EVERY, 2 * EVERY))
    golden.weights = {"a": 2.0, "b": 1.0, "c": 2.0}
    golden.meet("abc", {"b": {m: POOL[m] - golden.theta["b", m] for m in PATHS["b"]}})
    for m, names in {"x": ("a_0", "b_1"), "y": ("b_1", "c_0")}.items():
        for name in names:
            np.testing.assert_array_equal(found[name][1][m], golden.phi[m], err_msg=f"{m} of {name}")


def test_a_module_of_one_cluster_needs_no_room_once_nobody_can_hold_more() -> None:
    """It begins in round 3 of a mesh; whoever held it before knows two rounds of it at most."""
    weights = alone("v")
    state, (held,) = weights.state, weights._holdings.card.modules
    me = Participant(ClusterId(""), PeerId("0" * 32), 1, 1.0, b"")
    rooms = []
    state.counters["round"] = 2  # as it is adopted
    for version in range(2, 7):
        weights.capture(1.0)
        rooms.append(len(weights.average) - weights.elements(0))
        note = msgpack.encode({NAME: weights._holdings.note()})
        weights.finish([msgspec.structs.replace(me, note=note)])
        weights.commit(version + 1)
    assert rooms == [held.state, held.state, 0, 0, 0]
    assert [m.rounds for m in weights._holdings.card.modules] == [5]


def test_who_joins_a_cluster_says_what_its_mates_say() -> None:
    one, other = alone("v"), alone("v")
    card = Card(False, (replace(one._holdings.card.modules[0], rounds=9, young=True),))
    one._holdings.card = card
    other.take_over(one.carried(captured=False))
    assert other._holdings.card == card
    assert len(other.average) == other.elements(0) + card.modules[0].state


@pytest.mark.parametrize("without", ["", "a"])
def test_a_pool_goes_on_from_its_clusters_own_files(make_world: Any, tmp_path: Path, without: str) -> None:
    """Regression: who had no file, and was the first by its name, had others begin the modules that it shares anew."""
    data = {c: rows(n, 4 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}

    def body(cluster: str, steps: range, load: bool, founds: bool) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model = path(PATHS[cluster])
            inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
            policy = DiPaCo(mesh, model, inner, nesterov, sync_every=EVERY)
            if load:
                policy.load(tmp_path / cluster)
            if not founds:
                with mesh.world.changed:
                    assert mesh.world.changed.wait_for(lambda: mesh.world.version, DEADLINE)
            with policy:
                train(model, inner, data[cluster], steps)
                policy.save(tmp_path / cluster)
                return {m: t.numpy() for m, t in policy.global_parameters().items()}

        return run

    def run(steps: range, load: bool = False) -> Any:
        loads = set(PATHS) - set(without) if load else set()
        bodies = {f"{c}_0": body(c, steps, c in loads, not load or c in loads) for c in PATHS}
        return make_world(a=1, b=1, c=1).run(**bodies)

    run(range(2 * EVERY))
    halves, whole = run(range(2 * EVERY, 4 * EVERY), load=True), run(range(4 * EVERY))
    for name, parameters in whole.items():
        for m, values in parameters.items():
            alike = np.array_equal(halves[name][m], values)
            assert alike is (m != "v.p" or not without), f"{m} of {name}: what nobody else holds is lost without a file"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fragments": 2}, "no fragments"),
        ({"agenda": []}, "no agenda"),
        ({"modules": ["v", "nowhere"]}, "'nowhere' names nothing"),
        ({"modules": ["v", "w.wei"]}, "'w.wei' names nothing"),
        ({"modules": ["v", "eight"]}, "'eight' names nothing"),
        ({"modules": []}, r"modules \[\]"),
        ({"model": 3}, "model must be a .*, not 3"),
        ({"modules": 3}, "modules 3"),
        ({"modules": "vw"}, "modules 'vw'"),
        ({"modules": [3]}, r"modules \[3\]"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"model": (model := path("vw")), "inner": torch.optim.SGD(model.parameters()), **options}
    with pytest.raises(ConfigError, match=message):
        DiPaCo(None, **given)  # type: ignore[arg-type]


def test_tensors_that_no_module_names_are_one_more() -> None:
    model = path("vwx")
    policy = DiPaCo(None, model, torch.optim.SGD(model.parameters()), modules=["v"])  # type: ignore[arg-type]
    card = policy._weights._holdings.card  # type: ignore[attr-defined]
    assert sorted((m.elements, m.state) for m in card.modules) == [(3, 6), (6, 12)]


def test_children_that_hold_nothing_of_their_own_are_no_modules() -> None:
    """An activation has no parameters, a head may have those of the embedding, and a layer may be frozen."""
    model = torch.nn.ModuleDict(
        {"embed": torch.nn.Linear(3, 3, bias=False), "act": torch.nn.ReLU(), "head": torch.nn.Linear(3, 3, bias=False)}
        | {"norm": torch.nn.BatchNorm1d(3, affine=False), "frozen": torch.nn.Linear(2, 2).requires_grad_(False)}
    )
    model["head"].weight = model["embed"].weight
    policy = DiPaCo(None, model, torch.optim.SGD(model.parameters()))  # type: ignore[arg-type]
    assert sorted(m.elements for m in policy._weights._holdings.card.modules) == [6, 9]  # type: ignore[attr-defined]


def test_too_many_modules_for_a_note_are_refused_by_size(make_world: Any) -> None:
    model = torch.nn.ParameterDict({f"p{n}": torch.nn.Parameter(torch.zeros(1)) for n in range(50)})
    names: Sequence[str] = list(model)

    def body(mesh: Any) -> None:
        with (
            pytest.raises(ConfigError, match="notes of"),
            DiPaCo(mesh, model, torch.optim.SGD(model.parameters()), modules=names),
        ):
            pass

    make_world(a=1).run(a_0=body)
