from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings

from ictp2p.collectives.codecs.int8 import Int8
from tests.collectives.codecs.vectors import encoded, same, through, vectors


def scales(elements: torch.Tensor) -> np.ndarray:
    """The scale of each element, worked out by NumPy."""
    padded = np.zeros(-(-len(elements) // 256) * 256, np.float32)
    padded[: len(elements)] = np.abs(elements.numpy())
    exact = padded.reshape(-1, 256).max(axis=1) * np.float32(1 / 127)
    bits = exact.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16  # to the nearest bfloat16, ties to even
    rounded = bits.astype(np.uint32).view(np.float32)
    return np.repeat(rounded, 256)[: len(elements)]


@given(vectors())
@settings(deadline=None)
def test_an_element_errs_by_three_quarters_of_a_scale_at_most(elements: torch.Tensor) -> None:
    error = (through(Int8(), elements) - elements).abs().numpy()
    assert (error <= 0.75 * scales(elements) + 2.0**-100).all()


@given(vectors())
@settings(deadline=None)
def test_codes_and_scales_are_those_of_numpy(elements: torch.Tensor) -> None:
    scale = scales(elements)
    codes = np.rint(elements.numpy() * np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0))
    assert torch.equal(through(Int8(), elements), torch.from_numpy((codes * scale).astype(np.float32)))


def test_golden_bytes() -> None:
    values = torch.tensor([127.0, -127.0, 63.5, 1.0, 0.0, -0.4])
    assert bytes(encoded(Int8(), values).numpy()).hex() == "803f7f8140010000"
    values[0] = 254.0
    assert bytes(encoded(Int8(), values).numpy()).hex() == "00407fc020000000"


def test_what_codes_and_scales_can_say_is_said_exactly() -> None:
    codes = torch.arange(-127, 128).float()
    for scale in (2.0**-90, 0.0078125, 1.5, 2.0**100):
        assert same(through(Int8(), codes * scale), codes * scale)


def test_magnitudes_beyond_the_range_of_scales() -> None:
    assert through(Int8(), torch.tensor([1e38, 1.0])).isnan().all()
    assert same(through(Int8(), torch.tensor([1e-35, 0.0])), torch.zeros(2))
