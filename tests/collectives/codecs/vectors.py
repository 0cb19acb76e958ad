"""What the tests of codecs are fed with, and how."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st

from ictp2p.collectives.codecs.codec import Codec


def encoded(codec: Codec, elements: torch.Tensor) -> torch.Tensor:
    wire = torch.full((codec.size(len(elements)),), 0xA5, dtype=torch.uint8)
    before = elements.clone()
    codec.encode(elements, wire)
    assert torch.equal(before.view(torch.int32), elements.view(torch.int32)), "the source was written"
    return wire


def decoded(codec: Codec, wire: torch.Tensor, size: int) -> torch.Tensor:
    target = torch.full((size,), torch.nan)
    codec.decode(wire, target)
    return target


def through(codec: Codec, elements: torch.Tensor) -> torch.Tensor:
    return decoded(codec, encoded(codec, elements), len(elements))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


@st.composite
def vectors(draw: st.DrawFn, most: int = 9000) -> torch.Tensor:
    """Elements over many magnitudes, some zero, of sizes that fit no block."""
    size = draw(st.one_of(st.integers(1, 600), st.integers(1, most)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 8.0]))
    scale = 10.0 ** draw(st.integers(-4, 3))
    values = rng.standard_normal(size) * np.exp(spread * rng.standard_normal(size)) * scale
    values[rng.random(size) < draw(st.sampled_from([0.0, 0.1, 0.99]))] = 0.0
    return torch.from_numpy(values.clip(-6e4, 6e4).astype(np.float32))
