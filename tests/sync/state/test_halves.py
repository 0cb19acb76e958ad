"""Two ranges of memory: only what is touched of the second one is copied, exchanged, hashed, and takes up any."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.sync.state.halves import Halves
from ictp2p.sync.state.manifest import CHUNK, Entry, digest_of, extent
from tests.sync.state.resident import resident

WIDE = [Entry(name, "float32", (CHUNK // 4 + 3,)) for name in "abcd"]
"""Each a little over a chunk, so that neighbours share one."""
HUGE = 2 * 2 * 1024 * 1024
"""Bytes of the large pages that reach beyond a range at both ends."""


def test_tensors_lie_behind_each_other_in_chunks() -> None:
    halves = Halves(WIDE)
    assert (halves.size, halves.count) == (extent(WIDE), 5)
    assert halves.under(["a"]) == {0, 1}
    assert halves.under(["b", "d"]) == {1, 2, 3, 4}
    assert halves.under([]) == set()
    assert halves.touched == halves.everywhere() == {0, 1, 2, 3, 4}


def test_the_second_half_is_apart_from_the_first() -> None:
    halves = Halves(WIDE)
    halves.tentative["a"].fill_(1.0)
    assert not halves.committed["a"].any()
    assert not any(halves.memory(committed=True))
    assert any(halves.memory(committed=False))


def test_all_of_it_is_exchanged_without_copying() -> None:
    halves = Halves(WIDE)
    address = halves.tentative["a"].data_ptr()
    halves.exchange()
    assert halves.committed["a"].data_ptr() == address


@settings(max_examples=20)
@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=4))
def test_what_is_written_where_it_was_touched_is_what_is_exchanged(rounds: list[set[str]]) -> None:
    halves = Halves(WIDE)
    expected = {name: tensor.clone() for name, tensor in halves.committed.items()}
    for number, names in enumerate(rounds, 1):
        halves.touch(halves.under(names))
        halves.copy(halves.touched)
        for name in names:
            halves.tentative[name].add_(number)
        halves.exchange()
        assert all(torch.equal(halves.former[name], tensor) for name, tensor in expected.items())
        expected = {name: tensor + number if name in names else tensor for name, tensor in expected.items()}
        assert all(torch.equal(halves.committed[name], tensor) for name, tensor in expected.items())


def test_what_is_touched_no_more_is_given_back() -> None:
    halves = Halves([Entry("w", "uint8", (40 * CHUNK,))])
    halves.tentative["w"].fill_(7)
    halves.touch({1, 2})
    assert resident(halves.memory(committed=False)) <= 2 * CHUNK + HUGE
    assert bool((halves.tentative["w"][CHUNK : 3 * CHUNK] == 7).all())


def test_many_chunks_are_hashed_the_same_in_threads() -> None:
    halves = Halves([Entry("w", "uint8", (70 * CHUNK + 5,))])
    halves.tentative["w"].copy_(torch.arange(70 * CHUNK + 5) % 251)
    together = halves.digests(range(halves.count))
    assert [*together] == [*range(71)]
    assert together == {i: found for index in range(71) for i, found in halves.digests([index]).items()}
    assert together[70] == digest_of(halves.memory(committed=False)[70 * CHUNK :])
