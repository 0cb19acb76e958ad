"""The ranks of the benchmarks: what a run over processes and namespaces takes for granted."""

from __future__ import annotations

import asyncio

import pytest
import torch
import torch.distributed as dist
from arena import Rank


async def test_ranks_that_cannot_reach_each_other_are_relayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: relays came to ask for a proof of membership, and the relayed pair of `wan.py` had none."""
    store = dist.HashStore()
    monkeypatch.setattr(Rank, "_store", lambda self, port: store)
    ranks = [Rank(number, 3, 0) for number in range(3)]
    for one, other in ((1, 2), (2, 1)):
        ranks[one].hosts[other] = "127.0.0.9"  # where nobody listens
    relay = ranks[0].names[0]
    planes = [await rank.bulk("relayed", sealed=True, relays=lambda _: [relay]) for rank in ranks]
    outputs = [torch.zeros(1000) for _ in ranks]
    chosen = ranks[1].plan(1000, among=[1, 2])
    parts = [ranks[n].reduce(chosen, [torch.full((1000,), float(n))], [outputs[n]], planes[n], 0) for n in (1, 2)]
    try:
        await asyncio.gather(*parts)
    finally:
        for plane in planes:
            await plane.close()
        for rank in ranks:
            rank.servers[0].close()
    assert outputs[1].eq(3).all()
    assert outputs[2].eq(3).all()
