"""NoLoCo against a trace in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.samples.sampler import ElasticSampler
from tests.sync.policies.noloco_trace import EVERY, MU, RATE, Array, Golden, Model, drawn, rows, train, worker


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 2**31), st.sets(st.integers(0, 4)))
@example([1, 1], 0, set())
@example([2, 1, 1, 4], 0, {1, 2})
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
def test_every_step_is_that_of_the_paper_to_the_bit(
    make_world: Any, weights: list[int], seed: int, aborts: set[int]
) -> None:
    """Whoever meets whom, whatever each weighs, and whichever rounds come to nothing."""
    names, rounds = "abcde"[: len(weights)], 5
    data = [rows(seed + i, rounds * EVERY) for i in range(len(weights))]
    bases: list[bytes] = []
    bodies = {f"{n}_0": worker(d, bases if n == "a" else None, w) for n, d, w in zip(names, data, weights, strict=True)}
    world = make_world(**dict.fromkeys(names, 1))
    world.aborts = aborts
    found = world.run(**bodies)
    golden, met = Golden(weights), iter(bases)
    for number in range(rounds):
        golden.steps([d[number * EVERY : (number + 1) * EVERY] for d in data])
        if number not in aborts:
            golden.meet(drawn(next(met), names))
    assert len(bases) == rounds - len(aborts)
    for i, name in enumerate(names):
        trace, phi, _, policy = found[f"{name}_0"]
        np.testing.assert_array_equal(np.array(trace), np.array(golden.traces[i]))
        np.testing.assert_array_equal(phi, golden.phi[i])
        np.testing.assert_array_equal(policy.state.committed["outer momentum_buffer of w"].numpy(), golden.momentum[i])
        assert policy.digest() == found["a_0"][3].digest(), "all agree on what was done"


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


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_followers_take_the_step_that_their_leader_took(make_world: Any, overlap: int) -> None:
    """Under cover of training it has been taken before they are handed the average that it is made of."""
    data = [rows(i, 4 * EVERY + overlap) for i in range(3)]
    bodies = {n: worker(d, overlap=overlap) for n, d in zip(("a_0", "a_1", "b_0"), data, strict=True)}
    found = make_world(a=2, b=1).run(**bodies)
    leader, follower = found["a_0"][3], found["a_1"][3]
    assert leader.version == follower.version == 5
    assert leader.digest() == follower.digest()
    np.testing.assert_array_equal(np.array(found["a_1"][0]), np.array(found["a_0"][0]))
    for name, tensor in leader.state.committed.items():
        np.testing.assert_array_equal(follower.state.committed[name].numpy(), tensor.numpy())


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
    golden.steps([d[EVERY:] for d in data])
    golden.meet(drawn(bases[1], "abc"))
    for i, name in enumerate("abc"):
        trace, phi, _, policy = found[f"{name}_0"]
        np.testing.assert_array_equal(np.array(trace), np.array(golden.traces[i]))
        np.testing.assert_array_equal(phi, golden.phi[i])
        assert policy.version == 3


def test_the_name_says_who_was_in_a_round(make_world: Any) -> None:
    """The same number of rounds, of the same clusters with other weights: nobody may take the one for the other."""
    data = [rows(i, EVERY) for i in range(2)]
    one = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    other = make_world(a=1, b=1).run(a_0=worker(data[0], weight=2.0), b_0=worker(data[1]))
    again = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    assert one["a_0"][3].digest() == again["b_0"][3].digest() != other["a_0"][3].digest()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pull": -0.5}, "pull -0.5"),
        ({"pull": 3.0}, "pull 3.0"),
        ({"pull": None}, "pull None"),
        ({"lr": float("nan")}, "learning rate nan"),
        ({"lr": float("inf")}, "learning rate inf"),
        ({"lr": -1.0}, "learning rate -1.0"),
        ({"lr": "x"}, "learning rate 'x'"),
        ({"momentum": float("nan")}, "momentum nan"),
        ({"momentum": "x"}, "momentum 'x'"),
        ({"momentum": -0.5}, "momentum -0.5"),
        ({"sync_every": True}, "sync_every True"),
        ({"pull": float("nan")}, "pull nan"),
        ({"sync_every": 2.5}, "sync_every 2.5"),
        ({"codec": "int8"}, "no codec: its rounds carry parameters"),
        ({"sampler": ElasticSampler(8, 2)}, "no sampler: it needs a state that is the same everywhere"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=message):
        NoLoCo(None, model, torch.optim.SGD(model.parameters()), **options)  # type: ignore[arg-type]
