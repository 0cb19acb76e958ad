"""Batches that no step is taken with: given again, left out, and never counted in the name of another."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ictp2p.errors import ConfigError, LocalProtocolError
from ictp2p.sync.cluster.averaging import NOTHING
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.samples.hand import Hand
from ictp2p.sync.samples.sampler import ElasticSampler
from tests.sync.samples.test_sampler import ahead, check, train, world_of

SIZE, BATCH, EPOCHS = 60, 2, 2


@given(st.integers(1, 3), st.lists(st.booleans(), max_size=30), st.integers(0, 5))
def test_the_block_in_hand_is_the_one_that_was_given_last(batches: int, steps: list[bool], lead: int) -> None:
    """Whatever a loader has drawn ahead, and whichever blocks no step was taken with."""
    hand = Hand(batches)
    passed = []
    for number in range(lead):
        hand.draw((0, number))
    for number, step in enumerate(steps):
        hand.draw((0, number + lead))
        passed += [block for _ in range(batches) if (block := hand.gave()) is not None]
        assert hand.first() == (0, number)
        if step:
            assert hand.take() == (0, number)
    assert passed == [(0, number) for number, step in enumerate(steps[:-1]) if not step]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_that_are_counted_twice_are_refused(make_world: Any, prefetch: int) -> None:
    """Regression: each second one passed for skipped, and steps counted in the name of others, without a word."""

    def body(mesh: Any) -> int:
        sampler = ElasticSampler(SIZE, BATCH, epochs=1)
        model = torch.nn.Embedding(SIZE, 1)
        with LocalSGD(mesh, model, torch.optim.SGD(model.parameters(), lr=1.0), sampler=sampler):
            steps = (batch for batch in sampler.over(ahead(sampler, prefetch)))  # as peer.steps does
            with pytest.raises(ConfigError, match=r"counts its batches .* peer\.steps\(sampler\.over\(loader\)\)"):
                next(iter(sampler.over(steps)))
            batches = sampler.over(ahead(sampler, prefetch))
            assert sampler.over(batches) is batches
            return len(next(iter(sampler.over(batches))))

    assert make_world(a=1).run(a_0=body) == {"a_0": BATCH}


def test_batches_of_another_sampler_are_refused() -> None:
    """Regression: they were given back as they were, and this sampler was told of none."""
    one, other = ElasticSampler(SIZE, BATCH), ElasticSampler(SIZE, BATCH)
    for loader in (other.over(other), DataLoader(range(SIZE), batch_sampler=other)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="gives the batches of another sampler"):
            one.over(loader)


def sometimes(seed: int) -> Callable[[], bool]:
    rng = random.Random(seed)
    return lambda: rng.random() < 0.3


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("sizes", [{"a": 1}, {"a": 2, "b": 1}])
def test_every_sample_counts_once_whichever_steps_are_skipped(
    make_world: Any, sizes: dict[str, int], prefetch: int, accumulate: int
) -> None:
    workers = [f"{name}_{i}" for name, count in sizes.items() for i in range(count)]
    bodies = {
        worker: train(prefetch=prefetch, accumulate=accumulate, skips=sometimes(number))
        for number, worker in enumerate(workers)
    }
    check(world_of(make_world, **sizes).run(**bodies))


def test_every_sample_counts_once_whoever_dies_while_steps_are_skipped(make_world: Any, killed: Any) -> None:
    world = world_of(make_world, a=3, b=1)
    world.faults["a/1", "all_reduce", 3] = killed
    world.faults["a/0", "all_gather", 9] = killed
    world.aborts = {1}
    bodies = {name: train(skips=sometimes(n)) for n, name in enumerate(("a_0", "a_1", "a_2", "b_0"))}
    check(world.run(**bodies))


def scaled(*, fused: bool, overflows: Collection[int]) -> Callable[[Any], Any]:
    """A training with a loss scaler, that overflows with the batches of these numbers."""

    def body(mesh: Any) -> list[float]:
        sampler = ElasticSampler(SIZE, BATCH, epochs=EPOCHS)
        model = torch.nn.Embedding(SIZE, 1)
        torch.nn.init.zeros_(model.weight)
        inner = torch.optim.SGD(model.parameters(), lr=1.0, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=10**9)
        number = 0
        with LocalSGD(mesh, model, inner, sync_every=5, sampler=sampler) as policy:
            while not sampler.finished:
                for indices in sampler.over(sampler):
                    number += 1
                    loss = -model(torch.tensor(indices)).sum() * (float("inf") if number in overflows else 1.0)
                    scaler.scale(loss).backward()
                    scaler.step(inner)
                    scaler.update()
                    inner.zero_grad()
            return policy.global_parameters()["weight"].flatten().tolist()

    return body


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("overflows", [[3], [3, 4, 17, 30], range(1, 18)])
def test_a_batch_whose_gradients_overflow_is_trained_later(
    make_world: Any, fused: bool, overflows: Collection[int]
) -> None:
    """Regression: from there on samples were counted in the name of others, or with a fused optimizer not trained."""
    found = world_of(make_world, a=1).run(a_0=scaled(fused=fused, overflows=overflows))["a_0"]
    assert Counter(found) == {float(EPOCHS): SIZE}


def leaving_out(bad: Collection[int], how: str = "") -> Callable[[Any], Any]:
    """A training that takes no step with a batch that has one of these samples in it, or one that counts nothing."""

    def body(mesh: Any) -> Any:
        sampler = ElasticSampler(SIZE, BATCH, epochs=1)
        model = torch.nn.Embedding(SIZE, 1)
        torch.nn.init.zeros_(model.weight)
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        given: Counter[int] = Counter()
        lost, batches = set(), 0
        with LocalSGD(mesh, model, inner, sync_every=5, sampler=sampler) as policy:
            while not sampler.finished:
                for indices in sampler.over(ahead(sampler, 2)):
                    batches += 1
                    assert batches < 3000, "the epoch does not end"
                    if any(index in bad for index in indices):
                        lost |= set(indices)
                        given.update(indices if sampler.mark() != NOTHING else ())
                        if how == "step":
                            sampler.leave_out()
                        else:
                            sampler.skip() if how else None
                            continue
                    (-model(torch.tensor(indices))).sum().backward()
                    inner.step()
                    inner.zero_grad()
            return policy.global_parameters()["weight"].flatten(), lost, given

    return body


def told(world: Any) -> list[str]:
    return [str(fields["text"]) for _, kind, fields in world.events if kind == "warning"]


ALL_BUT_ONE = {*range(SIZE)}.difference(ElasticSampler(SIZE, BATCH)._indices(0, 17))


@pytest.mark.parametrize("how", ["no step", "step"])
@pytest.mark.parametrize("bad", [{7}, {0, 11, 12, 59}, ALL_BUT_ONE])
def test_a_batch_that_is_left_out_on_purpose_is_given_once(make_world: Any, bad: set[int], how: str) -> None:
    """Also where all but one are: a batch without weight is made of what can be trained, as soon as there is any."""
    world = world_of(make_world, a=1)
    tally, lost, given = world.run(a_0=leaving_out(bad, how))["a_0"]
    assert set(given.values()) == {1}
    assert lost >= bad
    assert tally.tolist() == [float(sample not in lost) for sample in range(SIZE)]
    assert told(world) == []


def test_a_batch_that_never_comes_to_a_step_does_not_keep_the_epoch_from_ending(make_world: Any) -> None:
    world = world_of(make_world, a=1)
    tally, lost, given = world.run(a_0=leaving_out({7}))["a_0"]
    assert set(given.values()) == {32}
    assert tally.tolist() == [float(sample not in lost) for sample in range(SIZE)]
    (text,) = told(world)
    assert "left out of epoch 0" in text
    assert all(str(sample) in text for sample in lost)


class Counted(ElasticSampler):
    """Counts how often its cluster trained each block."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counted = Counter[int]()

    def stepped(self, marks: Sequence[int], left: Sequence[int] = (), *, taken: bool = True) -> None:
        super().stepped(marks, left, taken=taken)
        self.counted.update(marks)


@pytest.mark.parametrize("steps", [False, True])
def test_what_one_worker_leaves_out_the_others_do_not_train(make_world: Any, steps: bool) -> None:
    def body(leaves: bool) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            sampler = Counted(SIZE, BATCH, epochs=1)
            model = torch.nn.Linear(1, 1)
            inner = torch.optim.SGD(model.parameters(), lr=0.0)
            left = 0
            with LocalSGD(mesh, model, inner, sync_every=5, sampler=sampler) as policy:
                for indices in sampler.over(sampler):
                    block = sampler.mark()
                    if leaves and block != NOTHING and left < 3:
                        left += 1
                        if steps:
                            sampler.leave_out()
                            inner.step()
                        else:
                            sampler.skip()
                        continue
                    model(torch.ones(len(indices), 1)).sum().backward()
                    inner.step()
                return sampler.counted, left, policy.digest()

        return run

    found = make_world(a=2, b=1).run(a_0=body(False), a_1=body(True), b_0=body(True))
    assert found["a_0"][0] == found["a_1"][0]
    counts = found["a_0"][0] + found["b_0"][0]
    assert set(counts.values()) == {1}
    assert sum(left for _, left, _ in found.values()) == SIZE // BATCH - len(counts) == 6
    assert len({digest for _, _, digest in found.values()}) == 1


def test_gradients_of_several_batches_in_a_step_of_which_nobody_was_told_are_warned_of(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        sampler = ElasticSampler(1000, 1, epochs=1)
        model = torch.nn.Linear(1, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.0)
        with LocalSGD(mesh, model, inner, sync_every=50, sampler=sampler):
            for number, _ in zip(range(200), sampler.over(sampler), strict=False):
                model(torch.ones(1, 1)).sum().backward()
                if number % 2:
                    inner.step()

    world = make_world(a=1)
    world.run(a_0=body)
    (text,) = told(world)
    assert "accumulate=" in text


def test_steps_that_were_skipped_where_nobody_saw_it_are_warned_of(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        sampler = ElasticSampler(SIZE, BATCH, epochs=2)
        model = torch.nn.Linear(1, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.0)
        number = 0
        with LocalSGD(mesh, model, inner, sync_every=5, sampler=sampler):
            while not sampler.finished:
                for _ in sampler:
                    number += 1
                    model(torch.ones(1, 1)).sum().backward()
                    if number != 3:
                        inner.step()

    world = make_world(a=1)
    world.run(a_0=body)
    (text,) = told(world)
    assert text.startswith("1 batches were drawn more than steps were taken")


def test_a_loader_that_gives_batches_out_of_order_is_refused() -> None:
    sampler = ElasticSampler(SIZE, BATCH)
    loader = DataLoader(range(SIZE), batch_sampler=sampler, num_workers=2, in_order=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="in_order=False"):
        sampler.over(loader)
    once = sampler.over(DataLoader(range(SIZE), batch_sampler=sampler))  # type: ignore[arg-type]
    assert sampler.over(once) is once, "or each batch would count twice"


def test_what_is_no_batch_of_the_sampler_is_refused() -> None:
    hand = Hand(2)
    hand.draw((0, 0))
    hand.gave()
    with pytest.raises(LocalProtocolError, match="after 1 batches of the sampler: it takes accumulate = 2"):
        hand.first()
    hand.gave()
    with pytest.raises(LocalProtocolError, match="gave more batches than the sampler drew"):
        hand.gave()
