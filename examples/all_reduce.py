"""The mean of a tensor over everybody.

In two terminals, with the same ICTP2P_TOKEN in the environment:

python examples/all_reduce.py oslo  3.0 --listen 127.0.0.1:7001
python examples/all_reduce.py tokyo 5.0 --join   127.0.0.1:7001
"""

import os
import sys

import torch

import ictp2p

cluster, value, flag, address = sys.argv[1:]
where = {"listen": address} if flag == "--listen" else {"join": (address,)}

with ictp2p.Peer(ictp2p.Config.local(cluster=cluster, token=os.environ["ICTP2P_TOKEN"], **where)) as peer:
    peer.gather(2, timeout=60.0)  # wait for the other one
    tensor = torch.full((4,), float(value))
    done = peer.all_reduce(tensor)
    print(f"mean of {', '.join(done.clusters)}: {tensor.tolist()}", flush=True)
    peer.barrier()  # so that nobody leaves before everybody has it
