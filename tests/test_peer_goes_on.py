"""From which state a peer goes on, and what it says while nobody holds that."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.concurrency import logs
from ictp2p.errors import (
    MeshMismatch,
    PeerClosed,
)
from ictp2p.sync.two_level.policy import Policy
from tests.trainers import Together, Worker, config, finish, model, same_bits, start


def test_a_mesh_that_was_stopped_whole_goes_on_from_what_its_workers_bring(
    pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Each is told to join the other; nobody founds anything the second time."""

    def peers(first: str = "", second: str = "") -> list[ictp2p.Peer]:
        one = replace(config("a", second), listen=first or "127.0.0.1:0", data_dir=str(tmp_path / "a"))
        two = replace(config("b", first), listen=second or "127.0.0.1:0", data_dir=str(tmp_path / "b"))
        return [ictp2p.Peer(replace(c, restore_after=1.0)) for c in (one, two)]

    told: list[dict[str, Any]] = []
    a, b = peers()
    with a:
        b = ictp2p.Peer(replace(b.config, join=(str(a.address),)))
        with b:
            together = Together(2, at_once=False)
            finish(start(pool, *(Worker(p, versions=4, rows=n, together=together) for n, p in enumerate((a, b)))))
            addresses, slot, lost = (str(a.address), str(b.address)), a.status()["slot"], a.status()["state_version"]
    a, b = peers(*addresses)
    for peer in (a, b):
        peer.on_event(lambda event: told.append(dict(event)) if event["kind"].startswith("state_") else None)
    began = [pool.submit(peer.start) for peer in (a, b)]
    finish(began)
    with ExitStack() as stack:
        for peer in (a, b):
            stack.callback(peer.close)
        together = Together(2)
        workers = [Worker(p, versions=lost + 6, rows=n, together=together, resume=True) for n, p in enumerate((a, b))]
        finish(start(pool, *workers))
        assert a.status()["slot"] > slot
    restored = [event for event in told if event["kind"] == "state_restored"]
    assert {event["source"] for event in restored} == {0}
    same_bits(*workers, beyond=0, least=1)


def test_who_waits_for_a_state_that_nobody_holds_is_told_so_in_the_log(
    pool: ThreadPoolExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: warnings were events alone, so a training program that watched none stood still without a word."""
    mine = replace(config("a"), data_dir=str(tmp_path / "a"))
    with ictp2p.Peer(mine) as a:
        finish(start(pool, Worker(a, versions=2)))
    told = threading.Event()
    words = "nor any other: have a worker `load` a checkpoint of this training; for a new training, which can have none"
    a = ictp2p.Peer(mine)
    a.on_event(lambda event: told.set() if words in event.get("text", "") else None)
    with a:
        waiting = start(pool, Worker(a, versions=10**9))
        assert told.wait(20)
    with pytest.raises(PeerClosed):
        finish(waiting)
    logs.flush()
    assert [r.levelname for r in caplog.records if words in r.getMessage()] == ["WARNING"]


def test_the_loop_of_the_readme_goes_on_when_it_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it saved nothing, and a second run of a founder waited for ever for somebody who holds the state."""
    readme = Path(__file__).parent.parent / "README.md"
    (loop,) = [
        code for code in re.findall("```python\n(.*?)```", readme.read_text(), re.DOTALL) if "peer.steps" in code
    ]
    mine = replace(config("a"), data_dir="peer")
    monkeypatch.setattr(ictp2p.Config, "wan", lambda **_: mine)
    monkeypatch.setenv("ICTP2P_TOKEN", mine.token)
    monkeypatch.chdir(tmp_path)
    versions = []
    for _ in range(2):
        replica = model()
        inner = torch.optim.SGD(replica.parameters(), lr=0.01)
        names: dict[str, Any] = {"model": replica, "inner": inner, "loader": [torch.ones(2, 3)] * 250}
        exec(loop, names)
        versions.append(names["policy"].version)
    assert versions[1] > versions[0] > 1


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_second_policy_goes_on_from_what_the_first_one_held_though_nobody_else_does(isolation: str) -> None:
    """Regression: what it had served was replaced by a state that held nothing, so it waited for ever."""
    warnings: list[str] = []

    def train(kind: type[Policy], steps: int) -> Policy:
        net = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with kind(peer, net, inner, sync_every=1) as policy:
            for _ in range(steps):
                net(torch.ones(1, 2)).sum().backward()
                inner.step()
        return policy

    with ictp2p.Peer(replace(config("a"), isolation=isolation)) as peer:
        peer.on_event(lambda event: warnings.append(event["text"]) if event["kind"] == "warning" else None)
        first = train(ictp2p.DiLoCo, 2)
        idle = train(ictp2p.DiLoCo, 0)
        assert (idle.version, idle.digest()) == (first.version, first.digest())
        assert idle.state.predecessor is None
        assert train(ictp2p.DiLoCo, 2).version == first.version + 2
        with pytest.raises(MeshMismatch, match="policy"):
            train(ictp2p.LocalSGD, 0)
        assert train(ictp2p.DiLoCo, 0).version == first.version + 2
    assert warnings == []
