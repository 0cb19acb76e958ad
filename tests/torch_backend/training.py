"""What stands on process groups stands on this one: DDP, FSDP2, HSDP meshes, functional collectives, checkpoints."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoints
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(6, 16, generator=torch.Generator().manual_seed(100 * step + rank))


def train(network: nn.Module, mine: list[int], share: float = 1.0) -> list[torch.Tensor]:
    """Train on the batches of some ranks; the parameters, whole."""
    inner = torch.optim.AdamW(network.parameters(), lr=0.01)
    for step in range(STEPS):
        for rank in mine:
            (network(batch(step, rank)).square().mean() * share).backward()
        inner.step()
        inner.zero_grad()
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in network.parameters()]
    return [p.detach().clone() for p in whole]


def close(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def same_everywhere(tensors: list[torch.Tensor]) -> bool:
    flat = torch.cat([t.view(-1) for t in tensors])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    return all(torch.equal(flat, other) for other in others)


def everything(place: str) -> dict[str, Any]:
    """In each of four processes."""
    import ictp2p.torch_backend  # noqa: F401

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("ictp2p", init_method=os.environ["STORE"], rank=rank, world_size=size)
    found: dict[str, Any] = {"backend": dist.get_backend()}
    alone = train(model(), list(range(size)), 1 / size)

    ddp = train(DistributedDataParallel(model(), bucket_cap_mb=0.001), [rank])  # several buckets in flight
    found["ddp"] = close(ddp, alone) and same_everywhere(ddp)

    found["hook"] = hooked(rank, size, alone)

    wrapped = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))  # frees what it gathers
    train(wrapped, [rank])
    with FullyShardedDataParallel.summon_full_params(wrapped):
        whole = [p.detach().clone() for p in wrapped.parameters()]
    found["fsdp1"] = close(whole, alone) and same_everywhere(whole)

    mesh = init_device_mesh("cpu", (size,))
    sharded = model()
    for layer in sharded:
        fully_shard(layer, mesh=mesh) if isinstance(layer, nn.Linear) else None
    whole = train(fully_shard(sharded, mesh=mesh), [rank])
    found["fsdp2"] = close(whole, alone) and same_everywhere(whole)

    grid = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    hybrid = fully_shard(model(), mesh=grid)
    whole = train(hybrid, [rank])
    found["hsdp"] = close(whole, alone) and same_everywhere(whole)

    state = {"model": hybrid.state_dict()}
    checkpoints.save(state, checkpoint_id=place)
    fresh = fully_shard(model(), mesh=grid)
    loaded = {"model": fresh.state_dict()}
    checkpoints.load(loaded, checkpoint_id=place)
    fresh.load_state_dict(loaded["model"])
    again = [p.full_tensor().detach() for p in fresh.parameters()]
    found["dcp"] = all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))

    found["functional"] = functional_collectives(rank, size)
    dist.destroy_process_group()
    found["beside_gloo"] = replicas_over_ours(rank, size, alone)
    return found


def hooked(rank: int, size: int, alone: list[torch.Tensor]) -> bool:
    """DDP whose gradients a hook averages, in a callback of each collective's future."""
    lagging = []

    def hook(_: object, bucket: dist.GradBucket) -> Any:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        future = work.get_future()
        after = future.then(lambda done: done.value()[0].div_(size))
        work.wait()
        lagging.append(not (future.done() and after.done()))
        return after

    hook.__annotations__.clear()  # DDP holds them against types, and these are words
    network = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    network.register_comm_hook(None, hook)
    return close(train(network, [rank]), alone) and not any(lagging)


def replicas_over_ours(rank: int, size: int, alone: list[torch.Tensor]) -> bool:
    """One dimension of a mesh: shards over Gloo, replicas over ours, in a process that has ended its groups once."""
    dist.init_process_group("gloo", init_method=os.environ["STORE"] + "2", rank=rank, world_size=size)
    names = ("dp_replicate", "dp_shard")
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=names, backend_override={"dp_replicate": "ictp2p"})
    backends = [dist.get_backend(mesh.get_group(name)) for name in names]
    whole = train(fully_shard(model(), mesh=mesh), [rank])
    dist.destroy_process_group()
    return backends == ["ictp2p", "gloo"] and close(whole, alone)


def functional_collectives(rank: int, size: int) -> bool:
    group = dist.group.WORLD
    total = functional.all_reduce(torch.full((5,), float(rank)), "sum", group)
    gathered = functional.all_gather_tensor(torch.full((2,), rank), 0, group)
    part = functional.reduce_scatter_tensor(torch.arange(float(2 * size)), "sum", 0, group)
    swapped = functional.all_to_all_single(torch.full((size,), rank), None, None, group)
    sums = functional.all_reduce_coalesced([torch.ones(3), torch.ones(2)], "sum", group)
    copied = functional.broadcast(torch.full((4,), rank), 1, group)
    return bool(
        (total == sum(range(size))).all()
        and gathered.tolist() == [n for n in range(size) for _ in range(2)]
        and part.tolist() == [size * (2 * rank), size * (2 * rank + 1)]
        and swapped.tolist() == list(range(size))
        and all((t == size).all() for t in sums)
        and (copied == 1).all()
    )
