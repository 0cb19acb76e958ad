"""Workers with a real peer each: a training thread, real sockets, a tiny model."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

import ictp2p
from ictp2p.config import Timeouts
from ictp2p.sync.two_level.policy import Policy

TOKEN = "a token for tests only"
WAITS = Timeouts(connect=2.0, stall=2.0, form=8.0, complete=20.0)


def config(cluster: str, join: str | None = None) -> ictp2p.Config:
    seeds = (join,) if join else ()
    return ictp2p.Config.local(cluster=cluster, token=TOKEN, join=seeds, global_timeouts=WAITS, local_timeouts=WAITS)


def model(width: int = 5) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))


class Together:
    """What workers do together: they begin at once, and nobody ends before all hold enough versions in common.

    Without the second, one of them could run all its rounds alone before the others are counted in.
    """

    def __init__(self, workers: int, *, at_once: bool = True, until: Callable[[set[int]], bool] = bool) -> None:
        self._begin = threading.Barrier(workers if at_once else 1)
        self._held: dict[int, set[int]] = {}
        self._workers, self._until = workers, until
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._begin.wait(20)

    def enough(self, worker: int, versions: Iterable[int], least: int) -> bool:
        """Whether all hold two versions beyond the first in common, `least` or a later one among them."""
        with self._lock:
            self._held[worker] = set(versions)
            common = {v for v in set.intersection(*self._held.values()) if v > 1}
            met = len(self._held) == self._workers and len(common) >= min(self._workers, 2)
            return met and max(common) >= least and self._until(common)


class Worker:
    """One worker's training loop in a thread of the test."""

    def __init__(
        self,
        peer: ictp2p.Peer,
        *,
        versions: int,
        rows: int = 0,
        width: int = 5,
        together: Together | None = None,
        kind: type[Policy] = ictp2p.DiLoCo,
        **policy: Any,
    ) -> None:
        self.peer = peer
        self._kind = kind
        self._together = together or Together(1)
        self.digests: dict[int, str] = {}
        self.steps = Counter[int]()
        """Of each version: how many inner steps began from it."""
        self.ready = threading.Event()
        self._versions = versions
        self._rows = rows
        self._width = width
        self._policy = {"sync_every": 2, **policy}

    def run(self) -> None:
        net = model(self._width)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with self._kind(self.peer, net, inner, **self._policy) as policy:
            self._note(policy)
            self.ready.set()
            self._together.begin()
            for x in self.peer.steps(self._batches()):
                self.steps[policy.version] += 1
                net(x).square().mean().backward()
                inner.step()
                inner.zero_grad()
                self._note(policy)
                if self._together.enough(id(self), self.digests, self._versions):
                    return

    def _note(self, policy: Policy) -> None:
        self.digests[policy.version] = policy.digest()

    def _batches(self) -> Iterator[torch.Tensor]:
        random = torch.Generator().manual_seed(self._rows)
        while True:
            yield torch.randn(4, 3, generator=random)


def start(pool: ThreadPoolExecutor, *workers: Worker) -> list[Future[None]]:
    return [pool.submit(worker.run) for worker in workers]


def finish(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result(40)


def same_bits(first: Worker, *others: Worker, beyond: int = 1, least: int = 0) -> None:
    """Each of the others held the same bits as the first at every version after `beyond` that both held.

    These are `least` at the least. Version 1 is what one of them brought, and others may have held something else then.
    """
    for other in others:
        common = {v for v in first.digests.keys() & other.digests.keys() if v > beyond}
        assert len(common) >= least
        assert {v: first.digests[v] for v in common} == {v: other.digests[v] for v in common}
