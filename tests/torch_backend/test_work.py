"""A work and its future, to whoever waits for either, whichever threads there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ictp2p.torch_backend import work as work_module
from ictp2p.torch_backend.errors import RankLost
from ictp2p.torch_backend.work import GroupWork

MOMENT, PATIENCE = timedelta(milliseconds=1), timedelta(seconds=10)


@pytest.mark.parametrize("error", [None, RankLost("all_reduce: rank 2 died", (), (2,))])
def test_a_wait_is_over_when_the_future_is_done_and_has_called_back(
    error: RankLost | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: both lagged behind, unlike Gloo's: what a callback made of the tensors was missed now and then."""
    late: list[Callable[[], object]] = []
    monkeypatch.setattr(work_module, "beside", late.append)
    work, called = GroupWork("all_reduce", [torch.ones(2)]), list[bool]()
    future = work.get_future()

    def then(done: Any) -> Any:
        with ThreadPoolExecutor(1) as elsewhere:
            called.extend([work.is_completed(), elsewhere.submit(work.is_completed).result(10.0)])
        return done.value()[0] + 1

    after = future.then(then)
    work.finish(error)
    with pytest.raises(dist.DistBackendError, match=r"still under way after 0\.001 s"):
        work.wait(MOMENT)
    assert (work.is_completed(), work.is_success(), work.exception(), called) == (False, False, None, [])
    (call_back,) = late
    call_back()
    ended = (work.is_completed(), work.is_success(), work.exception())
    assert (*ended, called) == (True, error is None, error, [True, False]), "in a callback, and beside it"
    assert future.done()
    if error is None:
        assert work.wait(MOMENT)
        assert after.value().tolist() == [2.0, 2.0]
        return
    with pytest.raises(RankLost):
        work.wait(MOMENT)
    for each in (future, work.get_future(), after):
        with pytest.raises(RuntimeError, match="RankLost: all_reduce: rank 2 died"):
            each.wait()


def test_callbacks_may_wait_for_their_own_call_and_for_each_others() -> None:
    one, two = GroupWork("one", []), GroupWork("two", [])

    def waits(*works: GroupWork) -> list[bool]:
        return [work.wait(PATIENCE) and work.get_future().done() for work in works]

    futures = [one.get_future().then(lambda _: waits(one, two)), two.get_future().then(lambda _: waits(two, one))]
    one.finish()
    two.finish()
    assert waits(one, two) == [True, True]
    assert [future.value() for future in futures] == [[True, True]] * 2


def test_where_no_thread_can_be_had_a_call_and_its_future_end_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(act: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(work_module, "beside", none)
    work = GroupWork("one", [])
    future = work.get_future()
    work.finish()
    assert work.wait(MOMENT)
    assert future.done()
    assert not work_module.calls_back(), "nor is this a thread of callbacks from there on"
