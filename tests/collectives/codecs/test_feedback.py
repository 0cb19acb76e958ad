from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.codecs.cast import Cast
from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.e3m0 import E3M0
from ictp2p.collectives.codecs.feedback import Feedback
from ictp2p.collectives.codecs.int8 import Int8
from ictp2p.collectives.codecs.topk import TopK
from ictp2p.collectives.codecs.topk2bit import TopK2Bit
from tests.collectives.codecs.vectors import through

CODECS = {
    "topk": lambda: TopK(64, torch.bfloat16),
    "topk2bit": TopK2Bit,
    "int8": Int8,
    "e3m0": E3M0,
    "bfloat16": lambda: Cast(torch.bfloat16),
}


@pytest.mark.parametrize("make", CODECS.values(), ids=CODECS)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 10_000), rounds=st.integers(1, 6), data=st.data())
@settings(max_examples=20, deadline=None)
def test_what_was_sent_and_what_is_kept_add_up_to_what_went_in(
    make: type[Int8], seed: int, size: int, rounds: int, data: st.DataObject
) -> None:
    """Whole numbers of few bits add exactly in float32, so the sums must agree to the last bit."""
    generator = torch.Generator().manual_seed(seed)
    feedback = Feedback(make(), size)
    sent, given_in = torch.zeros(size), torch.zeros(size)
    for _ in range(rounds):
        vector = torch.randint(-1000, 1001, (size,), generator=generator).float()
        contribution = vector.clone()
        feedback.apply(contribution)
        assert torch.equal(through(make(), contribution), contribution), "the collective would round again"
        if data.draw(st.booleans(), label="committed"):
            feedback.commit()
            sent += contribution
            given_in += vector
    assert torch.equal(sent + feedback.residual, given_in)


def test_a_round_that_was_not_committed_leaves_no_trace() -> None:
    feedback = Feedback(TopK(1, torch.float32), 3)
    first, again = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([3.0, 2.0, 1.0])
    feedback.apply(first)
    feedback.apply(again)
    assert torch.equal(first, again)
    assert torch.equal(feedback.residual, torch.zeros(3))


def test_what_was_left_out_comes_next() -> None:
    feedback = Feedback(TopK(1, torch.float32), 3)
    contributions = []
    for _ in range(3):
        vector = torch.tensor([3.0, 2.0, 1.0])
        feedback.apply(vector)
        feedback.commit()
        contributions.append(vector.tolist())
    assert contributions == [[3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [6.0, 0.0, 0.0]]
    feedback.clear()
    assert torch.equal(feedback.residual, torch.zeros(3))


def test_a_diverged_element_is_sent_and_not_kept() -> None:
    feedback = Feedback(Int8(), 2)
    vector = torch.tensor([float("inf"), 1.0])
    feedback.apply(vector)
    feedback.commit()
    assert vector.isnan().all()
    assert torch.equal(feedback.residual, torch.zeros(2))


def test_long_vectors_go_through_in_pieces() -> None:
    codec: Codec = Int8()
    vector = torch.randn(600_001)
    expected = through(codec, vector)
    feedback = Feedback(codec, len(vector))
    feedback.apply(vector)
    assert torch.equal(vector, expected)
