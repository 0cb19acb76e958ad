"""Who computes alone when a loop does: nobody else. And who helps with what is shared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ictp2p.concurrency import torch_threads
from ictp2p.concurrency.loop_thread import LoopThread


@pytest.fixture
def team() -> Iterator[int]:
    """As many threads as torch has on a machine of three cores, if nobody says otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def later() -> int:
    """What a thread begins with that has not used torch yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_a_loop_computes_alone_and_nobody_else_does(team: int) -> None:
    loop = LoopThread("test")
    assert loop.call(torch.get_num_threads) == 1
    assert (torch.get_num_threads(), later()) == (team, team)
    torch.set_num_threads(2)
    assert loop.call(torch.get_num_threads) == 1, "nor is it told otherwise by another"
    loop.close()


def test_a_loop_runs_though_no_thread_is_left_to_put_anything_back(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.get_num_threads).result()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            pool.submit(torch_threads.compute_alone).result()
        assert pool.submit(torch.get_num_threads).result() == later() == team


def refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_what_is_shared_is_done_once_to_each_by_all_of_a_team_alone(team: int) -> None:
    together, done, who = threading.Barrier(team, timeout=10.0), list[int](), set[int]()

    def act(piece: int) -> None:
        if piece < team:
            together.wait()
        assert torch.get_num_threads() == 1
        done.append(piece)
        who.add(threading.get_ident())

    torch_threads.shared(act, range(50))
    assert sorted(done) == [*range(50)]
    assert len(who) == team
    assert threading.get_ident() not in who
    assert (torch.get_num_threads(), later()) == (team, team)


def test_the_first_error_ends_what_is_shared(team: int) -> None:
    done = list[int]()

    def act(piece: int) -> None:
        if piece == 5:
            raise ZeroDivisionError("of the fifth")
        done.append(piece)

    with pytest.raises(ZeroDivisionError, match="of the fifth"):
        torch_threads.shared(act, range(100_000))
    assert len(done) < 100_000 - 1


def test_where_no_thread_can_be_had_it_is_done_here(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        torch_threads.shared(done.append, range(9))
    assert done == [*range(9)]


def test_nobody_works_on_for_who_was_interrupted(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stepped is written to again by whoever begins anew."""
    begun, go_on, done = threading.Semaphore(0), threading.Event(), list[int]()

    def act(piece: int) -> None:
        begun.release()
        assert go_on.wait(10.0)
        done.append(piece)

    join, waits = threading.Thread.join, list[str]()

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "ictp2p step":
            waits.append(thread.name)
            if len(waits) == 1:
                assert all(begun.acquire(timeout=10.0) for _ in range(team))
                raise KeyboardInterrupt
            go_on.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch_threads.shared(act, range(1000))
    assert [thread for thread in threading.enumerate() if thread.name == "ictp2p step"] == []
    assert len(done) == team


def test_nor_for_who_is_interrupted_before_all_have_begun(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: those who had begun were known to nobody, and stepped on beside whoever began anew."""
    begun, go_on, done = threading.Semaphore(0), threading.Event(), list[int]()

    def act(piece: int) -> None:
        begun.release()
        assert go_on.wait(10.0)
        done.append(piece)

    start, join, steps = threading.Thread.start, threading.Thread.join, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "ictp2p step":
            steps.append(thread)
            if len(steps) == 2:
                assert begun.acquire(timeout=10.0)
                raise KeyboardInterrupt
        start(thread)

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread in steps:
            go_on.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(threading.Thread, "join", joined)
    with pytest.raises(KeyboardInterrupt):
        torch_threads.shared(act, range(1000))
    assert not steps[0].is_alive()
    assert done == [0]
