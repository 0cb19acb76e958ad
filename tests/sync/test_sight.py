"""What a peer remembers of who was whose worker."""

from __future__ import annotations

import pytest

from ictp2p.sync import sight
from ictp2p.sync.sight import ClusterView, Sight
from ictp2p.types import ClusterId, PeerId


def view(*workers: str) -> dict[ClusterId, ClusterView]:
    peers = tuple(PeerId(name) for name in workers)
    return {ClusterId("a"): ClusterView(peers[0], 1, True, False, True, peers, peers)}


def test_of_workers_that_are_somebody_else_after_each_start_only_so_many_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sight, "_FORMER", 5)
    seen = Sight(PeerId("me"), 1.0)
    for life in range(40):
        seen.update(view("first", "me", f"life{life}"), float(life))
        former = [f"life{n}" for n in range(max(0, life - 5), life)]
        assert all(seen.gone(PeerId(name), float(life)) for name in former), "known to be former workers"
        assert len(seen._homes) <= 3 + 5
        assert seen.mine == "a"
        assert seen.lives(PeerId("first"))
        assert seen.lives(PeerId(f"life{life}"))


def test_a_voter_that_is_forgotten_is_gone_all_the_same_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "_FORMER", 0)
    seen = Sight(PeerId("me"), 10.0)
    seen.update(view("me", "voter"), 0.0)
    seen.update(view("me", "other"), 1.0)
    seen.mind((PeerId("voter"), PeerId("me")), 2.0)
    assert not seen.gone(PeerId("voter"), 11.0)
    assert seen.gone(PeerId("voter"), 12.0)
