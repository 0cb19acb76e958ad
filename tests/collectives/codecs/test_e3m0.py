from __future__ import annotations

import torch
from hypothesis import given, settings

from ictp2p.collectives.codecs.e3m0 import E3M0
from tests.collectives.codecs.vectors import encoded, same, through, vectors


@given(vectors())
@settings(deadline=None)
def test_an_element_errs_by_a_third_of_itself_at_most(elements: torch.Tensor) -> None:
    padded = torch.zeros(-(-len(elements) // 256) * 256)
    padded[: len(elements)] = elements.abs()
    largest = padded.view(-1, 256).amax(1).repeat_interleave(256)[: len(elements)]
    error = (through(E3M0(), elements) - elements).abs()
    assert (error <= 1.005 * torch.maximum(elements.abs() / 3, largest / 128) + 2.0**-100).all()


def test_every_code_is_said_exactly() -> None:
    values = torch.tensor([0.0, *(sign * 2.0**-power for power in range(7) for sign in (1, -1))])
    for scale in (2.0**-90, 1.0, 1.5, 2.0**100):
        assert same(through(E3M0(), values * scale), values * scale)


def test_between_two_codes_the_nearer_is_taken() -> None:
    values = torch.tensor([1.0, 0.76, 0.74, -0.38, -0.37, 1 / 64, 0.6 / 64, 0.4 / 64])
    expected = torch.tensor([1.0, 1.0, 0.5, -0.5, -0.25, 1 / 64, 1 / 64, 0.0])
    assert torch.equal(through(E3M0(), values), expected)


def test_golden_bytes() -> None:
    """Scale 1; codes 7, 6, -7 in the low halves, -1, 0 in the high ones (sign in the fourth bit)."""
    values = torch.tensor([1.0, 0.5, -1.0, -1 / 64, 0.0])
    assert bytes(encoded(E3M0(), values).numpy()).hex() == "803f" + "97060f"


def test_magnitudes_beyond_the_range_of_scales() -> None:
    assert through(E3M0(), torch.tensor([1e38, 1.0])).isnan().all()
    assert same(through(E3M0(), torch.tensor([1e-35, 0.0])), torch.zeros(2))
