"""What one peer asks of another, wherever it is cut."""

from __future__ import annotations

import pytest

from ictp2p.bulk import tuning
from tests.cuts import asks
from tests.cuts.meshes import breaks, cancels, closes
from tests.cuts.search import Cut, search

CUTS = (
    Cut("cancelled", cancels(0)),
    Cut("broken", breaks(0)),
    Cut("cancelled again", cancels(0), cancels(0)),
    Cut("cancelled, then broken", cancels(0), breaks(0)),
    Cut("broken, then cancelled", breaks(0), cancels(0)),
)
GONE = (Cut("closed here", closes(0)), Cut("closed there", closes(1)))
SENDER = (Cut("sender cancelled", cancels(1)), Cut("both cancelled", cancels(1), cancels(0)))
STORIES = (
    asks.Connection,
    asks.FromAbove,
    asks.Dialed,
    asks.Relayed,
    asks.Another,
    asks.AnotherDialed,
    asks.Probe,
    asks.Reply,
    asks.State,
)


@pytest.fixture(autouse=True)
def long_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "may_gain", lambda transport, rate: True)


@pytest.mark.parametrize("cut", CUTS + GONE, ids=lambda cut: cut.name)
@pytest.mark.parametrize("story", STORIES)
def test_what_is_asked_for_is_there_or_not_wherever_it_is_cut(story: type[asks.Asking], cut: Cut) -> None:
    assert search(story, cut) == []


@pytest.mark.parametrize("cut", CUTS + SENDER, ids=lambda cut: cut.name)
def test_a_message_is_there_once_it_is_sent_wherever_it_is_cut(cut: Cut) -> None:
    assert search(asks.Message, cut) == []
