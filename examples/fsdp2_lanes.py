"""Two clusters that shard one model with FSDP2, and average it shard by shard: rank i with the rank i of the other.

    torchrun --nproc-per-node 4 examples/fsdp2_lanes.py

The first two ranks are cluster oslo, the other two tokyo; on two sites each would be a torchrun of its own. The ranks
with the same shard form a mesh, and each sends its own shard over its own connections, so no rank ever holds the whole
model. `within` names the ranks of one cluster, which wait for each other at the boundary of a round.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ictp2p

CLUSTERS = ("oslo", "tokyo")
STEPS, EVERY = 60, 10

ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks % len(CLUSTERS):
    sys.exit(f"{ranks} ranks cannot be shared among {len(CLUSTERS)} clusters: give torchrun an even --nproc-per-node")
dist.init_process_group("gloo")
rank, shards = dist.get_rank(), ranks // len(CLUSTERS)
grid = init_device_mesh("cpu", (len(CLUSTERS), shards), mesh_dim_names=("cluster", "shard"))
cluster, shard = CLUSTERS[rank // shards], rank % shards

torch.manual_seed(0)
truth = torch.randn(8, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
model = fully_shard(model, mesh=grid["shard"])
inner = torch.optim.SGD(model.parameters(), lr=0.05)
token = ictp2p.shard_token("0" * 32, shard)  # a mesh for each shard
founds = cluster == CLUSTERS[0]


def train(policy: ictp2p.DiLoCo) -> tuple[dict[int, str], float]:
    """The usual loop; gives the digest of what was agreed in each round, and the last loss."""
    agreed, last = {}, 0.0
    chance = torch.Generator().manual_seed(rank)  # every worker sees other data
    for _ in range(STEPS):
        batch = torch.randn(32, 8, generator=chance)
        loss = (model(batch) - batch @ truth).square().mean()
        loss.backward()
        inner.step()
        inner.zero_grad()
        agreed[policy.version], last = policy.digest(), loss.item()
    return agreed, last


found: list[str] = [""] * ranks
with contextlib.ExitStack() as stack:
    if founds:
        peer = stack.enter_context(ictp2p.Peer(ictp2p.Config.local(cluster=cluster, token=token)))
    dist.all_gather_object(found, str(peer.address) if founds else "")
    if not founds:
        peer = stack.enter_context(ictp2p.Peer(ictp2p.Config.local(cluster=cluster, token=token, join=(found[shard],))))
    with ictp2p.DiLoCo(peer, model, inner, sync_every=EVERY, within=grid["shard"]) as policy:
        dist.barrier()
        agreed, last = train(policy)
        dist.barrier()

everybody: list[dict[int, str]] = [{} for _ in range(ranks)]
dist.all_gather_object(everybody, agreed)
other = everybody[(rank + shards) % len(everybody)]
common = agreed.keys() & other.keys()
same = len(common) > 1 and all(agreed[version] == other[version] for version in common)

print(f"rank {rank}  {cluster} shard {shard}  loss {last:.5f}  the same as the other cluster: {same}", flush=True)
dist.destroy_process_group()
