"""What holds for every codec."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.codecs.cast import Cast
from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.e3m0 import E3M0
from ictp2p.collectives.codecs.int8 import Int8
from ictp2p.collectives.codecs.topk import TopK
from ictp2p.collectives.codecs.topk2bit import TopK2Bit
from ictp2p.errors import RemoteProtocolError
from tests.collectives.codecs.vectors import decoded, encoded, same, through, vectors

CODECS = {
    "float32": Cast(torch.float32),
    "bfloat16": Cast(torch.bfloat16),
    "float16": Cast(torch.float16),
    "int8": Int8(),
    "e3m0": E3M0(),
    "topk": TopK(64, torch.bfloat16),
    "topk of few": TopK(3, torch.float32),
    "topk2bit": TopK2Bit(),
}
each = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@each
@given(elements=vectors())
@settings(max_examples=40, deadline=None)
def test_encoding_what_was_decoded_changes_nothing(codec: Codec, elements: torch.Tensor) -> None:
    once = through(codec, elements)
    assert same(through(codec, once), once)


@each
@given(elements=vectors(), factor=st.sampled_from([1.0, 3.0, 0.25]))
@settings(max_examples=25, deadline=None)
def test_adding_is_decoding_and_then_adding(codec: Codec, elements: torch.Tensor, factor: float) -> None:
    wire = encoded(codec, elements)
    total = torch.linspace(-1, 1, len(elements))
    expected = total.double() + factor * decoded(codec, wire, len(elements)).double()
    codec.add(wire, total, factor)
    torch.testing.assert_close(total.double(), expected, rtol=3e-7, atol=2e-7)


@each
@given(elements=vectors(3000), cut=st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_whole_blocks_are_encoded_alike_wherever_they_stand(codec: Codec, elements: torch.Tensor, cut: int) -> None:
    start = min(cut, (len(elements) - 1) // codec.block) * codec.block
    assert same(through(codec, elements)[start:], through(codec, elements[start:].clone()))


@each
def test_zeros_stay_zeros(codec: Codec) -> None:
    assert same(through(codec, torch.zeros(5000)), torch.zeros(5000))


@each
def test_every_size_has_its_length(codec: Codec) -> None:
    for size in (1, 2, 255, 256, 257, 4095, 4096, 4097, 5000):
        assert len(through(codec, torch.arange(1, size + 1, dtype=torch.float32))) == size
        with pytest.raises(RemoteProtocolError, match="expected"):
            codec.decode(torch.zeros(codec.size(size) + 1, dtype=torch.uint8), torch.zeros(size))
        with pytest.raises(RemoteProtocolError, match="expected"):
            codec.add(torch.zeros(codec.size(size) - 1, dtype=torch.uint8), torch.zeros(size))
    assert len(through(codec, torch.zeros(0))) == 0


@each
def test_what_is_not_finite_is_never_hidden(codec: Codec) -> None:
    for strange, place in itertools.product([float("nan"), float("inf"), float("-inf")], [0, 300, 511, 4999]):
        elements = torch.ones(5000)
        elements[place] = strange
        result = through(codec, elements)
        assert not result[place].isfinite(), (strange, place)
        block = place // codec.block * codec.block
        result[block : block + codec.block] = 1.0
        assert result.isfinite().all(), ("it reaches beyond its block", strange, place)


STRANGE = [
    0,
    1 << 31,
    1,
    0x80000001,
    0x007FFFFF,
    0x00800000,
    0x7F7FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0x7F800001,
]
"""Bits of zeros, of subnormal numbers, of the least and the largest normal ones, of infinities, and of NaNs, quiet or
signalling."""


@each
@given(data=st.data(), size=st.one_of(st.integers(0, 3), st.sampled_from([255, 256, 257, 4095, 4096, 4097])))
@settings(max_examples=40, deadline=None)
def test_any_elements_are_encoded_to_what_decodes_alike_for_ever(codec: Codec, data: st.DataObject, size: int) -> None:
    bits = np.full(size, data.draw(st.sampled_from(STRANGE)), np.uint32)
    odd = data.draw(st.lists(st.tuples(st.integers(0, max(0, size - 1)), st.sampled_from(STRANGE)), max_size=9))
    for place, strange in odd if size else []:
        bits[place] = strange
    if data.draw(st.booleans()):
        bits = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(0, 2**32, size, dtype=np.uint32)
    elements = torch.from_numpy(bits.view(np.float32))
    once = through(codec, elements)
    again, total = through(codec, once), torch.zeros(size)
    assert torch.allclose(again, once, rtol=0, atol=0, equal_nan=True)
    codec.add(encoded(codec, elements), total)
    assert torch.allclose(total, once, rtol=0, atol=0, equal_nan=True)
    for start in range(0, size, codec.block):
        block = slice(start, start + codec.block)
        assert elements[block].isfinite().all() or not once[block].isfinite().all()


@each
@given(seed=st.integers(0, 2**32), size=st.integers(1, 700))
@settings(max_examples=40, deadline=None)
def test_any_bytes_decode_or_are_refused(codec: Codec, seed: int, size: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, codec.size(size), dtype=np.uint8)
    total, target = torch.zeros(size), torch.zeros(size)
    try:
        codec.decode(torch.from_numpy(noise), target)
        codec.add(torch.from_numpy(noise), total)
    except RemoteProtocolError:
        return
    assert len(target) == len(total) == size
