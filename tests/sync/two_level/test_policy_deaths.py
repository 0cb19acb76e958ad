"""Workers die or come in the middle of a step or a round, and nothing is lost or counted twice."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.errors import ConfigError, LocalGroupError
from ictp2p.sync.policies.diloco import DiLoCo
from tests.sync.diloco_trace import Golden, Model, rows, same, together, train, worker


def test_a_step_that_failed_everywhere_is_retried_with_the_same_gradients(make_world: Any) -> None:
    data = [rows(i, 8) for i in range(2)]
    world = make_world(a=2)
    for name in ("a/0", "a/1"):
        world.faults[name, "all_reduce done", 2] = lambda: LocalGroupError("the sum broke")
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    same(found["a_0"][0], expected)
    same(found["a_1"][0], expected)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_step_that_succeeded_for_some_counts_once(make_world: Any, victim: int) -> None:
    """The victim is healed past the step its gradient is in, and so contributes nothing to the next one."""
    data = [rows(i, 7) for i in range(2)]
    world = make_world(a=2)
    world.faults[f"a/{victim}", "all_reduce done", 2] = lambda: LocalGroupError("the answer was lost")
    found = world.run(a_0=worker(data[0], 100), a_1=worker(data[1], 100))
    healthy = 1 - victim
    steps = [[d[i] for d in data] for i in range(3)] + [[data[healthy][3]]]
    steps += [[data[healthy][i + 1], data[victim][i]] for i in range(3, 6)]
    same(found[f"a_{healthy}"][0], Golden().run(steps, 100))


def test_a_learning_rate_of_numpy_survives_a_death(make_world: Any, killed: Any) -> None:
    def body(mesh: Any) -> int:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: np.exp(-step / 100))
        with DiLoCo(mesh, model, inner, None, 4, carry=[schedule]) as policy:
            while policy.version < 4:
                model.w.grad = torch.ones(3)
                inner.step()
                schedule.step()
            assert type(inner.param_groups[0]["lr"]) is np.float64
            return policy.version

    world = make_world(a=3)
    world.faults["a/1", "all_reduce", 3] = killed
    assert world.run(a_0=body, a_1=body, a_2=body) == {"a_0": 4, "a_2": 4}


def test_what_no_newcomer_could_be_given_is_found_before_training(make_world: Any) -> None:
    class Held:
        def state_dict(self) -> dict[str, Any]:
            return {"random": object()}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            raise AssertionError

    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = DiLoCo(mesh, model, inner, carry=[Held()])
        with pytest.raises(ConfigError, match=r"state\['carry'\]\[0\]\['random'\] is a object"), policy:
            pass

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize("dead", ["a/0", "a/1", "a/2"])
@pytest.mark.parametrize("where", ["all_gather", "all_gather done", "all_reduce", "all_reduce done"])
def test_any_worker_may_die_in_an_inner_step(make_world: Any, killed: Any, dead: str, where: str) -> None:
    world = make_world(a=3)
    world.faults[dead, where, 3] = killed
    found = world.run(**{f"a_{i}": worker(rows(i, 9)) for i in range(3)})
    left = [found[name.replace("/", "_")] for name in ("a/0", "a/1", "a/2") if name != dead]
    assert len(left) == 2
    assert {policy.progress.step for _, policy in left} <= {9, 10}
    assert len({policy.state.digest for _, policy in left}) == 1


LEADER_DIES = [("vote", 0), ("committed", 0), ("broadcast", 3), ("broadcast", 5), ("broadcast", 8)]


@pytest.mark.parametrize(("where", "count"), LEADER_DIES)
def test_the_leader_dies_in_an_outer_round_and_nothing_is_lost_or_doubled(
    make_world: Any, killed: Any, where: str, count: int
) -> None:
    """Whoever leads next repeats the round from the same pseudo-gradient, or takes the result it has part in."""
    data = [rows(i, 4) for i in range(2)]
    world = make_world(a=2)
    world.faults["a/0", where, count] = killed
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    trace, policy = found["a_1"]
    if "a/0" in world.dead:
        same(trace, expected)
        assert policy.progress == type(policy.progress)(version=2, step=4, brought=policy.progress.brought, scheduled=4)
        assert policy.state.digest == world.digest


@pytest.mark.parametrize("where", ["vote", "committed"])
def test_a_leader_deposed_in_an_outer_round_neither_forgets_what_it_voted_for_nor_adds_to_it(
    make_world: Any, where: str
) -> None:
    data = [rows(i, 8) for i in range(2)]
    world = make_world(a=2)
    world.faults["a/0", where, 0] = lambda: LocalGroupError("another peer leads cluster a now")
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    for name in ("a_0", "a_1"):
        trace, policy = found[name]
        same(trace, expected)
        assert policy.state.digest == world.digest
        assert (policy.version, policy.progress.step) == (3, 8)


def test_a_follower_that_dies_in_an_outer_round_does_not_hold_up_the_mesh(make_world: Any, killed: Any) -> None:
    data = [rows(i, 8) for i in range(3)]
    world = make_world(a=3)
    world.faults["a/2", "broadcast", 6] = killed
    found = world.run(**{f"a_{i}": worker(data[i]) for i in range(3)})
    assert world.dead == {"a/2"}
    assert world.counts["a/0", "outer_round"] == 2, "the round in which it died went on to its commit"
    steps = [*together([d[:4] for d in data]), *together([d[4:] for d in data[:2]])]
    expected = Golden().run(steps)
    np.testing.assert_allclose(found["a_0"][0][-1], expected[-1], rtol=1e-5)
    np.testing.assert_array_equal(found["a_0"][0][-1], found["a_1"][0][-1])


def test_a_result_that_holds_our_part_but_was_not_seen_replaces_local_progress(make_world: Any, killed: Any) -> None:
    """The follower loses the stream, the leader dies after the commit: what was learnt is in the state, once."""
    data = [rows(i, 4) for i in range(3)]
    world = make_world(a=2, b=1)
    world.faults["a/1", "broadcast done", 5] = lambda: LocalGroupError("the stream was lost")
    world.faults["a/0", "committed", 0] = killed
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]), b_0=worker(data[2]))
    assert world.dead == {"a/0"}
    (trace, policy), (other, _) = found["a_1"], found["b_0"]
    same([trace[-1]], [other[-1]])
    assert (policy.version, policy.progress.weights) == (2, [0.0])


def test_a_newcomer_to_a_cluster_becomes_like_the_others(make_world: Any) -> None:
    world, data = make_world(a=1), [rows(i, 9) for i in range(2)]
    started, joined = threading.Event(), threading.Event()

    def old(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.AdamW(model.parameters(), lr=0.125)
        schedule = torch.optim.lr_scheduler.StepLR(inner, 3, 0.5)
        with DiLoCo(mesh, model, inner, None, 4, carry=[schedule]) as policy:
            for row in data[0][:6]:
                train(model, inner, [row])
                schedule.step()
            started.set()
            assert joined.wait(20)
            return train(model, inner, data[0][6:]), policy, inner.state_dict(), schedule.state_dict()

    def new(mesh: Any) -> Any:
        model = Model()
        with torch.no_grad():
            model.w.fill_(77.0)
        inner = torch.optim.AdamW(model.parameters(), lr=0.125)
        schedule = torch.optim.lr_scheduler.StepLR(inner, 3, 0.5)
        wants = mesh.roster_ready
        mesh.roster_ready = lambda *given: (wants(*given), joined.set())
        with DiLoCo(mesh, model, inner, None, 4, carry=[schedule]) as policy:
            assert policy.progress.step == 6
            assert policy.progress.since == 2
            return train(model, inner, data[1][6:]), policy, inner.state_dict(), schedule.state_dict()

    first = world.start("a_0", old)
    assert started.wait(20)
    second = world.start("a_1", new)
    first.join(30)
    second.join(30)
    assert not world.errors, world.errors
    (one, policy, inner, schedule), (other, twin, inner_2, schedule_2) = world.results["a_0"], world.results["a_1"]
    same(one, other)
    assert policy.state.digest == twin.state.digest
    assert torch.equal(inner["state"][0]["exp_avg"], inner_2["state"][0]["exp_avg"])
    assert schedule == schedule_2
