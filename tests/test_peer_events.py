"""What a program is told of its peer while it lives, and what it may do there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.concurrency import logs
from ictp2p.errors import (
    LocalProtocolError,
)
from tests.trainers import Worker, config, finish, start


def test_events_are_flat_and_timed(pool: ThreadPoolExecutor) -> None:
    told: list[dict[str, Any]] = []
    peer = ictp2p.Peer(config("a"))
    peer.on_event(told.append)
    with peer:
        finish(start(pool, Worker(peer, versions=2, rows=1)))
    kinds = [event["kind"] for event in told]
    assert kinds[0] == "started"
    for expected in ("leader", "life", "roster", "round_opened", "round_committed"):
        assert expected in kinds
    assert all(isinstance(event["time"], float) for event in told)


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("error", [KeyError("loss"), SystemExit(1)], ids=["an error", "an exit"])
def test_a_callback_that_fails_is_told_of_what_comes_next_and_so_are_the_others(
    caplog: pytest.LogCaptureFixture, error: BaseException, isolation: str
) -> None:
    """Regression: one that called `sys.exit` ended the peer's thread, and training waited for ever."""
    failed: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []

    def fails(event: dict[str, Any]) -> None:
        failed.append(event)
        raise error

    peer = ictp2p.Peer(replace(config("a"), isolation=isolation))
    peer.on_event(fails)
    peer.on_event(told.append)
    with peer:
        assert peer.leader == peer.id
    assert {"started", "leader"} <= {event["kind"] for event in told}
    assert failed == told
    logs.flush()
    text = f"a: on {failed[0]['kind']}, a callback of on_event failed: {type(error).__name__}: {error}"
    assert [record.getMessage() for record in caplog.records if "on_event" in record.message] == [text]
    assert caplog.text.count("Traceback") == 1, "and not one for each event"


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_callback_that_would_wait_for_its_own_thread_is_refused(isolation: str) -> None:
    """Regression: it waited for ever, and with it the peer, and whoever closed that."""
    refused: list[str] = []
    with ictp2p.Peer(replace(config("a"), isolation=isolation)) as peer:

        def asks(event: dict[str, Any]) -> None:
            for ask in (peer.barrier, peer.status, lambda: peer.members, lambda: peer.gather(1), peer.close):
                try:
                    ask()
                except LocalProtocolError as error:
                    refused.append(str(error))

        peer.on_event(asks)
        peer.barrier()
        assert peer.status()["cluster"] == "a"
    assert len(refused) >= 5
    assert "do it in another thread" in refused[0]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_callback_that_waits_for_what_its_own_thread_has_to_end_is_refused(isolation: str) -> None:
    """Regression: nothing ended it, and the others took the peer for dead."""
    heard: list[object] = []
    told = threading.Event()
    with ictp2p.Peer(replace(config("a"), isolation=isolation)) as peer:
        over, under_way = peer.barrier(async_op=True), peer.recv(torch.zeros(1), "b", async_op=True)
        over.wait()

        def waits(event: dict[str, Any]) -> None:
            if event["kind"] != "mine":
                return
            try:
                heard.append(over.wait())  # which is there, and waited for by nobody
                under_way.wait(10)
            except LocalProtocolError as error:
                heard.append(str(error))
            finally:
                told.set()

        peer.on_event(waits)
        peer.event("mine")
        assert told.wait(20)
        assert not under_way.done()
    assert heard[0] == over.wait()
    assert "do it in another thread" in str(heard[1])


@pytest.mark.parametrize("fields", [{"reason": "hot"}, {"error": "VersionMismatch"}], ids=["a warning", "a refusal"])
def test_an_event_of_a_program_that_is_called_as_the_peers_own_ends_no_callback(fields: dict[str, str]) -> None:
    """Regression: without what is logged of the peer's own it was an error, and nobody was told of anything later."""
    told = threading.Event()
    peer = ictp2p.Peer(config("a"))
    peer.on_event(lambda event: told.set() if event["kind"] == "mine" else None)
    with peer:
        peer.event("warning" if "reason" in fields else "refused", **fields)
        peer.event("mine")
        assert told.wait(20)
