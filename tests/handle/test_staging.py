"""What the training program's end does with results that the peer could not write where they belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import to_training
from ictp2p.handle.staging import StagedRound
from ictp2p.sync.values import Participant


class Heard:
    """What is told, and what lies in the outputs at that moment."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = outputs
        self.arrived: set[int] = set()

    def restarted(self, attempt: int, parts: Sequence[Participant]) -> None:
        self.arrived.clear()

    def progress(self, start: int, stop: int) -> None:
        self.arrived |= set(range(start, stop))
        flat = torch.cat(list(self.outputs))
        assert flat[start:stop].tolist() == list(range(start, stop)), "it is there before it is told"

    def complete(self, answer: Callable[[bytes], None]) -> None:
        answer(torch.cat(list(self.outputs)).to(torch.uint8).numpy().tobytes())

    def over(self) -> None:
        self.arrived.clear()


@given(st.sets(st.integers(0, 30), min_size=1), st.booleans())
def test_results_are_where_they_belong_before_anything_is_told_of_them(ends: set[int], again: bool) -> None:
    reached = [torch.arange(12, dtype=torch.float32), torch.arange(12, 30, dtype=torch.float32)]
    outputs = [torch.zeros(12), torch.zeros(18)]
    heard, said = Heard(outputs), list[bytes]()
    round_ = StagedRound(heard, outputs, reached, ())
    for _ in range(1 + again):
        round_.restarted(to_training.Restarted(1, ()))
        for start, stop in pairwise(sorted(ends)):
            round_.progress(start, stop)
    round_.complete(said.append)  # what was brought from here was never told of
    assert said == [bytes(range(30))]
    round_.over()
