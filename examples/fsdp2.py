"""Fully sharded data parallel (FSDP2) over ictp2p: every rank holds a part of each layer, gathered when it is needed.

torchrun --nproc-per-node 2 examples/fsdp2.py

Its state is saved with torch.distributed.checkpoint and loaded again, over the same group.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ictp2p.torch_backend  # noqa: F401  (makes the backend known)

dist.init_process_group("ictp2p")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))


def sharded(seed: int) -> torch.nn.Module:
    """A model whose parameters lie in parts on all ranks."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


model = sharded(seed=0)
truth = torch.randn(8, 1, generator=torch.Generator().manual_seed(1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
chance = torch.Generator().manual_seed(rank)  # every worker sees other data
for step in range(60):
    batch = torch.randn(32, 8, generator=chance)
    loss = (model(batch) - batch @ truth).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 19:
        print(f"rank {rank}  step {step}  loss {loss.item():.5f}", flush=True)

other = sharded(seed=7)
loaded = {"model": other.state_dict()}
with tempfile.TemporaryDirectory() as mine:
    folder = [mine]
    dist.broadcast_object_list(folder, 0)  # all use the one of rank 0
    checkpoints.save({"model": model.state_dict()}, checkpoint_id=folder[0])
    checkpoints.load(loaded, checkpoint_id=folder[0])
    dist.barrier()  # it is removed when all have read it
other.load_state_dict(loaded["model"])
same = all(
    torch.equal(mine.full_tensor(), theirs.full_tensor())
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True)
)
print(f"rank {rank}  loaded what was saved: {same}", flush=True)
dist.destroy_process_group()
