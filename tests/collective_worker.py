"""One worker of the tests with real deaths: all-reduces until one has died, and tells each result as a line of JSON."""

import sys

import torch

import ictp2p
from ictp2p.errors import IctError
from tests.telling import tell

AFTER = 3  # sums to which somebody no longer contributes, and then it is enough


def meet(peer: ictp2p.Peer, value: float, whole: float) -> None:
    """Add up small numbers until everybody's is in the sum: then all stand at the same call."""
    while True:
        tensor = torch.tensor([value])
        peer.all_reduce(tensor, op="sum")
        if tensor[0].item() == whole:
            return


def main(cluster: str, value: str, whole: str, clusters: str, join: str) -> None:
    config = ictp2p.Config.local(
        cluster=cluster, token="0123456789abcdef0123456789abcdef", join=(join,) if join else (), bulk_rate=20e6
    )
    peer = ictp2p.Peer(config)
    peer.on_event(lambda event: tell("progress" if event["kind"] == "reduce_progress" else "event", **event))
    with peer:
        tell("ready", address=str(peer.address), peer=peer.id)
        peer.gather(int(clusters), timeout=100.0)
        meet(peer, float(value), float(whole))
        after = 0
        while after < AFTER:
            tensor = torch.full((1_000_000,), float(value))
            try:
                done = peer.all_reduce(tensor, op="sum")
            except IctError as error:
                tell("failed", error=f"{type(error).__name__}: {error}")
                raise
            assert bool((tensor == tensor[0]).all())
            tell("reduced", sum=tensor[0].item(), clusters=list(done.clusters), leader=peer.leader)
            after += tensor[0].item() != float(whole)
        tell("done")
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
