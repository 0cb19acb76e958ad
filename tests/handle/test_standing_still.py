"""Who counts seconds does not wait for a peer that stands still, wherever it lives."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.calls.deadline import Deadline
from ictp2p.errors import PeerClosed, RoundTimeout
from ictp2p.handle import messages, thread, to_peer
from ictp2p.handle.process import ProcessHandle
from tests.handle.homes import config

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@contextlib.contextmanager
def standing_still(handle: Any) -> Iterator[None]:
    """The peer answers nobody meanwhile, as while it is stopped, or waits for its disk."""
    if isinstance(handle, ProcessHandle):
        assert handle.line.process is not None
        os.kill(handle.line.process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(handle.line.process, signal.SIGCONT)
    else:
        moves = threading.Event()
        handle.loop.post(moves.wait)
        try:
            yield
        finally:
            moves.set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_who_counts_seconds_does_not_wait_for_a_peer_that_stands_still(isolation: str) -> None:
    """Regression: when time was over the peer was asked what was waited for, and nobody counted the seconds of that."""
    quick = replace(config("a").global_timeouts, connect=0.5)
    with ictp2p.Peer(config("a", isolation, global_timeouts=quick)) as peer:
        assert peer._handle is not None
        over = Deadline(0.0, peer._handle.waiting)
        with standing_still(peer._handle):
            with pytest.raises(RoundTimeout, match=r"itself stands still .* no answer within 0\.5 s"):
                peer.gather(2, timeout=0.1)
            with pytest.raises(RoundTimeout, match="itself stands still"):
                over.check()
        peer.status()  # it goes on, however long that takes
        with pytest.raises(RoundTimeout, match="1 of 2 clusters take part"):
            peer.gather(2, timeout=0.1)


@pytest.mark.timeout(60)
def test_who_counts_seconds_does_not_wait_for_room_in_the_line_to_a_process_that_is_stopped() -> None:
    """Regression: where it was stopped while a state was handed to it, whatever was said waited until it went on."""
    quick = replace(config("a").global_timeouts, connect=0.5)
    with ictp2p.Peer(config("a", "process", global_timeouts=quick)) as peer:
        handle = peer._handle
        assert isinstance(handle, ProcessHandle)
        unasked = to_peer.Answered(messages.raw(bytes(8 << 20)))
        with standing_still(handle):
            handle.line.send(1 << 40, unasked)
            serving = threading.Thread(target=handle.line.flush)
            serving.start()
            with pytest.raises(RoundTimeout, match=r"itself stands still .* no answer within 0\.5 s"):
                peer.gather(2, timeout=0.1)
        serving.join()
        peer.status()  # it goes on, however long that takes
        with pytest.raises(RoundTimeout, match="1 of 2 clusters take part"):
            peer.gather(2, timeout=0.1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_policy_ends_though_the_peer_stands_still_which_hears_of_it_once_it_goes_on(isolation: str) -> None:
    """Regression: a program that was interrupted waited at its end for a peer that was stopped, for ever."""
    model = torch.nn.Linear(1, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    quick = replace(config("a").global_timeouts, connect=0.5)
    with ictp2p.Peer(config("a", isolation, global_timeouts=quick)) as peer:
        policy = ictp2p.DiLoCo(peer, model, inner, sync_every=2)
        policy.__enter__()
        with standing_still(peer._handle):
            policy.__exit__()
        assert peer.status()["clusters"][0]["training"] is False
        peer.all_reduce([torch.ones(1)])  # the group is free for it


def test_who_leaves_does_not_wait_for_a_thread_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "CLOSING", 0.0)
    quick = replace(config("a").global_timeouts, connect=0.1)
    handle = thread.beside(config("a", global_timeouts=quick), lambda kind, fields: None)
    handle.start()
    with standing_still(handle):
        handle.give_up()
        with pytest.raises(PeerClosed, match=r"did not leave within 0\.1 s"):
            handle.leave()
    handle.close()
    handle.leave()  # who has ended has left
