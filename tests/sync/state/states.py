"""States to send and to receive, for tests of what becomes of them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import CHUNK, Entry

ENTRIES = [Entry("w", "float32", (700, 500)), Entry("step", "float32", ()), Entry("h", "bfloat16", (3,))]
SETTINGS = [("policy", "diloco"), ("sync_every", "100")]
WIDE = [Entry(name, "float32", (CHUNK // 4 + 3,)) for name in "abcd"]
"""Each a little over a chunk, so that neighbours share one."""
NAMES = st.sets(st.sampled_from([e.name for e in WIDE]), min_size=1)
HUGE = 2 * 2 * 1024 * 1024
"""Bytes of the large pages that reach beyond a range at both ends."""


def filled(seed: int, entries: list[Entry] | None = None, settings: list[tuple[str, str]] | None = None) -> GlobalState:
    state = GlobalState(ENTRIES if entries is None else entries, SETTINGS if settings is None else settings)
    generator = torch.Generator().manual_seed(seed)
    for tensor in state.tentative.values():
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    state.seal({"round": 0})
    state.commit(1)
    return state


def whole(tensors: dict[str, torch.Tensor]) -> GlobalState:
    state = GlobalState(WIDE)
    for name, tensor in state.tentative.items():
        tensor.copy_(tensors[name])
    state.seal({})
    state.commit(1)
    return state


def receive(state: GlobalState, tensors: dict[str, torch.Tensor], version: int | None, most: int = 99) -> None:
    """Receive so many chunks of a state at most, as that version; without one, break off before it is verified."""
    source = whole(tensors)
    for index in state.expect(source.manifest(source.digest), source.digest)[:most]:
        state.take(index, memoryview(source.chunk(source.digest, index)))
    if version is not None:
        state.verified(version)
