"""Two bits by hand, and against an encoder written down once more with lists."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.codecs.topk import BLOCK
from ictp2p.collectives.codecs.topk2bit import KEPT, TopK2Bit
from ictp2p.errors import RemoteProtocolError
from tests.collectives.codecs.vectors import encoded, same, through, vectors


def bfloat16(value: float) -> float:
    """Round to nearest even in the upper half of a float32's bits."""
    bits = int(np.float32(value).view(np.uint32))
    rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16
    return float(np.uint32(rounded).view(np.float32))


def coarse(values: list[float]) -> list[float]:
    """What two bits make of one block."""
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:KEPT]
    kept = sorted(order)
    magnitudes = [abs(values[i]) for i in kept]
    middle = (min(magnitudes) + max(magnitudes)) / 2
    halves = [[m for m in magnitudes if m <= middle], [m for m in magnitudes if m > middle]]
    levels = [bfloat16(sum(half) / len(half)) if half else 0.0 for half in halves]
    found = [0.0] * len(values)
    for i in kept:
        found[i] = math.copysign(levels[abs(values[i]) > middle], values[i])
    return found


def test_golden_bytes() -> None:
    # Of five elements all are kept. Magnitudes 1 2 6 7 8: up to 4.5 their mean is 1.5, above it 7.
    values = torch.tensor([1.0, -2.0, 6.0, 7.0, -8.0])
    assert same(through(TopK2Bit(), values), torch.tensor([1.5, -1.5, 7.0, 7.0, -7.0]))
    levels, codes = "c03f" + "e040", "58" + "03"  # 1.5, 7; low 0, minus low 2, high 1 twice: 8 + 16 + 64; minus high 3
    places = "001000" + "023000" + "0400"  # twelve bits each: 0, 1; 2, 3; 4
    assert bytes(encoded(TopK2Bit(), values).numpy()).hex() == levels + codes + places


def test_a_block_takes_116_bytes() -> None:
    assert TopK2Bit().size(BLOCK) == 116 == 2 * 2 + KEPT * 2 // 8 + KEPT * 12 // 8
    assert TopK2Bit().size(10 * BLOCK) == 1160
    assert [TopK2Bit().size(n) for n in (0, 1, 2, 5, 64, 65, BLOCK + 1)] == [0, 7, 8, 14, 116, 116, 123]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3 * BLOCK))
@settings(max_examples=25, deadline=None)
def test_it_is_what_the_rule_says(seed: int, size: int) -> None:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    found = through(TopK2Bit(), torch.from_numpy(values)).tolist()
    expected = [v for start in range(0, size, BLOCK) for v in coarse(values[start : start + BLOCK].tolist())]
    assert found == expected


@given(vectors())
@settings(max_examples=30, deadline=None)
def test_every_kept_sign_stays(elements: torch.Tensor) -> None:
    found = through(TopK2Bit(), elements)
    moved = found.isfinite() & (found != 0)
    assert (found[moved].sign() * elements[moved].sign() >= 0).all()
    assert torch.equal(found.signbit()[moved], elements.signbit()[moved])


def test_what_is_not_finite_is_seen_in_its_block_alone() -> None:
    values = torch.ones(2 * BLOCK)
    values[7] = torch.inf
    found = through(TopK2Bit(), values)
    assert found[7].isnan()
    assert int(found[:BLOCK].isnan().sum()) == KEPT
    assert found[BLOCK:].isfinite().all()


def test_a_few_among_zeros_are_all_there() -> None:
    values = torch.zeros(BLOCK)
    values[[7, 4095]] = torch.tensor([2.0, -2.0])
    assert same(through(TopK2Bit(), values).abs(), values.abs())


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 1), (2, 5), (1, 4095)])
def test_places_that_no_encoder_writes_are_refused(first: int, second: int) -> None:
    wire = bytearray(TopK2Bit().size(2))
    wire[-3:] = struct.pack("<I", first | second << 12)[:3]
    for action in (TopK2Bit().decode, TopK2Bit().add):
        with pytest.raises(RemoteProtocolError, match="ascending"):
            action(torch.frombuffer(wire, dtype=torch.uint8), torch.zeros(2))
