"""A peer that drains ends the loop of its program, whatever that loops over, and loses it no sample."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import DataLoader

import ictp2p
from ictp2p.errors import (
    ConfigError,
    PeerClosed,
)
from tests.trainers import Worker, config, finish, start


def test_draining_ends_the_loop_after_the_next_commit(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        worker = Worker(a, versions=10**6, rows=1)
        running = start(pool, worker)
        assert worker.ready.wait(20)
        a.drain()
        finish(running)
        assert a.state == "DRAINING"
        assert a.status()["phase"] == "DRAINING/D_COMMIT"
        assert a.stats()["illegal_transitions"] == 0
    assert a.state == "EXIT"


def test_draining_ends_the_loop_of_a_program_that_only_calls_after_its_next_call() -> None:
    """Regression: a call moves no version of the state, and the loop never ended."""
    with ictp2p.Peer(config("a")) as a:
        a.sync_state({"w": torch.ones(3)})
        done = []
        for batch in a.steps(range(9)):
            if batch == 2:
                a.drain()
            a.all_reduce([torch.ones(3)])
            done.append(batch)
        assert done == [0, 1, 2]
        assert a.status()["phase"] == "DRAINING/D_COMMIT"


def test_a_batch_of_a_loader_without_a_step_is_given_again() -> None:
    """And one that may give batches out of order is refused before it gives any."""
    size, batch = 40, 2
    tally = torch.nn.Embedding(size, 1)
    torch.nn.init.zeros_(tally.weight)
    inner = torch.optim.SGD(tally.parameters(), lr=1.0)
    sampler = ictp2p.ElasticSampler(size, batch, epochs=2)
    loader = DataLoader(torch.arange(size), batch_sampler=sampler)  # type: ignore[arg-type]
    number = 0
    with ictp2p.Peer(config("a")) as a, ictp2p.LocalSGD(a, tally, inner, sync_every=4, sampler=sampler) as policy:
        while not sampler.finished:
            for indices in a.steps(loader):
                number += 1
                if number in (3, 4, 11):
                    continue
                (-tally(indices)).sum().backward()
                inner.step()
                inner.zero_grad()
        assert policy.global_parameters()["weight"].flatten().tolist() == [2.0] * size
        disordered = DataLoader(torch.arange(size), batch_sampler=sampler, num_workers=2, in_order=False)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="in_order=False"):
            next(iter(a.steps(disordered)))
        for none in (5, None):
            with pytest.raises(ConfigError, match=f"loader {none} is not iterable"):
                next(a.steps(none))  # type: ignore[arg-type]


def test_draining_ends_the_loop_around_the_epochs_of_a_sampler() -> None:
    """Regression: the loop of the documentation went round for ever, at full speed, and the worker never left."""
    net = torch.nn.Linear(1, 1)
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    sampler = ictp2p.ElasticSampler(1000, 2)
    loader = DataLoader(torch.ones(1000, 1), batch_sampler=sampler)  # type: ignore[arg-type]
    turns = 0
    with ictp2p.Peer(config("a")) as a, ictp2p.DiLoCo(a, net, inner, sync_every=2, sampler=sampler) as policy:
        while not sampler.finished:
            turns += 1
            assert turns < 3, "the loop does not end"
            for batch in a.steps(loader):
                net(batch).sum().backward()
                inner.step()
                inner.zero_grad()
                if policy.version == 3:
                    assert not a.drained
                    a.drain()
        assert (turns, policy.version, a.drained, sampler.ended) == (1, 4, True, False)
    assert a.state == "EXIT"


def test_who_counts_epochs_off_after_a_drain_comes_to_the_end_and_who_has_no_end_is_refused() -> None:
    with ictp2p.Peer(config("a")) as a:
        a.drain()  # no state is shared: there is no round to wait for
        assert a.drained
        for _ in range(100):
            assert list(a.steps(range(9))) == []
        with pytest.raises(PeerClosed, match=r"peer\.drained"):
            assert not any(batch for _ in range(100_000) for batch in a.steps([1]))
