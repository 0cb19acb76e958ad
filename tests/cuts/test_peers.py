"""Whole peers, wherever what they do is cut."""

from __future__ import annotations

import pytest

from tests.cuts import peers
from tests.cuts.meshes import cancels
from tests.cuts.search import Cut, search

CUTS = (
    Cut("cancelled", cancels(0)),
    Cut("broken", peers.cuts(0)),
    Cut("cancelled again", cancels(0), cancels(0)),
)
CLOSED, DATA = Cut("closed", peers.shuts()), Cut("data connection broken", peers.cuts(2))


@pytest.mark.parametrize("cut", [*CUTS, CLOSED], ids=lambda cut: cut.name)
@pytest.mark.parametrize("story", [peers.Founding, peers.Joining, peers.Leaving, peers.Closing])
def test_a_peer_begins_and_ends_whole_wherever_it_is_cut(story: type[peers.Peers], cut: Cut) -> None:
    assert search(story, cut) == []


@pytest.mark.parametrize("cut", [*CUTS, CLOSED, DATA], ids=lambda cut: cut.name)
def test_a_round_leaves_nothing_behind_wherever_it_is_cut(cut: Cut) -> None:
    assert search(peers.Round, cut) == []
