"""Rounds that abort, are missed, or find no quorum."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import NoQuorum
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.policies.diloco import DiLoCo
from tests.sync.diloco_trace import START, F, Golden, Model, rows, same, together, train, worker


def test_an_aborted_round_leaves_everything_as_it_was_to_the_bit(make_world: Any) -> None:
    world, data = make_world(a=2), rows(0, 4)
    world.aborts = {0}

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.AdamW(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 5) as policy:
            train(model, inner, data)
            before = snapshot(policy)
            gradient = torch.tensor([1.0, 2.0, 3.0])
            twin = torch.nn.Parameter(model.w.detach().clone())
            other = torch.optim.AdamW([twin], lr=0.125)
            other.load_state_dict(copy.deepcopy(inner.state_dict()))
            model.w.grad, twin.grad = gradient.clone(), gradient.clone()
            inner.step()
            other.step()
            assert torch.equal(model.w, twin), "only the inner step changed the parameters"
            assert snapshot(policy) == before
            return policy.progress

    found = world.run(a_0=body, a_1=body)
    assert world.rounds == 1
    assert [e for _, e, f in world.events if f.get("verdict") == "ABANDON"] == ["outer", "outer"]
    assert found["a_0"].weights == found["a_1"].weights == [10.0], "what was contributed still counts in the next round"


def snapshot(policy: DiLoCo) -> tuple[bytes, int, bytes]:
    return policy.state.digest, policy.state.version, bytes(policy.state.memory(committed=True))


def test_an_aborted_round_is_made_up_for_by_the_next(make_world: Any) -> None:
    world, data = make_world(a=1), rows(0, 8)
    world.aborts = {0}
    found = world.run(a_0=worker(data))
    golden = Golden()
    for row in data:
        golden.step(row)
    np.testing.assert_array_equal(found["a_0"][0][-1], golden.sync())


def test_what_missed_a_round_is_carried_over_and_brought_to_the_very_next_once(make_world: Any) -> None:
    """Theta <- G_new + (theta - G_old): what this cluster learnt is in neither G, and enters the next one."""
    world, data = make_world(a=1, b=2), [rows(i, 8) for i in range(3)]
    world.absent = {0: {"b"}}
    found = world.run(a_0=worker(data[0]), b_0=worker(data[1][:4]), b_1=worker(data[2][:4]))
    one, other = Golden(), Golden()
    one.run([[row] for row in data[0][:4]])
    for parts in together([data[1][:4], data[2][:4]]):
        other.step(*parts)
    other.w = (other.w - START) + one.base
    for row in data[0][4:]:
        one.step(row)
    delta = (F(4.0) * (one.base - one.w) + F(8.0) * (one.base - other.w)) / F(12.0)
    buffer = one.buffer * F(0.9) + delta
    expected = one.base - (buffer * F(0.9) + delta) * F(0.7)
    for name in ("a_0", "b_0", "b_1"):
        trace, policy = found[name]
        same([trace[-1]], [expected])
        assert (policy.version, policy.progress.weights, policy.progress.since) == (3, [0.0], 0)


def test_a_second_attempt_forgets_the_first(make_world: Any) -> None:
    world, data = make_world(a=2), [rows(i, 4) for i in range(2)]
    world.restarts = {0}
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    same(found["a_1"][0], expected)
    same(found["a_0"][0], expected)
    assert world.clusters["a"].roster.number <= 2, "no follower had to be healed"


def test_leader_and_followers_step_while_the_average_arrives(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits until all of it is there, and then computes the next state."""
    monkeypatch.setattr(Weights, "_step", lambda *_: pytest.fail("stepped at once"))
    data = [rows(i, 4) for i in range(3)]
    found = make_world(a=2, b=1).run(a_0=worker(data[0]), a_1=worker(data[1]), b_0=worker(data[2]))
    assert [policy.version for _, policy in found.values()] == [2, 2, 2]


class Failing:
    """A mesh whose rounds find no quorum, some times."""

    def __init__(self, mesh: Any, times: int) -> None:
        self.mesh, self.times = mesh, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)

    def outer_round(self, request: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise NoQuorum("1 of 3 voters")
        return self.mesh.outer_round(request)


@pytest.mark.parametrize(("mode", "rounds"), [("wait", 2), ("continue", 1)])
def test_without_a_quorum_the_policy_does_what_it_was_told(make_world: Any, mode: str, rounds: int) -> None:
    world, data = make_world(a=1), rows(0, 8)
    world.run(a_0=lambda mesh: worker(data, without_quorum=mode)(Failing(mesh, 1)))
    assert world.rounds == rounds


def test_without_a_quorum_stop_stops_everybody_with_the_reason(make_world: Any) -> None:
    world, caught = make_world(a=2), {}

    def body(name: str) -> Callable[[Any], None]:
        def run(mesh: Any) -> None:
            with pytest.raises(NoQuorum, match="1 of 3 voters") as info:
                worker(rows(0, 4), without_quorum="stop")(Failing(mesh, 9))
            caught[name] = str(info.value)

        return run

    world.run(a_0=body("a_0"), a_1=body("a_1"))
    assert caught["a_1"].startswith("the leader of this cluster stopped")


class Interrupted(Exception):
    """What a program catches, and goes on."""


def test_a_gradient_of_before_an_interrupted_round_does_not_count_after_it(make_world: Any) -> None:
    """Regression: the round landed before the next step, whose gradient was of what the parameters had been."""
    data = rows(0, 8)

    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            train(model, inner, data[:3])
            model.w.grad = torch.from_numpy(data[3]) + model.w.detach()
            with pytest.raises(Interrupted):
                inner.step()
            before, version = model.w.detach().clone(), policy.version
            train(model, inner, data[4:5])
            assert not torch.equal(model.w, before)
            assert torch.equal(model.w, policy.global_parameters()["w"])
            assert policy.version == version + 1
            train(model, inner, data[5:])
            return model.w.detach().numpy().copy()

    world, golden = make_world(a=1), Golden()
    world.faults["a/0", "outer_round", 0] = Interrupted
    for row in data[:4]:
        golden.step(row)
    golden.sync()
    for row in data[5:]:
        golden.step(row)
    np.testing.assert_array_equal(world.run(a_0=body)["a_0"], golden.sync())
