"""PCCL's synchronous DiLoCo loop, without a master node.

Start it in several terminals, one cluster each:

    export ICTP2P_TOKEN=0123456789abcdef0123456789abcdef   # the same in all; make yours with `ictp2p token`
    python examples/pccl_loop.py --cluster oslo  --clusters 2 --listen 127.0.0.1:7001
    python examples/pccl_loop.py --cluster tokyo --clusters 2 --join 127.0.0.1:7001

Start another one at any time (`--outer-steps 2000` gives you some): it fetches the state and takes part from the next
outer step on. Kill any of them.
Instead of `--cluster`, start several workers of one cluster with `torchrun --nproc-per-node 2 examples/pccl_loop.py`.
"""

import argparse
import os
import signal
import sys
import time

if __name__ == "__main__":  # the libraries take seconds to load, and may lose an interrupt that is an exception
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import torch

import ictp2p
from ictp2p.errors import IctError, RoundError


def main() -> None:
    """Take part in outer steps until there are enough of them."""
    parser = argparse.ArgumentParser(description="PCCL's synchronous DiLoCo loop, without a master node.")
    parser.add_argument("--cluster")
    parser.add_argument("--listen")
    parser.add_argument("--join", action="append", default=[])
    parser.add_argument("--clusters", type=int, default=1, help="how many to wait for at the start")
    parser.add_argument("--outer-steps", type=int, default=20)
    options = parser.parse_args()
    if not (token := os.environ.get("ICTP2P_TOKEN")):
        parser.error("give the mesh's token in ICTP2P_TOKEN; `ictp2p token` makes one")
    torch.manual_seed(0)
    truth, model = torch.randn(8, 1), torch.nn.Linear(8, 1, bias=False)
    chance = torch.Generator().manual_seed(os.getpid())  # every worker sees other data
    inner = torch.optim.AdamW(model.parameters(), lr=0.02)
    shared = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    outer = torch.optim.SGD(shared.values(), lr=0.7, momentum=0.9, nesterov=True)
    for tensor in shared.values():
        outer.state[tensor]["momentum_buffer"] = torch.zeros_like(tensor)
    momentum = {f"{name} momentum": outer.state[tensor]["momentum_buffer"] for name, tensor in shared.items()}
    state = {**shared, **momentum, "revision": torch.tensor(0)}
    given = {name: value for name in ("cluster", "listen", "join") if (value := getattr(options, name))}

    with ictp2p.Peer(ictp2p.Config.local(token=token, **given)) as peer:  # connect
        print(f"{peer.cluster} listens on {peer.address}", flush=True)
        workers, over = int(os.environ.get("WORLD_SIZE", "1")), time.monotonic() + 60.0
        while sum(row["status"] == "alive" for row in peer.members) < workers and time.monotonic() < over:
            time.sleep(0.1)  # torchrun has started more of us; those of a run before this one may be listed as dead
        peer.gather(options.clusters, timeout=60.0)
        while state["revision"] < options.outer_steps:
            try:
                peer.sync_state(state)  # everybody starts from the same bits; a newcomer fetches them
                model.load_state_dict(shared)
                for _ in range(20):  # inner steps
                    batch = torch.randn(32, 8, generator=chance)
                    loss = (model(batch) - batch @ truth).square().mean()
                    loss.backward()
                    inner.step()
                    inner.zero_grad()
                deltas = [
                    tensor - trained.detach()
                    for tensor, trained in zip(shared.values(), model.parameters(), strict=True)
                ]
                done = peer.all_reduce(deltas)  # the mean over all workers of all clusters
            except RoundError as error:  # the others went on without us, say: nothing was touched, so begin again
                print(f"again: {error}", flush=True)
                continue
            for tensor, delta in zip(shared.values(), deltas, strict=True):
                tensor.grad = delta
            outer.step()  # outer step
            state["revision"] += 1
            print(f"revision {state['revision']}  loss {loss:.4f}  clusters {', '.join(done.clusters)}", flush=True)
        print(f"weights {' '.join(f'{weight:.6f}' for weight in shared['weight'].flatten())}", flush=True)


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except IctError as error:  # each says in one line what is wrong, and with which value
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
