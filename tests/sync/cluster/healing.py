"""The workers of one cluster, each with a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ictp2p.sync.cluster.heal import heal
from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.cluster.turn import Turn
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry

ITEMS = [("policy", "diloco"), ("sync_every", "4")]


class Worker:
    def __init__(self, value: float, progress: Progress, items: Any = None) -> None:
        self.model = torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.model.weight.fill_(value)
            self.model.bias.fill_(value)
        self.inner = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        if progress.step:
            self.model(torch.ones(2)).sum().backward()
            self.inner.step()
        self.progress, self.items = progress, ITEMS if items is None else items
        self.state = GlobalState([Entry("w", "float32", (3_000_000,))])
        self.state.tentative["w"].fill_(value)
        self.state.seal({"round": progress.version})
        self.state.commit(progress.version)

        self.calls: list[str] = []
        self.turn = Turn()

    def __call__(self, group: Any) -> bool:
        replica = Replica(self.model, self.inner, ())
        withdraw = lambda: self.calls.append("withdraw")  # noqa: E731
        return heal(group, self.progress, replica, self.state, self.items, self.turn, withdraw=withdraw)

    def content(self) -> tuple[Any, ...]:
        inner = self.inner.state_dict()["state"]
        moments = [inner[k]["exp_avg"].tolist() for k in sorted(inner)]
        return (self.model.weight.tolist(), moments, self.progress, self.state.version, self.state.digest)


def grouped(make_world: Any, *workers: Callable[[Any], Any], world: Any = None) -> list[Any]:
    def body(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            mesh.roster_ready(True)
            return work(mesh.open_group(mesh.wait_roster(None)))

        return run

    world = world or make_world(a=len(workers))
    found = world.run(**{f"a_{i}": body(w) for i, w in enumerate(workers)})
    return [found.get(f"a_{i}") for i in range(len(workers))]
