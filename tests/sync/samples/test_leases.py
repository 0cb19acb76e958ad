from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.sync.samples.leases import BLOCKS, DONE, EPOCH, FREE, MOST, SEATED, WINDOW, Leases, Wish
from ictp2p.sync.values import MAX_NOTE
from ictp2p.types import ClusterId

A, B, C = map(ClusterId, "abc")
Turn = tuple[bool, int, int]


class Mesh:
    """A state, and rounds that change it."""

    def __init__(self, blocks: int, epochs: int | None = None, keep: int = 2) -> None:
        self.leases = Leases(blocks, epochs, keep)
        self.tensors = {e.name: torch.zeros(e.shape, dtype=getattr(torch, e.dtype)) for e in self.leases.entries}
        self.counters = {"round": 0, **self.leases.counters}

    def held(self, cluster: ClusterId) -> list[int]:
        found: list[int] = self.leases.holding(self.tensors, cluster).blocks.tolist()
        return found

    def seated(self, cluster: ClusterId) -> bool:
        return self.leases.holding(self.tensors, cluster).seated

    def done(self) -> list[int]:
        found: list[int] = (self.tensors[BLOCKS] == DONE).nonzero().flatten().tolist()
        return found

    def round(self, **said: tuple[int, Sequence[int]] | bytes) -> None:
        """Each cluster brings these of its blocks, and wants so many."""
        self.counters["round"] += 1
        notes = []
        for name, wish in said.items():
            cluster = ClusterId(name)
            if not isinstance(wish, bytes):
                places = np.array([self.held(cluster).index(block) for block in sorted(wish[1])], dtype=np.int64)
                wish = Wish(self.counters[EPOCH], wish[0], places).encode()
            notes.append((cluster, wish))
        self.leases.decide(self.counters, self.tensors, notes)


def test_by_hand() -> None:
    mesh = Mesh(10)
    mesh.round(a=(3, []), b=(2, []))
    assert (mesh.held(A), mesh.held(B)) == ([0, 1, 2], [3, 4])
    mesh.round(a=(3, [1]), b=(2, [3, 4]))
    assert (mesh.done(), mesh.held(A), mesh.held(B)) == ([1, 3, 4], [0, 2, 5], [6, 7])
    mesh.round(a=(9, [0, 2, 5]), b=(9, [6, 7]))
    assert (mesh.held(A), mesh.held(B)) == ([8], [9]), "what is left is shared"
    mesh.round(b=(1, [9]))
    assert (mesh.counters[EPOCH], mesh.held(A), mesh.held(B)) == (0, [8], [])
    mesh.round(a=(1, [8]), b=(1, []))
    assert (mesh.counters[EPOCH], mesh.done(), mesh.held(A), mesh.held(B)) == (1, [], [0], [1])


def test_who_misses_more_rounds_than_are_kept_loses_its_lease() -> None:
    mesh = Mesh(4, keep=2)
    mesh.round(a=(2, []), b=(1, []))
    mesh.round(b=(1, []))
    mesh.round(b=(4, []))
    assert mesh.seated(A)
    assert (mesh.held(A), mesh.held(B)) == ([0, 1], [2, 3])
    mesh.round(b=(4, []))
    assert not mesh.seated(A)
    assert (mesh.held(A), mesh.held(B)) == ([], [0, 1, 2, 3])
    mesh.round(a=(4, []), b=(4, [0]))
    assert mesh.seated(A)


def test_an_epoch_leases_nothing_after_the_last() -> None:
    mesh = Mesh(2, epochs=1)
    mesh.round(a=(2, []))
    mesh.round(a=(2, [0, 1]))
    assert (mesh.counters[EPOCH], mesh.held(A), mesh.tensors[BLOCKS].tolist()) == (1, [], [FREE, FREE])


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"x",
        Wish(0, 1, np.array([2])).encode(),
        Wish(0, 1, np.arange(3)).encode(),
        Wish(0, 1, np.arange(1)).encode() + b"\0" * MAX_NOTE,
        Wish(0, 1, np.arange(1)).encode() + b"\0",
        Wish(0, 1, np.array([1 << 24])).encode(),
        Wish(0, 1, np.array([1 << 24])).encode()[:-1],
        Wish(0, 1, np.array([3, 1 << 20])).encode(),
        b"\0" * 8 + (MOST + 1).to_bytes(4, "little") + b"\0" * 8,
    ],
)
def test_a_note_that_makes_no_sense_says_nothing(note: bytes) -> None:
    mesh = Mesh(4)
    mesh.round(a=(2, []))
    mesh.round(a=note, c=note if note == b"" else b"")
    assert (mesh.done(), mesh.held(A), mesh.seated(C)) == ([], [0, 1], False)


def test_what_is_said_of_another_epoch_does_not_count() -> None:
    mesh = Mesh(2)
    mesh.round(a=(2, []))
    mesh.round(a=Wish(1, 2, np.arange(2)).encode())
    assert mesh.done() == []


SCATTERED = st.one_of(
    st.sets(st.integers(0, WINDOW - 2), max_size=50),
    st.integers(0, 2**32).map(lambda seed: set(np.random.default_rng(seed).permutation(WINDOW - 1)[:3000].tolist())),
)


@given(SCATTERED, st.integers(0, 20_000), st.integers(0, 60_000))
def test_a_note_fits_whatever_it_says(scattered: set[int], whole: int, leased_since: int) -> None:
    """Regression: of blocks that came to lie far behind others, by a lease that came after them, a note had no room."""
    places = np.array([*range(whole), *sorted(whole + 1 + leased_since + p for p in scattered)], dtype=np.int64)
    note = Wish(0, 5, places).encode()
    assert len(note) < MAX_NOTE - 100, "there is room for the others' notes"
    mesh = Mesh(90_000)
    mesh.round(a=(90_000, []))
    mesh.round(a=note)
    assert mesh.done() == places.tolist()


MARKS = st.integers(0, 2**40 - 1)
TURN = st.tuples(st.booleans(), st.integers(0, 12), MARKS)
"""Whether a cluster is in a round, how many blocks it wants, and a bit for each that it holds: whether it brings it."""


@settings(max_examples=60)
@given(st.lists(st.tuples(TURN, TURN, TURN), min_size=1, max_size=24), st.integers(1, 40), st.integers(1, 4))
def test_every_block_once_per_epoch(turns: list[tuple[Turn, Turn, Turn]], blocks: int, keep: int) -> None:
    """Against a model that keeps sets: whoever holds a block is alone with it until it is done or revoked."""
    mesh = Mesh(blocks, keep=keep)
    counts, last = [0] * blocks, dict.fromkeys((A, B, C), -1)
    for number, turn in enumerate(turns, 1):
        said = {}
        for cluster, (present, wants, marks) in zip((A, B, C), turn, strict=True):
            if not present:
                continue
            brought = [block for place, block in enumerate(mesh.held(cluster)) if marks >> place & 1]
            said[cluster] = (wants, brought)
            for block in brought:
                counts[block] += 1
            last[cluster] = number
        epoch = mesh.counters[EPOCH]
        mesh.round(**said)
        assert set(counts) <= {epoch, epoch + 1}, "none twice, and none of the next epoch before all of this one"
        assert mesh.counters[EPOCH] == min(counts)
        held = [block for cluster in (A, B, C) for block in mesh.held(cluster)]
        assert len(held) == len(set(held))
        assert not set(held) & set(mesh.done())
        assert int(mesh.tensors[BLOCKS].ne(FREE).sum()) == len(held) + len(mesh.done())
        for cluster in (A, B, C):
            if mesh.seated(cluster):
                assert last[cluster] >= number - keep
        assert int((mesh.tensors[SEATED][:, 0] != 0).sum()) == sum(map(mesh.seated, (A, B, C)))
