"""Chunks of the next state are hashed once they are final, and their digests are those of what is sealed."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.state.manifest import CHUNK
from tests.sync.state.states import NAMES, WIDE, filled

SIZE = CHUNK // 4 + 3


@given(touched=NAMES, told=NAMES, cuts=st.lists(st.integers(1, SIZE - 1), max_size=3), data=st.data())
def test_the_digests_are_those_of_what_is_sealed(
    touched: set[str], told: set[str], cuts: list[int], data: st.DataObject
) -> None:
    """Tensors share chunks with neighbours that are final later, that are never told, or that stay as they are."""
    state = filled(0, WIDE)
    tentative = state.begin(touched)
    draft = state.draft
    assert draft is not None
    ends = sorted({0, SIZE, *cuts})
    pieces = [(name, start, stop) for name in sorted(touched & told) for start, stop in pairwise(ends)]
    for name, start, stop in data.draw(st.permutations(pieces)):
        tentative[name][start:stop] += 1.0
        draft.final([tentative[name][start:stop]])
    for name in touched - told:
        tentative[name].fill_(7.0)
    state.seal({})
    state.commit(2)
    memory = state.memory(committed=True)
    chunks = [hashlib.sha256(memory[i : i + CHUNK]).digest() for i in range(0, len(memory), CHUNK)]
    assert state.incoming.chunks == b"".join(chunks)


def test_a_state_that_others_wrote_to_is_hashed_anew() -> None:
    state = filled(0, WIDE)
    tentative = state.begin()
    assert state.draft is not None
    state.draft.final(tentative.values())
    state.tentative["a"].fill_(3.0)
    written = state.seal({})
    other = filled(0, WIDE)
    other.begin()["a"].fill_(3.0)
    assert written == other.seal({})
    assert torch.equal(state.tentative["a"], other.tentative["a"])
