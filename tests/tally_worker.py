"""One worker that trains leased samples until it is killed, and stands still between two steps where it is asked to."""

import contextlib
import queue
import sys
import threading
from collections.abc import Iterator

import torch

import ictp2p
from ictp2p.sync.cluster.averaging import NOTHING
from tests.tally import Count, Summing, Tally, Watched
from tests.telling import tell

SIZE, BATCH, EVERY = 180, 2, 3


def train(peer: ictp2p.Peer, asked: queue.SimpleQueue[str]) -> None:
    """Until asked to leave."""
    sampler, model = Watched(SIZE, BATCH, seed=3, keep=3), Tally(SIZE)
    inner = Count(model, sampler)
    version = trained = 0
    with Summing(peer, model, inner, EVERY, sampler=sampler) as policy:
        for indices in epochs(sampler):
            if policy.version != version:
                version = policy.version
                told = {"digest": policy.digest(), "epoch": sampler.epoch, "leader": peer.leader}
                tell("agreed", version=version, trained=trained, **told)
            with contextlib.suppress(queue.Empty):
                wish = asked.get_nowait()
                if wish == "leave":
                    return
                tell(wish, epoch=sampler.epoch)
                asked.get()  # stands here until it is killed
            model(torch.tensor(indices)).backward()
            trained += sampler.mark() != NOTHING
            inner.step()
            inner.zero_grad()


def epochs(sampler: Watched) -> Iterator[list[int]]:
    """The batches of one epoch after the other."""
    while True:
        yield from sampler


def main(cluster: str, folder: str, join: str) -> None:
    torch.set_num_threads(1)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: [asked.put(line.strip()) for line in sys.stdin], daemon=True).start()
    config = ictp2p.Config.local(
        cluster=cluster, token="0123456789abcdef0123456789abcdef", join=(join,) if join else (), data_dir=folder
    )
    try:
        with ictp2p.Peer(config) as peer:
            tell("ready", address=str(peer.address), peer=peer.id)
            train(peer, asked)
    except BaseException as error:
        tell("failed", error=f"{type(error).__name__}: {error}")
        raise
    tell("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
