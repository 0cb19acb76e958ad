"""What the stack asks of the rest of a peer: whatever becomes of it, the stack hears of it, and people do."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.concurrency.tasks import Tasks
from ictp2p.core.packets import Channel
from ictp2p.errors import AddressInUse
from ictp2p.gossip.links import ProbeWanted
from ictp2p.runtime.errands import Errands
from ictp2p.runtime.group_store import GroupStore
from ictp2p.sync.rosters.roster import StoreWanted
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId


class Peer:
    """The parts of a peer that errands know, and what they were told."""

    host = "127.0.0.1"

    def __init__(self, failing: Exception) -> None:
        self.failing: Exception | None = failing
        self.told: list[tuple[Any, ...]] = []
        rosters = SimpleNamespace(
            store_refused=lambda number, now: self.told.append(("refused", number)),
            store_opened=lambda address, number, now: self.told.append(("opened", address, number)),
        )
        self.core = SimpleNamespace(card=SimpleNamespace(cluster="a"), m=SimpleNamespace(rosters=rosters))
        self.telemetry, self.tasks = Telemetry(lambda: 0.0), Tasks()
        control: Any = self
        self.errands = Errands(control, control, GroupStore(self.open), self.tasks, self.telemetry, dict)

    def call(self, channel: Channel, act: Any) -> None:
        act(0.0)

    def open(self, host: str) -> tuple[str, Any]:
        if self.failing is not None:
            raise self.failing
        return f"{host}:7000", SimpleNamespace(close=lambda: None)

    async def probe(self, wanted: ProbeWanted) -> None:
        assert self.failing is not None
        raise self.failing

    def warnings(self) -> list[str]:
        return [event.fields["text"] for event in self.telemetry.events("warning")]


@pytest.mark.parametrize("failing", [AddressInUse("taken"), RuntimeError("can't start new thread"), MemoryError()])
def test_a_store_that_cannot_be_opened_is_told_to_the_rosters_and_once_to_people(failing: Exception) -> None:
    async def run() -> Peer:
        peer = Peer(failing)
        for number, cause in ((1, failing), (1, failing), (2, None), (3, failing)):
            peer.failing = cause
            peer.errands.notice(StoreWanted(number))
            while len(peer.tasks):
                await asyncio.sleep(0)
        return peer

    peer = asyncio.run(run())
    assert peer.told == [("refused", 1), ("refused", 1), ("opened", "127.0.0.1:7000", 2), ("refused", 3)]
    assert peer.warnings() == [f"no store for the process group of a: {type(failing).__name__}: {failing}"] * 2


def test_an_errand_that_fails_unforeseen_is_told() -> None:
    async def run() -> Peer:
        peer = Peer(RuntimeError("can't start new thread"))
        peer.errands.notice(ProbeWanted(ClusterId("b"), 1000, 1.0))
        while len(peer.tasks):
            await asyncio.sleep(0)
        return peer

    assert asyncio.run(run()).warnings() == ["a probe of b failed: RuntimeError: can't start new thread"]
