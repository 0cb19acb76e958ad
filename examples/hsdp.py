"""Hybrid sharding (HSDP), one dimension of the mesh over ictp2p: shards inside a cluster, replicas between clusters.

torchrun --nproc-per-node 4 examples/hsdp.py

The ranks of one row (`dp_shard`) hold one copy of the model between them, over Gloo here and NCCL on GPUs; the rows
(`dp_replicate`) average their gradients over ictp2p's sealed connections, which a wide-area link can carry.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ictp2p.torch_backend  # noqa: F401  (makes the backend known)

ranks, clusters = int(os.environ.get("WORLD_SIZE", "1")), 2
if ranks % clusters:
    sys.exit(f"{ranks} ranks cannot be shared among {clusters} clusters: give torchrun an even --nproc-per-node")
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh(
    "cpu",
    (clusters, ranks // clusters),
    mesh_dim_names=("dp_replicate", "dp_shard"),
    backend_override={"dp_replicate": "ictp2p"},
)
torch.manual_seed(0)
truth = torch.randn(8, 1)
model = fully_shard(torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)), mesh=mesh)
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
backends = {name: dist.get_backend(mesh.get_group(name)) for name in mesh.mesh_dim_names}
weights = model[2].weight.full_tensor().detach().flatten()[:4]
print(f"rank {rank}  {backends}  weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
dist.destroy_process_group()
