from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.codecs.cast import Cast
from tests.collectives.codecs.vectors import encoded, through, vectors

ODD = [65504.0, 65519.9, 65520.0, -65520.0, 1e6, -3e38, float("inf"), float("-inf"), float("nan")]
"""What lies at the end of float16's range, and beyond."""


@pytest.mark.parametrize(
    ("dtype", "bits", "subnormal"),
    [(torch.bfloat16, 8, 2.0**-134), (torch.float16, 11, 2.0**-25), (torch.float32, 99, 0)],
)
def test_the_error_is_one_rounding(dtype: torch.dtype, bits: int, subnormal: float) -> None:
    @given(vectors())
    def check(elements: torch.Tensor) -> None:
        error = (through(Cast(dtype), elements).double() - elements.double()).abs()
        assert (error <= elements.double().abs() * 2.0**-bits + subnormal).all()

    check()


def test_golden_bytes() -> None:
    values = torch.tensor([1.0, -2.5, 0.0, 3.140625, 65504.0])
    assert bytes(encoded(Cast(torch.bfloat16), values[:4]).numpy()).hex() == "803f20c000004940"
    assert (
        bytes(encoded(Cast(torch.float16), values).numpy())
        == np.array(values.tolist(), np.float32).astype(np.float16).tobytes()
    )


@given(vectors(), st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(ODD)), max_size=5))
def test_what_is_finite_stays_so_in_float16(elements: torch.Tensor, odd: list[tuple[int, float]]) -> None:
    """Regression: one value beyond its range became infinite, and so did the sum that it was in, for everybody."""
    for place, value in odd if len(elements) else []:
        elements[place % len(elements)] = value
    wanted = torch.where(elements.isfinite(), elements.clamp(-65504.0, 65504.0), elements).half().float()
    found = through(Cast(torch.float16), elements)
    assert torch.equal(found.isfinite(), elements.isfinite())
    assert torch.allclose(found, wanted, rtol=0, atol=0, equal_nan=True)
