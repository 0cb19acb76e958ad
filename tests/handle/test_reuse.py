"""Memory is used again, never twice at once, and given back to who has more use for it."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import reuse
from ictp2p.handle.reuse import IDLE, LEAST, Private
from tests.handle.still import Still
from tests.interrupts import interrupted, places


def test_memory_is_used_again_once_no_tensor_lies_in_it_and_not_before() -> None:
    memory = Private(Still(), keep=2)
    first = memory.empty(2 * LEAST)
    place, part = first.data_ptr(), first[LEAST:].view(torch.float32)
    del first
    second = memory.empty(2 * LEAST)
    assert second.data_ptr() != place
    view = part.numpy().data
    del part
    third = memory.empty(2 * LEAST)
    assert third.data_ptr() not in (place, second.data_ptr())
    del view
    assert memory.empty(2 * LEAST - 1).data_ptr() == place


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(LEAST, 9 * LEAST)), max_size=60), st.integers(1, 3))
def test_tensors_never_share_memory_and_little_is_kept_beside_them(turns: list[tuple[int, int]], keep: int) -> None:
    memory, held, asked = Private(Still(), keep), dict[int, torch.Tensor](), [0] * 7
    for name, size in turns:
        held.pop(name, None)
        held[name] = memory.empty(size)
        asked.append(size)
        spans = sorted((t.data_ptr(), t.data_ptr() + len(t)) for t in held.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        used = sum(map(len, held.values()))
        # A region may be twice as large as what lies in it; the bound on what is free is checked before it is lent.
        assert memory.size <= (2 * used + 8192 * len(held)) + keep * (2 * max(asked[-8:]) + 8192)


def test_small_ones_come_from_the_allocator() -> None:
    memory = Private(Still(), keep=1)
    small = memory.empty(LEAST - 1), memory.empty(0)
    assert [len(each) for each in small] == [LEAST - 1, 0]
    assert memory.size == 0


def test_when_nobody_asks_for_an_interval_what_is_free_goes_back_and_what_is_used_stays() -> None:
    threads = Still()
    memory = Private(threads, keep=4)
    used = [memory.empty(LEAST), memory.empty(2 * LEAST)]
    memory.empty(LEAST)
    waited: list[float] = []

    def meanwhile(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 2:
            memory.empty(LEAST)
        assert memory.size == 4 * LEAST
        return False

    threads.meanwhile = meanwhile
    (watch,) = threads.started
    watch()
    assert waited == [IDLE] * 3
    assert memory.size == 3 * LEAST == sum(map(len, used))
    memory.empty(LEAST)
    assert len(threads.started) == 2, "looked after again"


def test_closed_nothing_is_kept_and_nobody_watches() -> None:
    threads = Still()
    memory = Private(threads, keep=1)
    used = memory.empty(LEAST)
    memory.empty(LEAST)
    memory.close()
    assert memory.size == len(used)
    threads.started[0]()


@pytest.mark.timeout(20)  # else it waits for itself
def test_a_signals_handler_may_close_it_wherever_it_comes_into_an_allocation() -> None:
    """Regression: it waited for ever for the lock that its own thread held."""
    other = Private(Still(), keep=1)
    for at in places(lambda: other.empty(LEAST), reuse):
        memory = Private(Still(), keep=1)
        del (free := [memory.empty(LEAST)])[:]
        with interrupted(at, memory.close, reuse):
            found = memory.empty(LEAST).fill_(at % 256)
        assert len(found) == LEAST, at
        assert not free
