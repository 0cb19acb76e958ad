"""What `sync_state` says of the tensors that it was given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ictp2p.calls.state import SharedState, SyncState, fingerprint
from ictp2p.sync.values import StateRef


@pytest.mark.parametrize("own", [1.0, 2.0])
def test_a_state_that_a_mate_hands_over_was_received_where_it_is_another_one(own: float) -> None:
    """Regression: who held it already, and had brought nothing to this call yet, heard that its tensors had changed."""
    tensors = {"w": torch.tensor([1.0])}
    nobody: Any = None
    shared = SharedState(tensors)
    shared.settle(StateRef(3, shared.take(tensors), ()))
    answer = shared.answer(fingerprint(shared))
    assert answer is not None
    tensors["w"].fill_(own)
    synced = SyncState(nobody, nobody, shared, tensors).accept(answer)
    assert (synced.version, synced.received, tensors["w"].item()) == (3, own != 1.0, 1.0)
