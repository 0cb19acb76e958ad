"""A `Peer` from its start to its end, whatever ends it."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import ictp2p
from ictp2p.concurrency import logs
from ictp2p.disk import FileDisk, MemoryDisk
from ictp2p.errors import (
    AddressInUse,
    ConfigError,
    FolderInUse,
    LocalProtocolError,
    MeshMismatch,
    PeerClosed,
    PeerFailed,
    StateError,
)
from ictp2p.handle import EventCallback
from ictp2p.handle.thread import ThreadHandle, beside
from ictp2p.sync.two_level.policy import Policy
from tests.trainers import Together, Worker, config, finish, model, same_bits, start


def test_draining_ends_the_loop_after_the_next_commit(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        worker = Worker(a, versions=10**6, rows=1)
        running = start(pool, worker)
        assert worker.ready.wait(20)
        a.drain()
        finish(running)
        assert a.state == "DRAINING"
        assert a.status()["phase"] == "DRAINING/D_COMMIT"
        assert a.stats()["illegal_transitions"] == 0
    assert a.state == "EXIT"


def test_draining_ends_the_loop_of_a_program_that_only_calls_after_its_next_call() -> None:
    """Regression: a call moves no version of the state, and the loop never ended."""
    with ictp2p.Peer(config("a")) as a:
        a.sync_state({"w": torch.ones(3)})
        done = []
        for batch in a.steps(range(9)):
            if batch == 2:
                a.drain()
            a.all_reduce([torch.ones(3)])
            done.append(batch)
        assert done == [0, 1, 2]
        assert a.status()["phase"] == "DRAINING/D_COMMIT"


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


def test_a_batch_of_a_loader_without_a_step_is_given_again() -> None:
    """And one that may give batches out of order is refused before it gives any."""
    size, batch = 40, 2
    tally = torch.nn.Embedding(size, 1)
    torch.nn.init.zeros_(tally.weight)
    inner = torch.optim.SGD(tally.parameters(), lr=1.0)
    sampler = ictp2p.ElasticSampler(size, batch, epochs=2)
    loader = DataLoader(torch.arange(size), batch_sampler=sampler)  # type: ignore[arg-type]
    number = 0
    with ictp2p.Peer(config("a")) as a, ictp2p.LocalSGD(a, tally, inner, sync_every=4, sampler=sampler) as policy:
        while not sampler.finished:
            for indices in a.steps(loader):
                number += 1
                if number in (3, 4, 11):
                    continue
                (-tally(indices)).sum().backward()
                inner.step()
                inner.zero_grad()
        assert policy.global_parameters()["weight"].flatten().tolist() == [2.0] * size
        disordered = DataLoader(torch.arange(size), batch_sampler=sampler, num_workers=2, in_order=False)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="in_order=False"):
            next(iter(a.steps(disordered)))
        for none in (5, None):
            with pytest.raises(ConfigError, match=f"{none} gives no batches"):
                next(a.steps(none))  # type: ignore[arg-type]


def test_draining_ends_the_loop_around_the_epochs_of_a_sampler() -> None:
    """Regression: the loop of the documentation went round for ever, at full speed, and the worker never left."""
    net = torch.nn.Linear(1, 1)
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    sampler = ictp2p.ElasticSampler(1000, 2)
    loader = DataLoader(torch.ones(1000, 1), batch_sampler=sampler)  # type: ignore[arg-type]
    turns = 0
    with ictp2p.Peer(config("a")) as a, ictp2p.DiLoCo(a, net, inner, sync_every=2, sampler=sampler) as policy:
        while not sampler.finished:
            turns += 1
            assert turns < 3, "the loop does not end"
            for batch in a.steps(loader):
                net(batch).sum().backward()
                inner.step()
                inner.zero_grad()
                if policy.version == 3:
                    assert not a.drained
                    a.drain()
        assert (turns, policy.version, a.drained, sampler.ended) == (1, 4, True, False)
    assert a.state == "EXIT"


def test_who_counts_epochs_off_after_a_drain_comes_to_the_end_and_who_has_no_end_is_refused() -> None:
    with ictp2p.Peer(config("a")) as a:
        a.drain()  # no state is shared: there is no round to wait for
        assert a.drained
        for _ in range(100):
            assert list(a.steps(range(9))) == []
        with pytest.raises(PeerClosed, match=r"peer\.drained"):
            assert not any(batch for _ in range(100_000) for batch in a.steps([1]))
