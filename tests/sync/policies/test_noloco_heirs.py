"""NoLoCo through newcomers, deaths, missed rounds and restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import LocalGroupError, StateError
from ictp2p.sync.policies.noloco import NoLoCo
from tests.sync.policies.noloco_trace import (
    DEADLINE,
    EVERY,
    RATE,
    SETTINGS,
    Array,
    F,
    Golden,
    Model,
    rows,
    train,
    worker,
)


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
