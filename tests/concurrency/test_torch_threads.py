"""Who computes alone when a loop does: nobody else. And who does what many cores do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from ictp2p.concurrency import torch_threads
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.concurrency.torch_threads import Job


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


def test_a_loop_computes_with_numbers_next_to_zero_though_its_program_does_not() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine flushes none")
    try:
        loop = LoopThread("test")
    finally:
        torch.set_flush_denormal(False)
    assert loop.call(lambda: (torch.tensor([1e-40]) * 1).item()) > 0.0
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


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine of three cores."""
    monkeypatch.setattr(torch_threads, "_cores", lambda: 3)
    return 3


def jobs(act: Callable[[int], object], count: int) -> list[Job]:
    return [(partial(act, number), ()) for number in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_job_is_done_once_and_all_cores_have_part_in_them_alone(team: int, cores: int, threads: int) -> None:
    torch.set_num_threads(threads)
    together, done, who = threading.Barrier(cores, timeout=10.0), list[int](), set[int]()

    def act(number: int) -> None:
        if number < cores:
            together.wait()
        assert torch.get_num_threads() == 1
        assert not torch.is_grad_enabled()
        done.append(number)
        who.add(threading.get_ident())

    torch_threads.each_alone(jobs(act, 50))
    assert sorted(done) == [*range(50)]
    assert len(who) == cores
    assert (torch.get_num_threads(), later()) == (threads, threads)


@pytest.mark.parametrize(("count", "most"), [(1, 9), (50, 1)])
def test_one_thread_computes_alone_as_well(team: int, cores: int, count: int, most: int) -> None:
    who = set[int]()

    def act(number: int) -> None:
        assert torch.get_num_threads() == 1
        who.add(threading.get_ident())

    torch_threads.each_alone(jobs(act, count), most)
    assert len(who) == 1


def test_no_thread_is_started_where_this_one_computes_alone(team: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    done = list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(torch_threads, "_start", lambda *arguments: pytest.fail("it starts threads"))
        torch_threads.each_alone(jobs(done.append, 5), 1)
    assert done == [*range(5)]


def test_only_the_cores_that_a_process_is_bound_to_are_its_own() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("nothing is bound here")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert torch_threads._cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert torch_threads._cores() == len(before)


def test_the_first_error_ends_all(team: int, cores: int) -> None:
    done = list[int]()

    def act(number: int) -> None:
        if number == 5:
            raise ZeroDivisionError("of the fifth")
        done.append(number)

    with pytest.raises(ZeroDivisionError, match="of the fifth"):
        torch_threads.each_alone(jobs(act, 100_000))
    assert len(done) < 100_000 - 1


def test_where_no_thread_can_be_had_it_is_done_here(team: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        torch_threads.each_alone(jobs(done.append, 9))
    assert done == [*range(9)]


def test_nobody_works_on_for_who_was_interrupted(team: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stepped is written to again by whoever begins anew."""
    begun, go_on, done = threading.Semaphore(0), threading.Event(), list[int]()

    def act(number: int) -> None:
        begun.release()
        assert go_on.wait(10.0)
        done.append(number)

    join, waits = threading.Thread.join, list[str]()

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "ictp2p helper":
            waits.append(thread.name)
            if len(waits) == 1:
                assert all(begun.acquire(timeout=10.0) for _ in range(team))
                raise KeyboardInterrupt
            go_on.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        torch_threads.each_alone(jobs(act, 1000))
    assert [thread for thread in threading.enumerate() if thread.name == "ictp2p helper"] == []
    assert len(done) == team


def test_nor_for_who_is_interrupted_before_all_have_begun(
    team: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: those who had begun were known to nobody, and stepped on beside whoever began anew."""
    begun, go_on, done = threading.Semaphore(0), threading.Event(), list[int]()

    def act(number: int) -> None:
        begun.release()
        assert go_on.wait(10.0)
        done.append(number)

    start, join, steps = threading.Thread.start, threading.Thread.join, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "ictp2p helper":
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
        torch_threads.each_alone(jobs(act, 1000))
    assert not steps[0].is_alive()
    assert done == [0]
