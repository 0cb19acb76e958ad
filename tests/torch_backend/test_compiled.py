"""Compiled programs that call a group: torch.compile must not look into it, as it cannot look into Gloo."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.torch_backend import ranks


def summed(x: Tensor) -> Tensor:
    x = 2 * x
    dist.all_reduce(x)
    return x + 1


def copied(x: Tensor) -> Tensor:
    x = 2 * x
    work = dist.broadcast(x, 0, async_op=True)
    assert work is not None
    work.wait()
    return x + 1


def passed_on(x: Tensor) -> Tensor:
    rank, size, got = dist.get_rank(), dist.get_world_size(), torch.zeros_like(x)
    sending = dist.isend(2 * x, (rank + 1) % size)
    assert sending is not None
    dist.recv(got, (rank - 1) % size)
    sending.wait()
    return got + 1


def swapped(x: Tensor) -> Tensor:
    rank, size, got = dist.get_rank(), dist.get_world_size(), torch.zeros_like(x)
    ops = [dist.P2POp(dist.isend, 2 * x, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got + 1


def together(x: Tensor) -> Tensor:
    x = 2 * x
    dist.barrier()
    return x + 1


def trained(compiled: bool) -> list[float]:
    """Twice and more: after the first step DDP has the ranks agree on an order of its buckets."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    replica: Any = DistributedDataParallel(network)
    step = torch.compile(replica, backend="aot_eager") if compiled else replica
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1)
    for number in range(3):
        generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
        step(torch.randn(6, 4, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [x for parameter in network.parameters() for x in parameter.flatten().tolist()]


def compare() -> dict[str, Any]:
    """In each process: what differs if it is compiled."""
    import ictp2p.torch_backend  # noqa: F401

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("ictp2p", init_method=os.environ["STORE"], rank=rank, world_size=size)
    mine, differing = torch.arange(4.0) * (rank + 1), {}
    for act in (summed, copied, passed_on, swapped, together):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found, wanted = torch.compile(act, backend="aot_eager")(mine), act(mine)
        if not torch.equal(found, wanted):
            differing[act.__name__] = (found.tolist(), wanted.tolist())
        if looked := [text for each in told if "getpid" in (text := str(each.message))]:  # a look into ours
            differing[act.__name__] = looked
    found, wanted = torch.tensor(trained(compiled=True)), torch.tensor(trained(compiled=False))
    if not torch.allclose(found, wanted, rtol=1e-4, atol=1e-5):
        differing["trained"] = (found.tolist(), wanted.tolist())
    dist.destroy_process_group()
    return differing


@pytest.mark.real
@pytest.mark.timeout(150)
def test_a_program_may_be_compiled_around_its_collectives(tmp_path: Path) -> None:
    """Regression: torch tried to compile the group's own methods, and failed."""
    assert ranks.run(compare, 2, tmp_path) == [{}, {}]
