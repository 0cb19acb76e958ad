"""Collectives, wherever they are cut: all or an error, and nothing of them afterwards."""

from __future__ import annotations

import pytest

from ictp2p.bulk import kernel, tuning
from tests.cuts import sums
from tests.cuts.meshes import breaks, cancels, closes, hangs_up
from tests.cuts.search import Cut, search

CUTS = (
    Cut("cancelled", cancels(1)),
    Cut("broken", breaks(0)),
    Cut("hung up", hangs_up(0)),
    Cut("closed", closes(1)),
    Cut("cancelled again", cancels(1), cancels(1)),
    Cut("cancelled, then broken", cancels(1), breaks(0)),
    Cut("broken, then cancelled", breaks(0), cancels(1)),
)
STORIES = (
    sums.Sum,
    sums.Clear,
    sums.Star,
    sums.Cold,
    sums.Relayed,
    sums.Striped,
    sums.Shared,
    sums.OneShot,
    sums.Copy,
    sums.Gather,
    sums.Scatter,
)


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.name)
@pytest.mark.parametrize("story", STORIES)
def test_a_collective_gives_all_or_an_error_wherever_it_is_cut(
    story: type[sums.Sum], cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: True)
    monkeypatch.setattr(kernel, "same_host", lambda transport: story is sums.Shared)
    assert search(story, cut) == []
