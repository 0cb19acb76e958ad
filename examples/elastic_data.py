"""Every sample once per epoch, by however many clusters there are, whatever joins, leaves or dies.

In as many terminals as you like, at any time, with the same ICTP2P_TOKEN in the environment:

python examples/elastic_data.py oslo   --listen 127.0.0.1:7001
python examples/elastic_data.py tokyo  --join   127.0.0.1:7001

The model is a tally: its gradient marks the samples of a batch, so how far each has moved says how often it was seen.
"""

import os
import sys

import torch
from torch.utils.data import DataLoader

import ictp2p

SIZE, BATCH, EPOCHS = 4000, 4, 2

cluster, flag, address = sys.argv[1:]
where = {"listen": address} if flag == "--listen" else {"join": (address,)}
torch.set_num_threads(1)

model = torch.nn.Embedding(SIZE, 1)
torch.nn.init.zeros_(model.weight)
inner = torch.optim.SGD(model.parameters(), lr=1.0)
sampler = ictp2p.ElasticSampler(SIZE, BATCH, epochs=EPOCHS)
loader = DataLoader(torch.arange(SIZE), batch_sampler=sampler)
trained = 0

config = ictp2p.Config.local(cluster=cluster, token=os.environ["ICTP2P_TOKEN"], **where)
with ictp2p.Peer(config) as peer, ictp2p.LocalSGD(peer, model, inner, sync_every=20, sampler=sampler) as policy:
    while not sampler.finished:
        print(f"{cluster} begins epoch {sampler.epoch}", flush=True)
        for batch in peer.steps(loader):
            (-model(batch)).sum().backward()
            inner.step()
            inner.zero_grad()
            trained += 1
    tally = policy.global_parameters()["weight"]
    print(f"{cluster} took {trained} steps; {int((tally > 0).sum())} of {SIZE} samples were seen", flush=True)
