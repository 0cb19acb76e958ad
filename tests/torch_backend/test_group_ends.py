"""How calls of a group end: with a result, in time, or by who is lost; and how the group itself does."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ictp2p.errors import IctError, PeerClosed
from ictp2p.torch_backend import ProcessGroup, RankLost, RankTimeout
from ictp2p.torch_backend.endpoint import Allowance
from ictp2p.torch_backend.engine import Step
from tests.garbage import uncollected
from tests.torch_backend.call_options import sums
from tests.torch_backend.conftest import SECONDS, together


def test_futures_give_the_tensors_or_the_reason() -> None:
    def act(group: ProcessGroup, rank: int) -> list[float]:
        mine = torch.ones(3)
        hooked = group.allreduce([mine]).get_future().then(lambda done: done.value()[0] / 2)
        found = [float(hooked.wait()[0])]
        late = group.recv([torch.zeros(1)], 1 - rank, 0).get_future()
        group.barrier().wait()
        if rank == 0:
            group.shutdown()
        with pytest.raises(RuntimeError, match="shut down" if rank == 0 else "RankLost: receive from rank 0"):
            late.wait()
        return found

    assert together(2, act) == [[1.0], [1.0]]


def test_who_does_not_come_is_named_when_the_time_is_over() -> None:
    def act(group: ProcessGroup, rank: int) -> Any:
        if rank == 2:
            return None
        with pytest.raises(RankTimeout) as caught:
            group.allreduce([torch.ones(5)], sums(seconds=0.3)).wait()
        assert isinstance(caught.value, dist.DistBackendError)
        return caught.value.ranks

    assert together(3, act)[:2] == [(2,), (2,)]


@pytest.mark.parametrize("length", [0, 5, 100_000])
def test_who_comes_when_the_others_have_given_up_hears_of_it(length: int) -> None:
    """Regression: what was small had been sent ahead, and was taken: a call that had failed elsewhere ended well."""
    over = threading.Barrier(2)

    def act(group: ProcessGroup, rank: int) -> Any:
        group.barrier().wait()
        if rank:
            over.wait(SECONDS)
        options = sums(seconds=0.05 if rank == 0 else SECONDS)
        call = group.allreduce([torch.ones(length)], options) if length else group.barrier(options)
        with pytest.raises((RankTimeout, RankLost)) as caught:
            call.wait()
        if rank == 0:
            over.wait(SECONDS)
        group.allreduce([mine := torch.ones(length or 1)]).wait()
        return caught.type, float(mine.mean())

    assert together(2, act) == [(RankTimeout, 2.0), (RankLost, 2.0)]


def test_who_comes_when_the_others_have_given_up_what_was_queued_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: nobody was told of a call whose turn had not come, and who came later waited out its own time."""
    monkeypatch.setattr("ictp2p.torch_backend.abreast.MOST", 1)
    over = threading.Barrier(2)

    def act(group: ProcessGroup, rank: int) -> Any:
        group.barrier().wait()
        if rank:
            over.wait(SECONDS)
        else:
            group.set_timeout(timedelta(seconds=0.05))
        first, queued = group.allreduce([mine := torch.ones(1)], sums(seconds=SECONDS)), group.barrier()
        with pytest.raises((RankTimeout, RankLost)) as caught:
            queued.wait()
        if rank == 0:
            over.wait(SECONDS)
        first.wait()
        return caught.type, mine.tolist()

    assert together(2, act) == [(RankTimeout, [2.0]), (RankLost, [2.0])]


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize(("part", "begins"), [(0, False), (0, True), (1, False)])
def test_who_comes_to_what_has_failed_before_it_began_hears_of_it(name: str, part: int, begins: bool) -> None:
    """Regression: if one part of a call, or what prepares it, breaks at one rank, nobody was told of what follows."""
    kinds = torch.float32, torch.int64

    def act(group: ProcessGroup, rank: int) -> Any:
        reduce = getattr(group._engine, name)

        async def broken(step: Step, *given: Any) -> None:
            if begins or step.part < part:
                await reduce(step, *given)
            if step.part == part:
                raise MemoryError

        if rank == 0:
            setattr(group._engine, name, broken)
        whole, parts = [torch.ones(2, dtype=kind) for kind in kinds], [torch.ones(1, dtype=kind) for kind in kinds]
        calls = {
            "all_reduce": lambda: group.allreduce_coalesced(whole),
            "reduce_scatter": lambda: group.reduce_scatter_single_coalesced(parts, whole),
        }
        work = calls[name]()
        with pytest.raises((MemoryError, RankLost), match="gave up: MemoryError" if rank else None) as caught:
            work.wait()
        return caught.type

    assert together(2, act) == [MemoryError, RankLost]


def test_a_wait_may_be_shorter_than_the_call() -> None:
    looked = threading.Event()

    def act(group: ProcessGroup, rank: int) -> float:
        mine = torch.ones(2)
        if rank == 0:
            work = group.allreduce([mine])
            with pytest.raises(dist.DistBackendError, match="still under way"):
                work.wait(timedelta(milliseconds=20))
            assert not work.is_completed()
            looked.set()
            work.wait()
            assert work.is_success()
        else:
            looked.wait(SECONDS)
            group.allreduce([mine]).wait()
        return float(mine[0])

    assert together(2, act) == [2.0, 2.0]


def test_a_group_that_ends_fails_what_is_under_way_and_what_comes() -> None:
    def act(group: ProcessGroup, rank: int) -> list[str]:
        if rank:
            return []
        waiting = group.recv([torch.zeros(1)], 1, 0)
        group.shutdown()
        errors = [waiting, group.barrier()]
        for kind in (PeerClosed, RuntimeError, dist.DistBackendError):
            with pytest.raises(kind, match="shut down"):
                waiting.wait()
        return [type(work.exception()).__name__ for work in errors]

    assert together(2, act)[0] == ["GroupClosed"] * 2


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_group_ends_in_time_and_without_an_error_though_a_rank_takes_nothing(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: who ended a group beside a stopped rank, on a busy machine, got a TimeoutError and an open port."""
    monkeypatch.setattr("ictp2p.torch_backend.endpoint._CLOSING", seconds)

    def connections(group: ProcessGroup) -> list[Any]:
        return group._loop.call(lambda: list(group._endpoint.bulk._desks))

    def act(group: ProcessGroup, rank: int) -> list[Any]:
        group.barrier().wait()
        open_, port = connections(group), group._endpoint._reception.address.port
        if rank:
            group._loop.call(lambda: [each.transport.pause_reading() for each in open_])
        stopped.wait(SECONDS)
        if rank == 0:
            group.shutdown()
        closed = [each.transport.is_closing() for each in open_]  # before the other one ends, and they with it
        over.wait(SECONDS)
        if rank == 0:
            socket.create_server(("127.0.0.1", port)).close()  # nobody listens there
        return closed

    stopped, over = threading.Barrier(2), threading.Barrier(2)
    assert together(2, act)[0] == [True]


def test_one_that_has_left_is_lost_to_those_who_still_wait_for_it() -> None:
    def act(group: ProcessGroup, rank: int) -> Any:
        if rank:
            group.barrier().wait()
            group.shutdown()
            return None
        group.barrier().wait()
        with pytest.raises(RankLost) as caught:
            group.recv([torch.zeros(1)], 1, 0).wait()
        with pytest.raises(IctError):
            group.recv_anysource([torch.zeros(1)], 0).wait()
        return caught.value.ranks

    assert together(2, act)[0] == (1,)


def test_who_ends_its_messages_because_another_was_lost_is_not_to_blame() -> None:
    """Rank 2 loses rank 1, and has no use any more for what rank 0 would send it; rank 0 comes later."""
    begun, failed = threading.Event(), threading.Event()

    def act(group: ProcessGroup, rank: int) -> Any:
        group.barrier().wait()  # so that all know each other
        if rank == 1:
            begun.wait(SECONDS)
            group.shutdown()
            return (1,)
        if rank == 0:
            failed.wait(SECONDS)
        work = group.alltoall([torch.empty(5) for _ in range(3)], [torch.ones(5) for _ in range(3)])
        begun.set()
        with pytest.raises(RankLost) as caught:
            work.wait()
        failed.set()
        return caught.value.ranks

    assert together(3, act) == [(1,)] * 3


def test_a_group_that_has_ended_is_freed_with_its_last_reference() -> None:
    """Regression: an endpoint that it had told it of connections, and it stayed until the garbage collector came."""

    def act(group: ProcessGroup, rank: int) -> None:
        group.allreduce([torch.ones(100_000)]).wait()
        group.shutdown()

    with uncollected(ProcessGroup) as left:
        assert together(2, act) == [None, None]
    assert left == []


def test_nothing_is_left_when_groups_are_gone() -> None:
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(3):
        together(2, lambda group, rank: group.barrier().wait())
    after = {thread.name for thread in threading.enumerate()}
    assert not {name for name in after - before if "process groups" in name}


def test_a_group_may_be_shut_down_after_the_interpreter_has_ended_its_loop() -> None:
    """Regression: by a function that was registered for the end of the program before this backend was imported."""

    def act(group: ProcessGroup, rank: int) -> None:
        group.barrier().wait()
        if rank == 0:
            group._loop.abandon()
        group.shutdown()

    assert together(1, act) == [None]


def test_groups_that_end_one_after_the_other_wait_together_for_ranks_that_take_nothing() -> None:
    """Regression: each waited for itself, a second and more, and a program of thirty groups was killed before."""
    allowed = Allowance()
    assert allowed.seconds(100.0) == 2.0
    allowed.spend(1.1, 101.1)
    assert allowed.seconds(101.1) == 1.0
    allowed.spend(1.1, 102.2)
    for now in (103.0, 105.0, 109.0):
        assert allowed.seconds(now) == 0.1
        allowed.spend(0.1, now + 0.1)
    assert allowed.seconds(120.0) == 2.0


def test_groups_whose_ranks_take_everything_use_nothing_up() -> None:
    allowed = Allowance()
    for now in range(100):
        allowed.spend(0.08, float(now))
    assert allowed.seconds(100.0) == 2.0
