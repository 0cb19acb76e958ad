"""Every sample once per epoch: counted in a model whose parameters are the tally, under every kind of churn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from ictp2p.errors import ConfigError, LocalProtocolError, NoQuorum, RoundMissed
from ictp2p.sync.mesh import RoundResult
from ictp2p.sync.pace import AdaptivePace
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.samples.sampler import ElasticSampler
from tests.tally import Count, Tally, Watched

SIZE, BATCH = 50, 2


def train(
    epochs: int = 2,
    prefetch: int = 0,
    size: int = SIZE,
    sync_every: int = 3,
    *,
    accumulate: int = 1,
    steps: int = 10**6,
    path: Path | None = None,
    load: Path | None = None,
    skips: Callable[[], bool] | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """A training until all epochs have ended, or for so many steps; gives the tally, the policy and the sampler.

    With `prefetch` it draws ahead; with `accumulate` it adds up the gradients of so many batches before a step; with
    `path` and `load` it ends and begins with a checkpoint; `skips` says whether a step is to be left out.
    """

    def body(mesh: Any) -> Any:
        sampler = Watched(size, BATCH, accumulate=accumulate, seed=3, epochs=epochs, keep=3)
        model = Tally(size)
        inner = Count(model, sampler)
        policy = LocalSGD(mesh, model, inner, sync_every, sampler=sampler, **options)
        if load is not None:
            policy.load(load)
        with policy:
            while not sampler.finished and policy.progress.step < steps:
                drawn = ahead(sampler, prefetch)
                for number, indices in enumerate(drawn if skips is None else sampler.over(drawn), 1):
                    model(torch.tensor(indices)).backward()
                    if number % accumulate:
                        continue
                    if skips is None or not skips():
                        inner.step()
                    inner.zero_grad()
                    if policy.progress.step >= steps:
                        break
            if path is not None:
                policy.save(path, local=True)
        return policy.global_parameters()["tally"], policy, sampler

    return body


def ahead(sampler: ElasticSampler, count: int) -> Any:
    """As a loader with workers draws: so many batches before they are used."""
    held: list[list[int]] = []
    for indices in sampler:
        held.append(indices)
        if len(held) > count:
            yield held.pop(0)
    yield from held


def check(found: Mapping[str, Any], epochs: int = 2, size: int = SIZE) -> None:
    assert found
    for tally, _, _ in found.values():
        assert tally.tolist() == [float(epochs)] * size
    assert len({policy.digest() for _, policy, _ in found.values()}) == 1


def world_of(make_world: Any, **sizes: int) -> Any:
    world = make_world(**sizes)
    world.sums = True
    return world


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("sizes", [{"a": 1}, {"a": 3}, {"a": 2, "b": 1}, {"a": 1, "b": 1, "c": 2}])
def test_every_sample_once_per_epoch(make_world: Any, sizes: dict[str, int], prefetch: int) -> None:
    workers = [f"{name}_{i}" for name, count in sizes.items() for i in range(count)]
    check(world_of(make_world, **sizes).run(**{worker: train(prefetch=prefetch) for worker in workers}))


@pytest.mark.parametrize("size", [48, 50])
def test_gradients_that_are_accumulated_count_as_a_whole(make_world: Any, killed: Any, size: int) -> None:
    """Two or three batches a step, drawn ahead, while workers die; of 50 samples the last step has two."""
    world = world_of(make_world, a=3, b=1)
    world.faults["a/1", "all_reduce", 3] = killed
    world.aborts, options = {1}, {"accumulate": 2 if size == 50 else 3, "size": size}
    found = world.run(
        a_0=train(**options), a_1=train(**options), a_2=train(prefetch=4, **options), b_0=train(**options)
    )
    check(found, size=size)
    steps = -(-size // (BATCH * options["accumulate"]))
    assert len(ElasticSampler(size, BATCH, accumulate=options["accumulate"])) == steps * options["accumulate"]


def test_the_work_is_shared(make_world: Any) -> None:
    """Nobody waits for more than the tail: two equal clusters take about half the steps of one."""
    steps = []
    for sizes in ({"a": 1}, {"a": 1, "b": 1}):
        found = world_of(make_world, **sizes).run(**{f"{n}_0": train(1, size=120, sync_every=4) for n in sizes})
        steps.append(max(policy.progress.step for _, policy, _ in found.values()))
    assert steps[0] == 60
    assert steps[1] <= 34


@pytest.mark.parametrize("operation", ["all_reduce", "all_reduce done", "all_gather", "broadcast"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("victim", ["a/0", "a/1"])
def test_a_worker_dies(make_world: Any, killed: Any, victim: str, operation: str, count: int) -> None:
    world = world_of(make_world, a=3, b=1)
    world.faults[victim, operation, count] = killed
    check(world.run(a_0=train(), a_1=train(prefetch=2), a_2=train(), b_0=train()))


@pytest.mark.parametrize("operation", ["outer_round", "vote", "committed"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_leader_dies_in_a_round(make_world: Any, killed: Any, operation: str, count: int) -> None:
    world = world_of(make_world, a=2, b=2)
    world.faults["a/0", operation, count] = killed
    check(world.run(a_0=train(), a_1=train(), b_0=train(), b_1=train()))


@pytest.mark.parametrize("operation", ["outer_round", "vote", "committed", "all_gather"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_cluster_dies(make_world: Any, killed: Any, operation: str, count: int) -> None:
    world = world_of(make_world, a=1, b=1)
    world.faults["a/0", operation, count] = killed
    check(world.run(a_0=train(), b_0=train()))


def test_rounds_that_come_to_nothing(make_world: Any) -> None:
    world = world_of(make_world, a=1, b=2)
    world.aborts, world.restarts = {0, 2, 3, 5}, {1, 4}
    check(world.run(a_0=train(), b_0=train(), b_1=train(prefetch=1)))


@pytest.mark.parametrize("away", [range(1, 3), range(2, 9), range(3, 12)])
def test_a_cluster_comes_back_after_others_have_trained_its_samples(make_world: Any, away: range) -> None:
    world = world_of(make_world, a=1, b=2)
    world.absent = {number: {"b"} for number in away}
    check(world.run(a_0=train(), b_0=train(), b_1=train()))


def test_a_cluster_joins_a_running_epoch(make_world: Any) -> None:
    world = world_of(make_world, a=1, b=1)
    threads = [world.start("a_0", train()), world.start("b_0", train()), world.start("c_0", train(), after=3)]
    finish(world, threads)
    assert "c" in world.contributors[world.version]
    check(world.results)


def test_a_cluster_starts_again(make_world: Any, killed: Any) -> None:
    world = world_of(make_world, a=1, b=1)
    world.faults["b/0", "vote", 2] = killed
    finish(world, [world.start("a_0", train()), world.start("b_0", train()), world.start("b_1", train(), after=4)])
    check(world.results)


@pytest.mark.parametrize("seed", range(12))
def test_random_churn(make_world: Any, killed: Any, seed: int) -> None:
    rng = random.Random(seed)
    sizes = {name: rng.randint(1, 3) for name in "abc"[: rng.randint(2, 3)]}
    world = world_of(make_world, **sizes)
    everyone = [f"{name}_{i}" for name, count in sizes.items() for i in range(count)]
    for worker in rng.sample(everyone[1:], rng.randint(0, len(everyone) - 1)):
        operation = rng.choice(["all_reduce", "all_gather done", "all_reduce done", "outer_round", "vote", "committed"])
        world.faults[worker.replace("_", "/"), operation, rng.randint(0, 8)] = killed
    world.aborts = {number for number in range(30) if rng.random() < 0.15}
    world.restarts = {number for number in range(30) if rng.random() < 0.15}
    for name in list(sizes)[1:]:
        start = rng.randint(1, 8)
        for number in range(start, start + rng.randint(0, 6)):
            world.absent.setdefault(number, set()).add(name)
    threads = [world.start(worker, train(prefetch=rng.randint(0, 2))) for worker in everyone]
    threads += [world.start(f"{name}_8", train(), after=rng.randint(1, 9)) for name in rng.sample("bcde", 2)]
    finish(world, threads)
    check(world.results)


class Lies:
    """A mesh that says of every contribution that is not simply committed the opposite of what became of it."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)

    def outer_round(self, request: Any) -> Any:
        try:
            result = self.mesh.outer_round(request)
        except RoundMissed:
            return RoundResult(self.decided_state(), mine=True)
        if result.state.version > request.base.version + 1 or self.mesh.world.rounds == 2:
            raise RoundMissed("a lie")
        return result


def test_the_agreed_state_knows_better_than_the_mesh_what_was_contributed(make_world: Any) -> None:
    world = world_of(make_world, a=1, b=1)
    world.absent = {1: {"b"}, 4: {"b"}, 5: {"b"}}
    check(world.run(a_0=train(), b_0=lambda mesh: train()(Lies(mesh))))


class InDoubt(Lies):
    """Loses the outcome of one round on its way here."""

    def outer_round(self, request: Any) -> Any:
        result = self.mesh.outer_round(request)
        if result.state.version == 4 and request.base.version == 3:
            raise NoQuorum("nobody answers")
        return result


def test_what_was_trained_after_a_round_in_doubt_is_trained_again(make_world: Any) -> None:
    world = world_of(make_world, a=1, b=1)
    world.absent = {3: {"b"}}
    check(world.run(a_0=train(), b_0=lambda mesh: train(without_quorum="continue")(InDoubt(mesh))))


def test_a_resumed_training_goes_on_within_the_epoch(make_world: Any, tmp_path: Path) -> None:
    """Also in a cluster that was not in it, to which what the other one trained apart is of no use."""
    path = tmp_path / "at.safetensors"
    world_of(make_world, a=1).run(a_0=train(steps=16, path=path))
    check(world_of(make_world, a=2).run(a_0=train(load=path), a_1=train(load=path)))
    check(world_of(make_world, a=1, b=1).run(a_0=train(load=path), b_0=train(load=path)))


def test_a_resumed_training_needs_no_cluster_that_was_in_it(make_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "at.safetensors"

    def saving(mesh: Any) -> Any:
        found = train(steps=16)(mesh)
        found[1].save(path)
        return found

    world_of(make_world, a=1, b=1).run(a_0=saving, b_0=train(steps=16))
    check(world_of(make_world, x=1).run(x_0=train(load=path)))


class Counted(ElasticSampler):
    """Counts the blocks of the steps of its cluster."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.steps: Counter[int] = Counter()

    def stepped(self, marks: Sequence[int], left: Sequence[int] = (), *, taken: bool = True) -> None:
        super().stepped(marks, left, taken=taken)
        self.steps.update(marks)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (StreamingDiLoCo, {"sync_every": 4, "fragments": [["0"], ["1"]], "overlap": 1, "mix": 0.5}),
        (EagerDiLoCo, {"sync_every": 3}),
        (LocalSGD, {"sync_every": AdaptivePace(3, least=1)}),
        (SparseDiLoCo, {"sync_every": 3}),
    ],
)
def test_every_policy_takes_each_block_in_one_step(make_world: Any, kind: Any, options: dict[str, Any]) -> None:
    def body(mesh: Any) -> Any:
        sampler = Counted(40, 4, epochs=3)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.arange(80.0).view(40, 2)
        loader = DataLoader(torch.utils.data.TensorDataset(data), batch_sampler=sampler)
        with kind(mesh, model, inner, sampler=sampler, **options):
            while not sampler.finished:
                for (batch,) in loader:
                    model(batch).square().mean().backward()
                    inner.step()
                    inner.zero_grad()
        return sampler

    found = make_world(a=2, b=1).run(a_0=body, a_1=body, b_0=body)
    assert found["a_0"].steps == found["a_1"].steps
    assert found["a_0"].steps + found["b_0"].steps == Counter(dict.fromkeys(range(10), 3))


def test_whom_nothing_is_left_for_momentum_does_not_move(make_world: Any) -> None:
    """A round of nobody but onlookers leaves the parameters where they are."""

    def body(mesh: Any) -> Any:
        sampler = ElasticSampler(4, 4, epochs=1)
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        before = model.weight.detach().clone()
        with EagerDiLoCo(mesh, model, inner, sync_every=1, sampler=sampler) as policy:
            return before, policy.global_parameters()["weight"], policy.version, sampler._trained.leased.tolist()

    before, after, version, leased = make_world(a=1).run(a_0=body)["a_0"]
    assert torch.equal(before, after)
    assert (version, leased) == (2, [0])


def test_a_step_takes_a_batch(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        sampler = ElasticSampler(4, 2)
        assert len(sampler) == 2
        model = Tally(4)
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        with LocalSGD(mesh, model, inner, sampler=sampler), pytest.raises(LocalProtocolError, match="accumulate = 1"):
            inner.step()

    make_world(a=1).run(a_0=body)
    with pytest.raises(LocalProtocolError, match="give the sampler to a policy"):
        next(iter(ElasticSampler(4, 2)))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"size": 0}, "size 0"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"accumulate": 0}, "accumulate 0"),
        ({"size": 17, "accumulate": 4}, "size 17 leaves less than a sample for each of the 4 last batches"),
        ({"epochs": 0}, "epochs 0"),
        ({"keep": 0}, "keep 0"),
        ({"size": "x"}, "size 'x'"),
        ({"size": 4.5}, "size 4.5"),
        ({"size": 2**53 + 1}, "size 9007199254740993"),
        ({"batch_size": None}, "batch_size None"),
        ({"accumulate": "x"}, "accumulate 'x'"),
        ({"epochs": 1.5}, "epochs 1.5"),
        ({"keep": 1.5}, "keep 1.5"),
        ({"seed": None}, "seed None"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ElasticSampler(**{"size": 4, "batch_size": 2, **settings})


def finish(world: Any, threads: list[Any]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a worker hangs"
    for error in world.errors.values():
        raise error
