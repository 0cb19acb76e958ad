"""The mean of a tensor over everybody.

In two terminals, with the same ICTP2P_TOKEN in the environment:

python examples/all_reduce.py oslo  3.0 --listen 127.0.0.1:7001
python examples/all_reduce.py tokyo 5.0 --join   127.0.0.1:7001
"""

import argparse
import os
import signal
import sys

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import torch

import ictp2p
from ictp2p.errors import IctError


def main() -> None:
    """Take part in one mean."""
    parser = argparse.ArgumentParser(description="The mean of a tensor over two clusters.")
    parser.add_argument("cluster", help="name of this worker's cluster")
    parser.add_argument("value", type=float, help="of all elements of its tensor")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 lets the system choose")
    parser.add_argument("--join", action="append", default=[], help="host:port of any peer; none founds a mesh")
    options = parser.parse_args()
    if not (token := os.environ.get("ICTP2P_TOKEN")):
        parser.error("give the mesh's token in ICTP2P_TOKEN; `ictp2p token` makes one")

    config = ictp2p.Config.local(cluster=options.cluster, token=token, listen=options.listen, join=options.join)
    with ictp2p.Peer(config) as peer:
        peer.gather(2, timeout=60.0)  # wait for the other one
        tensor = torch.full((4,), options.value)
        done = peer.all_reduce(tensor)
        print(f"mean of {', '.join(done.clusters)}: {tensor.tolist()}", flush=True)
        peer.barrier()  # so that nobody leaves before everybody has it


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except IctError as error:  # each says in one line what is wrong, and with which value
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
