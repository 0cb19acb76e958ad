"""DiPaCo whose clusters come, go, and miss rounds, against a trace in plain NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import LocalGroupError
from ictp2p.sync.policies.dipaco import DiPaCo
from tests.sync.policies.paths import (
    DEADLINE,
    EVERY,
    PATHS,
    POOL,
    RATE,
    Array,
    F,
    Golden,
    nesterov,
    path,
    rows,
    train,
    worker,
)


def joined_by_d(
    world: Any,
    data: Mapping[str, Mapping[str, Array]],
    steps: int,
    entered: Callable[[torch.nn.ModuleDict], None],
) -> None:
    """Have three clusters train, and d with them once each has trained so many steps, all to the end of their data.

    Gives `entered` the modules of d, which begin at other values, before their first step.
    """
    there, come = threading.Barrier(3), threading.Event()

    def body(cluster: str) -> Callable[[Any], Any]:
        new, mine = cluster == "d", data[cluster]

        def run(mesh: Any) -> Any:
            model = path("".join(mine), 50.0 if new else 0.0)
            inner = torch.optim.SGD(model.parameters(), lr=float(RATE))
            with DiPaCo(mesh, model, inner, nesterov, sync_every=EVERY) as policy:
                if new:
                    entered(model)
                else:
                    train(model, inner, mine, range(steps))
                    there.wait(DEADLINE)
                    world.clusters.setdefault("d", type(world.clusters["a"])(1))
                    come.set()
                train(model, inner, mine, range(0 if new else steps, len(next(iter(mine.values())))))
                return {m: policy.state.committed[f"{m}.p"].numpy().copy() for m in model}, policy.digest()

        return run

    threads = [world.start(f"{c}_0", body(c)) for c in PATHS]
    assert come.wait(DEADLINE)
    threads.append(world.start("d_0", body("d")))
    for thread in threads:
        thread.join(30)
    assert not world.errors, world.errors


def test_a_newcomer_gets_its_modules_from_who_holds_them_before_it_trains(make_world: Any) -> None:
    """The newcomer has x, which a and b hold, z, which c holds, and w, which nobody does: that begins as it is."""
    world = make_world(a=1, b=1, c=1)
    data = {c: rows(n, 3 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    data["d"] = rows(7, EVERY, "wxz")
    begun: dict[str, Array] = {}

    def entered(model: Any) -> None:
        begun.update({m: part.p.detach().numpy().copy() for m, part in model.items()})

    joined_by_d(world, data, EVERY, entered)
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

    def entered(model: Any) -> None:
        assert model["x"].p.detach().min() > 25.0, "nobody else was there to give it more"

    joined_by_d(world, data, 2 * EVERY, entered)
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
