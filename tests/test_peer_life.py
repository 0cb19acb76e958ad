"""A `Peer` from its start to its end, whatever ends it."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.disk import FileDisk, MemoryDisk
from ictp2p.errors import (
    AddressInUse,
    AddressNotOurs,
    ConfigError,
    FolderInUse,
    LocalProtocolError,
    PeerClosed,
    PeerFailed,
    StateError,
)
from ictp2p.handle import EventCallback
from ictp2p.handle.thread import ThreadHandle, beside
from tests.trainers import Worker, config, finish, model, start


def test_closing_the_peer_ends_whatever_waits_on_it(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        b = ictp2p.Peer(config("a", str(a.address)))
        b.start()
        worker = Worker(b, versions=10**6, rows=1)  # its leader's training thread never comes
        running = start(pool, worker)
        assert not worker.ready.wait(0.5)
        b.close()
        with pytest.raises(PeerClosed):
            running[0].result(20)


def test_a_disk_that_fails_ends_whatever_waits_on_the_peer_and_says_why(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(disk: MemoryDisk, key: str, value: bytes) -> None:
        raise StateError("cannot write: No space left on device")

    with ictp2p.Peer(config("a")) as a:
        events: list[dict[str, Any]] = []
        a.on_event(events.append)
        worker = Worker(a, versions=10**9)
        futures = start(pool, worker)
        worker.ready.wait(20)
        monkeypatch.setattr(MemoryDisk, "save", refuse)
        with pytest.raises(PeerFailed, match=r"stopped by itself: cannot write: No space left"):
            finish(futures)
        with pytest.raises(PeerFailed, match="No space left"):
            a.all_reduce([torch.zeros(3)])
        assert [event["text"] for event in events if event["kind"] == "failed"] == [
            "cannot write: No space left on device"
        ]


def test_a_peer_that_is_not_running_says_so() -> None:
    peer = ictp2p.Peer(config("a"))
    for use in (lambda: peer.id, lambda: peer.address, lambda: peer.status(), lambda: peer.drain()):
        with pytest.raises(PeerClosed, match="with peer"):
            use()
    with pytest.raises(AttributeError, match="nonsense"):
        _ = peer.nonsense
    peer.close()


def test_a_peer_that_was_closed_says_so_and_gives_no_advice_on_starting_it() -> None:
    with ictp2p.Peer(config("a")) as peer:
        pass
    waits: list[Callable[[], object]] = [lambda: peer.barrier(), lambda: next(peer.steps([1]))]
    for use in (lambda: peer.id, lambda: peer.address, lambda: peer.status(), *waits):
        with pytest.raises(PeerClosed, match="closed") as told:
            use()
        assert "with peer" not in str(told.value)


def test_a_bad_cluster_name_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="'Not A Name'"):
        config("Not A Name")


def test_one_peer_trains_one_model_at_a_time_and_lives_once() -> None:
    with ictp2p.Peer(config("a")) as a:
        net = model()
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with ictp2p.DiLoCo(a, net, inner, sync_every=2) as policy:
            other = model()
            second = ictp2p.DiLoCo(a, other, torch.optim.SGD(other.parameters(), lr=0.1), sync_every=2)
            with pytest.raises(LocalProtocolError, match="a policy trains with this peer already"):
                second.__enter__()
            net(torch.ones(4, 3)).square().mean().backward()
            inner.step()
            assert policy.progress.step == 1, "the first one is none the worse"
        with pytest.raises(LocalProtocolError, match="a peer is started once"):
            a.start()
    with pytest.raises(LocalProtocolError, match="a peer is started once"):
        a.start()


def test_a_peer_whose_start_failed_may_be_started_again() -> None:
    with ictp2p.Peer(config("a")) as a:
        taken = ictp2p.Peer(replace(config("b"), listen=str(a.address)))
        for _ in range(2):
            with pytest.raises(AddressInUse, match=str(a.address.port)):
                taken.start()


def test_a_peer_that_is_closed_while_it_is_made_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression: whoever closed it then, a signal handler say, was told nothing, and it started all the same."""
    peer = ictp2p.Peer(replace(config("a"), data_dir=str(tmp_path)))
    peer.close()  # before it starts that is nothing

    def make(config: ictp2p.Config, tell: EventCallback) -> ThreadHandle:
        peer.close()
        return beside(config, tell)

    monkeypatch.setattr("ictp2p.peer.beside", make)
    with pytest.raises(PeerClosed, match="closed while it started"):
        peer.start()
    assert ictp2p.Peer.running() == []
    FileDisk(tmp_path).close()
    with pytest.raises(LocalProtocolError, match="started once"):
        peer.start()


def test_a_peer_that_was_closed_as_it_started_is_not_started_again(pool: ThreadPoolExecutor) -> None:
    """Regression: who tried again had a peer that told everybody it was closed, and that nobody could close."""
    peer = ictp2p.Peer(config("a", "127.0.0.1:1"))
    closing: list[Future[None]] = []
    peer.on_event(lambda event: closing.append(pool.submit(peer.close)) if event["kind"] == "started" else None)
    with pytest.raises(PeerClosed):
        peer.start()
    with pytest.raises(LocalProtocolError, match="started once"):
        peer.start()
    closing[0].result(20)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_peer_whose_name_was_given_to_another_one_is_named_and_can_be_closed(isolation: str, tmp_path: Path) -> None:
    """Regression: a notebook's cell that was run again found the folder in use, and nobody could close what used it."""
    made = replace(config("a"), isolation=isolation, data_dir=str(tmp_path / "peer"))
    peer = ictp2p.Peer(made)
    peer.start()
    me, address = peer.id, str(peer.address)
    del peer
    gc.collect()
    with pytest.raises(FolderInUse, match=f"{tmp_path}.* in use .* Peer {me} of this very process has it: close"):
        ictp2p.Peer(replace(made, data_dir=f"{tmp_path}/../{tmp_path.name}/peer")).start()
    with pytest.raises(AddressInUse, match=f"Peer {me} of this very process"):
        ictp2p.Peer(replace(made, data_dir=None, listen=address)).start()
    (lost,) = ictp2p.Peer.running()
    assert lost.id == me
    lost.close()
    with ictp2p.Peer(made) as again, ictp2p.Peer(config("b")) as other:
        assert ictp2p.Peer.running() == [again, other]
        assert again.id == me
    assert ictp2p.Peer.running() == []


def test_who_listens_at_the_address_of_its_nat_is_told_what_to_do_instead() -> None:
    with pytest.raises(AddressNotOurs, match=r"203\.0\.113\.1:7001: not an .* listen on \[::\]:7001 and advertise it"):
        ictp2p.Peer(replace(config("a"), listen="203.0.113.1:7001")).start()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_collective_call_in_a_forked_process_is_told_so_and_waits_for_nobody(isolation: str) -> None:
    """Its queue is there, and the thread that would take the call from it is not."""
    with ictp2p.Peer(replace(config("a"), isolation=isolation)) as a:
        a.barrier()
        before = a.recv(torch.zeros(1), "b", async_op=True)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends it if it waits
            for call in (a.barrier, lambda: a.all_reduce(torch.zeros(1), async_op=True), before.wait):
                with suppress(PeerClosed):
                    call()
                    os.write(writing, b"answered ")
            os.write(writing, b"end")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            assert said.read() == "end"
        os.waitpid(child, 0)
        a.barrier()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_that_the_peer_stayed_behind() -> None:
    with ictp2p.Peer(config("a")) as a:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # a data loader's worker, say: nothing here may wait for a thread that is not here
            said = "nothing"
            try:
                a.stats()
            except PeerClosed as error:
                said = str(error)
            a.close()
            os.write(writing, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert f"the peer lives in process {os.getpid()}" in os.read(reading, 1000).decode()
        os.close(reading)
        os.close(writing)
        assert a.members[0]["status"] == "alive", "the parent's peer is none the worse"
