"""Memory of a state by pages: none before it is written to, and what is given back is gone."""

from __future__ import annotations

import mmap

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.sync.state.pages import Pages
from tests.sync.state.resident import resident

SIZE = 40 * mmap.PAGESIZE + 100


def test_no_page_takes_up_memory_before_it_is_written_to() -> None:
    pages = Pages(64 * 1024 * 1024)
    assert resident(pages.bytes.numpy().data) == 0
    assert not pages.bytes[:100].any()


@settings(max_examples=40)
@given(st.integers(0, SIZE), st.integers(0, SIZE))
def test_what_lies_inside_is_given_back_and_nothing_else(one: int, other: int) -> None:
    pages = Pages(SIZE)
    pages.bytes.fill_(7)
    start, stop = sorted((one, other))
    pages.release(start, stop)
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = stop if stop == SIZE else stop // mmap.PAGESIZE * mmap.PAGESIZE
    gone = range(first, max(first, last))
    assert not pages.bytes[gone.start : gone.stop].any()
    assert int((pages.bytes == 7).sum()) == SIZE - len(gone)
    pages.bytes.fill_(8)
    assert bool((pages.bytes == 8).all()), "and it can be written to again"


def test_nothing_can_be_mapped_too() -> None:
    pages = Pages(0)
    pages.release(0, 0)
    assert pages.bytes.numel() == 0
