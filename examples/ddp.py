"""DistributedDataParallel over ictp2p: the two lines that differ from Gloo's are the import and the backend's name.

torchrun --nproc-per-node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ictp2p.torch_backend  # noqa: F401  (makes the backend known)

dist.init_process_group("ictp2p")
rank = dist.get_rank()
torch.manual_seed(0)
truth, model = torch.randn(8, 1), DistributedDataParallel(torch.nn.Linear(8, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
chance = torch.Generator().manual_seed(rank)  # every worker sees other data
for step in range(60):
    batch = torch.randn(32, 8, generator=chance)
    loss = (model(batch) - batch @ truth).square().mean()
    loss.backward()  # averages the gradients meanwhile
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 19:
        print(f"rank {rank}  step {step}  loss {loss.item():.5f}", flush=True)
weights = next(model.parameters()).detach().flatten()
print(f"rank {rank}  weights {' '.join(f'{weight:.9f}' for weight in weights)}", flush=True)
dist.destroy_process_group()
