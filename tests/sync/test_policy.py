from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ictp2p.errors import ConfigError, LocalGroupError, NoQuorum
from ictp2p.sync.diloco import DiLoCo

Array = NDArray[np.float32]
F = np.float32
START = np.array([1.0, -2.0, 0.5], F)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(START.copy()))


def rows(worker: int, steps: int) -> Array:
    return np.random.default_rng(worker).integers(-3, 4, (steps, 3)).astype(F)


def train(model: Model, inner: torch.optim.Optimizer, data: Sequence[Array] | Array) -> list[Array]:
    trace = []
    for row in data:
        model.w.grad = torch.from_numpy(np.asarray(row)) + model.w.detach()
        inner.step()
        inner.zero_grad()
        trace.append(model.w.detach().numpy().copy())
    return trace


def worker(data: Array, every: int = 4, lr: float = 0.125, **options: Any) -> Callable[[Any], Any]:
    def body(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=lr)
        with DiLoCo(mesh, model, inner, None, every, **options) as policy:
            return train(model, inner, data), policy

    return body


class Golden:
    """One DiLoCo cluster alone, in NumPy; the caller says which rows are averaged at each step."""

    def __init__(self, lr: float = 0.125) -> None:
        self.w, self.base, self.buffer, self.lr = START.copy(), START.copy(), np.zeros(3, F), F(lr)

    def step(self, *parts: Array) -> Array:
        gradients = [part + self.w for part in parts]
        share = F(1.0 / len(parts))
        self.w = self.w - self.lr * sum(share * g for g in gradients)
        return self.w

    def sync(self) -> Array:
        delta = self.base - self.w
        self.buffer = self.buffer * F(0.9) + delta
        self.base = self.base - (self.buffer * F(0.9) + delta) * F(0.7)
        self.w = self.base.copy()
        return self.w

    def run(self, steps: Sequence[Sequence[Array]], every: int = 4) -> list[Array]:
        trace = []
        for number, parts in enumerate(steps, 1):
            self.step(*parts)
            if number % every == 0:
                self.sync()
            trace.append(self.w.copy())
        return trace


def same(found: Sequence[Array], expected: Sequence[Array]) -> None:
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True), 1):
        np.testing.assert_array_equal(a, b, err_msg=f"after inner step {number}")


def together(data: Sequence[Array]) -> list[list[Array]]:
    return [list(parts) for parts in zip(*data, strict=True)]


def test_a_cluster_averages_gradients_at_every_step(make_world: Any) -> None:
    data = [rows(i, 8) for i in range(2)]
    found = make_world(a=2).run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    same(found["a_0"][0], expected)
    same(found["a_1"][0], expected)
    assert found["a_0"][1].state.digest == found["a_1"][1].state.digest


def test_a_worker_of_weight_zero_looks_on(make_world: Any) -> None:
    data = rows(0, 4)

    def idle(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            policy.weight = 0.0
            for _ in data:
                model.w.grad = torch.full((3,), float("nan"))
                inner.step()
            return model.w.detach().numpy().copy()

    found = make_world(a=2).run(a_0=worker(data), a_1=idle)
    np.testing.assert_array_equal(found["a_1"], Golden().run([[r] for r in data])[-1])


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
        assert policy.progress == type(policy.progress)(version=2, step=4, brought=policy.progress.brought)
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


def test_a_second_attempt_forgets_the_first(make_world: Any) -> None:
    world, data = make_world(a=2), [rows(i, 4) for i in range(2)]
    world.restarts = {0}
    found = world.run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    same(found["a_1"][0], expected)
    same(found["a_0"][0], expected)
    assert world.clusters["a"].roster.number <= 2, "no follower had to be healed"


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


def test_gradients_may_be_computed_inside_of_the_step(make_world: Any) -> None:
    data = [rows(i, 9) for i in range(2)]

    def body(mine: Array, how: str) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model, trace = Model(), []
            inner = torch.optim.SGD(model.parameters(), lr=0.125)
            with DiLoCo(mesh, model, inner, None, 4):
                for row in mine:

                    def closure(row: Array = row) -> float:
                        model.w.grad = torch.from_numpy(row) + model.w.detach()
                        return float(row[0])

                    loss = inner.step(closure) if how == "positional" else inner.step(closure=closure)
                    assert loss == row[0]
                    trace.append(model.w.detach().numpy().copy())
            return trace

        return run

    found = make_world(a=2).run(a_0=body(data[0], "positional"), a_1=body(data[1], "by name"))
    wanted = make_world(a=2).run(a_0=worker(data[0]), a_1=worker(data[1]))
    same(found["a_0"], wanted["a_0"][0])
    same(found["a_1"], wanted["a_1"][0])


def test_gradients_computed_several_times_in_a_step_are_refused(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.LBFGS(model.parameters())

        def closure() -> torch.Tensor:
            inner.zero_grad()
            loss = model.w.square().sum()
            loss.backward()
            return loss

        with (
            DiLoCo(mesh, model, inner, torch.optim.SGD(model.parameters(), lr=1.0), 4),
            pytest.raises(ConfigError, match="closure"),
        ):
            inner.step(closure)

    make_world(a=1).run(a_0=body)


def test_the_hooks_go_when_the_policy_does(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            assert repr(policy) == "<DiLoCo step 0 version 1, 0 since the last round>"
        train(model, inner, rows(0, 9))
        assert policy.progress.step == 0

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"sync_every": 0}, "sync_every 0"), ({"without_quorum": "pray"}, "'pray'"), ({"codec": "topk2bit"}, "feedback")],
)
def test_a_value_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    model = Model()
    mesh: Any = None
    with pytest.raises(ConfigError, match=named):
        DiLoCo(mesh, model, torch.optim.SGD(model.parameters(), lr=1.0), **options)


def test_half_precision_and_buffers_stay_identical_everywhere(make_world: Any) -> None:
    def body(seed: int) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            generator = torch.Generator().manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(torch.bfloat16)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            with DiLoCo(mesh, model, inner, None, 2) as policy:
                for _ in range(4):
                    model(torch.randn(8, 4, generator=generator).to(torch.bfloat16)).square().mean().backward()
                    inner.step()
                    inner.zero_grad()
                return policy.state.digest, [t.detach().float() for t in model.state_dict().values()]

        return run

    found = make_world(a=2, b=1).run(a_0=body(0), a_1=body(1), b_0=body(2))
    assert len({digest for digest, _ in found.values()}) == 1
    for tensors in zip(*(tensors for _, tensors in found.values()), strict=True):
        assert all(torch.equal(tensors[0], other) for other in tensors)
