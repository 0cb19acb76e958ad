from __future__ import annotations

from typing import Any

import msgspec
import torch

from ictp2p.calls.chronicle import Chronicle, Past
from ictp2p.calls.rounds import Barrier, Completed
from ictp2p.calls.runner import Answer
from ictp2p.types import ClusterId, PeerId

NOBODY: Any = None


def test_an_answer_that_a_mate_handed_over_is_accounted_for_when_this_worker_leads_next() -> None:
    chronicle = Chronicle(PeerId("1" * 32), ClusterId("a"))
    call = Barrier(NOBODY, Past(chronicle, NOBODY))
    done = Completed(7, (ClusterId("a"),), 0.0, 0, 0, "star", "because")
    call.accept(Answer(call.fingerprint, msgspec.msgpack.encode(done), torch.empty(0, dtype=torch.uint8)))
    assert chronicle.settled == 7
