"""Peers of one process that call together, each from a thread of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch

import ictp2p
from ictp2p.errors import IctError, RoundMissed

TOKEN = "0123456789abcdef0123456789abcdef"
PATIENCE = 30.0


class Mesh:
    """Peers of one process, each with its own loop; `a/0` is the first worker of cluster a, and so on."""

    def __init__(self) -> None:
        self.peers: dict[str, ictp2p.Peer] = {}

    def __getitem__(self, name: str) -> ictp2p.Peer:
        return self.peers[name]

    def add(self, *names: str) -> Mesh:
        for name in names:
            seeds = [str(peer.address) for peer in self.peers.values()][:1]
            config = ictp2p.Config.local(cluster=name.partition("/")[0], token=TOKEN, join=tuple(seeds))
            self.peers[name] = ictp2p.Peer(config)
            self.peers[name].start()
        return self

    def run(self, body: Callable[[str, ictp2p.Peer], Any], *names: str) -> dict[str, Any]:
        """Run `body` for each worker in a thread of its own; what it returned or raised."""
        found: dict[str, Any] = {}

        def one(name: str) -> None:
            try:
                found[name] = body(name, self.peers[name])
            except IctError as error:
                found[name] = error

        threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names or tuple(self.peers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), f"only {sorted(found)} came back"
        return found

    def gather(self, clusters: int) -> Mesh:
        """Wait until so many clusters take part, and all workers call together: a leader does not wait long for its."""

        def meet(name: str, peer: ictp2p.Peer) -> None:
            peer.gather(clusters, timeout=PATIENCE)
            come = torch.zeros(1)
            while come[0] != len(self.peers):
                come[0] = 1.0
                with contextlib.suppress(RoundMissed):
                    peer.all_reduce(come, op="sum")

        succeeded(self.run(meet))
        return self

    def leaders(self) -> list[str]:
        return [name for name, peer in self.peers.items() if peer.leader == peer.id]

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        threads = [threading.Thread(target=peer.close) for peer in self.peers.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def succeeded(found: dict[str, Any]) -> list[Any]:
    errors = {name: result for name, result in found.items() if isinstance(result, BaseException)}
    assert not errors
    return list(found.values())
