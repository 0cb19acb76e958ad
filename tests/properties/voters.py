"""What the adversaries of agreement have in common: peers by number, seeds, and timings that tuning cannot move."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ictp2p.sync.profile import RoundProfile
from ictp2p.types import PeerId

PROFILE = replace(RoundProfile.local(), straggler_floor=2.0, anti_entropy=1.0, restore_after=2.0)
"""Pinned where the bound on recovery below depends on it, so that tuning the product cannot move the test."""
SEEDS = st.integers(min_value=0, max_value=2**32)


def peer(number: int) -> PeerId:
    return PeerId(f"{number:032x}")
