"""Three clusters train paths through a pool of modules: an encoder that all share, and heads that two of them do.

    python examples/paths.py

Each cluster has data of its own task; `common` is averaged over all three, `even` over the two that hold it, and `odd`
stays with the one that does. At the end all holders of a module hold the same bits of it.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading

if __name__ == "__main__":  # also while the libraries load; all clusters are here, so nobody is left to say goodbye to
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import torch

import ictp2p

TASKS = {"oslo": "even", "tokyo": "even", "quito": "odd"}


def train(peer: ictp2p.Peer, steps: dict[str, int], found: dict[str, dict[int, dict[str, torch.Tensor]]]) -> None:
    """Train one cluster's path until everybody has taken 200 steps, and keep what was agreed in each round."""
    task = TASKS[peer.cluster]
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"common": torch.nn.Linear(8, 16), task: torch.nn.Linear(16, 1)})
    inner = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    random = torch.Generator().manual_seed(len(peer.cluster))
    losses: list[float] = []
    with ictp2p.DiPaCo(peer, model, inner, sync_every=10) as policy:
        for number in peer.steps(itertools.count(1)):
            x = torch.randn(32, 8, generator=random)
            wanted = x.sum(1, keepdim=True) if task == "even" else x.prod(1, keepdim=True)
            loss = (model[task](torch.relu(model["common"](x))) - wanted).square().mean()
            loss.backward()
            inner.step()
            inner.zero_grad()
            losses.append(float(loss.detach()))
            if policy.version not in found[peer.cluster]:
                found[peer.cluster][policy.version] = policy.global_parameters()
            steps[peer.cluster] = number
            if min(steps.values()) >= 200:
                break
    line = f"{peer.cluster:6} {task:5} loss {losses[0]:.3f} -> {losses[-1]:.3f}"
    print(f"{line}\n", end="")  # in one piece: print writes the end of a line by itself, and threads come between


def main() -> None:
    """Found a mesh of three on this machine, train, and compare."""
    token = "0123456789abcdef0123456789abcdef"
    steps, found = dict.fromkeys(TASKS, 0), {cluster: dict[int, dict[str, torch.Tensor]]() for cluster in TASKS}
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=token)) as oslo:
        join = (str(oslo.address),)
        with (
            ictp2p.Peer(ictp2p.Config.local(cluster="tokyo", token=token, join=join)) as tokyo,
            ictp2p.Peer(ictp2p.Config.local(cluster="quito", token=token, join=join)) as quito,
        ):
            threads = [threading.Thread(target=train, args=(p, steps, found)) for p in (oslo, tokyo, quito)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    last = max(found["oslo"].keys() & found["tokyo"].keys() & found["quito"].keys())
    one, other, third = (found[cluster][last] for cluster in TASKS)
    same = {
        "common": torch.equal(one["common.weight"], other["common.weight"])
        and torch.equal(one["common.weight"], third["common.weight"]),
        "even": torch.equal(one["even.weight"], other["even.weight"]),
    }
    print(f"the same at all holders: {same}")
    if not all(same.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
