from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from ictp2p.collectives.codecs.cast import Cast
from tests.collectives.codecs.vectors import encoded, through, vectors


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
    assert through(Cast(torch.float16), torch.tensor([-1e9])).tolist() == [-torch.inf]
