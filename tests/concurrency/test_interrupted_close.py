"""Ctrl-C into the end of a peer: nothing of it is left, and whoever closes it once more finds that done."""

from __future__ import annotations

import concurrent.futures._base as futures
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ictp2p
from ictp2p import peer as peer_module
from ictp2p import training
from ictp2p.calls import engine
from ictp2p.concurrency import interrupts, logs, loop_thread
from ictp2p.disk import FileDisk
from ictp2p.errors import PeerClosed
from ictp2p.handle import thread
from tests.interrupts import ctrl_c, interrupted, places
from tests.threads import Threads
from tests.trainers import config

MODULES = (peer_module, training, engine, thread, loop_thread, interrupts, futures, threading)


@pytest.fixture(autouse=True)
def _logs() -> None:
    """What logs runs in a thread of its own from the first record on, which is not one that a peer leaves behind."""
    logs.warning(logging.getLogger(), "a test begins")
    logs.flush()


def started(folder: Path, *, called: bool = False) -> ictp2p.Peer:
    peer = ictp2p.Peer(replace(config("a"), data_dir=str(folder)))
    peer.start()
    if called:
        peer.barrier()
    return peer


def is_free(address: ictp2p.Address) -> bool:
    with socket.create_server(tuple(address)):
        return True


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("called", "every"), [(False, 9), (True, 29)])
def test_wherever_an_interrupt_comes_into_a_close_nothing_is_left(tmp_path: Path, called: bool, every: int) -> None:
    """Regression: the loop ran on, with its port and its folder, and to close the peer again did nothing."""
    threads = Threads()
    for at in places(started(tmp_path, called=called).close, *MODULES)[::every]:
        peer = started(tmp_path, called=called)
        address = peer.address
        with suppress(KeyboardInterrupt), interrupted(at, ctrl_c, *MODULES):  # an answer may come without a wait
            peer.close()
        if not peer._ended:
            assert peer.status()["cluster"] == "a", "it had not begun to end"
            peer.close()
        assert threads.more() == [], at
        assert is_free(address)
        FileDisk(tmp_path).close()
        peer.close()
        with pytest.raises(PeerClosed):
            peer.barrier()


def test_whoever_stays_goes_on_and_people_are_told_what_may_be_missing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        b, c = (peers.enter_context(ictp2p.Peer(config(name, str(a.address)))) for name in "bc")
        for work in [peer.all_reduce([torch.ones(3)], async_op=True) for peer in (a, b, c)]:
            work.wait()
        monkeypatch.setattr(b._handle, "leave", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            b.close()
        logs.flush()
        assert "b: its leaving was cut short by KeyboardInterrupt" in caplog.text
        for work in [peer.sync_state({"w": torch.ones(3)}, async_op=True) for peer in (a, c)]:
            work.wait()


def test_what_a_second_interrupt_keeps_from_its_end_the_next_close_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, threads = started(tmp_path), Threads()
    interrupts_to_come = [KeyboardInterrupt, KeyboardInterrupt]
    end = loop_thread.LoopThread.close

    def close(loop: loop_thread.LoopThread, *last: Callable[[], object]) -> None:
        if interrupts_to_come:
            raise interrupts_to_come.pop()
        end(loop, *last)  # type: ignore[arg-type]

    monkeypatch.setattr(loop_thread.LoopThread, "close", close)
    with pytest.raises(KeyboardInterrupt):
        peer.close()
    assert "ictp2p a" not in threads.ended()
    peer.close()
    assert "ictp2p a" in threads.ended()
    FileDisk(tmp_path).close()


def test_a_handler_that_closes_a_peer_within_its_close_cuts_nothing_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for at in places(started(tmp_path).close, *MODULES)[::9]:
        peer = started(tmp_path)
        with interrupted(at, peer.close, *MODULES):
            peer.close()
        assert peer._left, at
        FileDisk(tmp_path).close()
    logs.flush()
    assert [record.getMessage() for record in caplog.records] == []
