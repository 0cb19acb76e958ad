"""Every sample once per epoch, by however many clusters there are, whatever joins, leaves or dies.

In as many terminals as you like, at any time before all epochs have ended (one takes a cluster a second or two), with
the same ICTP2P_TOKEN in the environment:

python examples/elastic_data.py oslo   --epochs 50 --listen 127.0.0.1:7001
python examples/elastic_data.py tokyo  --epochs 50 --join   127.0.0.1:7001

The model is a tally: its gradient marks the samples of a batch, so how far each has moved says how often it was seen.
"""

import argparse
import os
import signal
import sys

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import torch
from torch.utils.data import DataLoader

import ictp2p
from ictp2p.errors import IctError

SIZE, BATCH = 4000, 4


def main() -> None:
    """Train until all epochs have ended for the whole mesh."""
    parser = argparse.ArgumentParser(description="See every sample once per epoch, together with other clusters.")
    parser.add_argument("cluster", help="name of this worker's cluster")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 lets the system choose")
    parser.add_argument("--join", action="append", default=[], help="host:port of any peer; none founds a mesh")
    parser.add_argument("--epochs", type=int, default=2, help="the same in all terminals")
    options = parser.parse_args()
    if not (token := os.environ.get("ICTP2P_TOKEN")):
        parser.error("give the mesh's token in ICTP2P_TOKEN; `ictp2p token` makes one")

    torch.set_num_threads(1)
    model = torch.nn.Embedding(SIZE, 1)
    torch.nn.init.zeros_(model.weight)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    sampler = ictp2p.ElasticSampler(SIZE, BATCH, epochs=options.epochs)
    loader = DataLoader(torch.arange(SIZE), batch_sampler=sampler)
    trained = 0

    config = ictp2p.Config.local(cluster=options.cluster, token=token, listen=options.listen, join=options.join)
    with ictp2p.Peer(config) as peer, ictp2p.LocalSGD(peer, model, inner, sync_every=20, sampler=sampler) as policy:
        while not sampler.finished:
            print(f"{peer.cluster} begins epoch {sampler.epoch}", flush=True)
            for batch in peer.steps(loader):
                (-model(batch)).sum().backward()
                inner.step()
                inner.zero_grad()
                trained += 1
        tally = policy.global_parameters()["weight"]
        print(f"{peer.cluster} took {trained} steps; {int((tally > 0).sum())} of {SIZE} samples were seen", flush=True)


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except IctError as error:  # each says in one line what is wrong, and with which value
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
