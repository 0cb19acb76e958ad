"""What a peer remembers of who was whose worker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ictp2p.sync.rounds import sight
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.types import ClusterId, PeerId


def view(*workers: str) -> dict[ClusterId, ClusterView]:
    peers = tuple(PeerId(name) for name in workers)
    return {ClusterId("a"): ClusterView(peers[0], 1, True, False, True, peers, peers)}


def test_of_workers_that_are_somebody_else_after_each_start_only_so_many_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sight, "_FORMER", 5)
    seen = Sight(PeerId("me"), 1.0, 0.0)
    for life in range(40):
        seen.update(view("first", "me", f"life{life}"), float(life))
        former = [f"life{n}" for n in range(max(0, life - 5), life)]
        assert all(seen.gone(PeerId(name), float(life)) for name in former), "known to be former workers"
        assert len(seen._homes) <= 3 + 5
        assert seen.mine == "a"
        assert seen.lives(PeerId("first"))
        assert seen.lives(PeerId(f"life{life}"))


@pytest.mark.parametrize("heir", ["leader", "mate"])
def test_a_new_claim_in_a_cluster_that_is_in_doubt_is_given_time_of_its_own(heir: str) -> None:
    """Regression: a leader that was back in half a second was given up in the instant in which it was heard of."""
    seen, (name,) = Sight(PeerId("me"), 1.0, 0.0), view("leader", "mate")
    both = view("leader", "mate")[name]
    seen.update({name: both}, 0.0)
    seen.update({name: replace(both, suspect=True)}, 1.0)
    seen.update({name: replace(both, suspect=True)}, 2.0)
    assert (seen.wavering(name), seen.bereft(name)) == (1.0, 1.0)
    for now in (3.0, 4.0):
        seen.update({name: replace(both, leader=PeerId(heir), suspect=True, term=2)}, now)
    assert (seen.wavering(name), seen.bereft(name)) == (3.0, 3.0)
    seen.suspect((PeerId("mate"),), 5.0)
    assert seen.bereft(name) is None, "nobody is left who may speak for it but the one that it lost"
    seen.update({name: replace(both, leader=PeerId(heir), term=2)}, 6.0)
    assert seen.wavering(name) == (None if heir == "leader" else 3.0)


def test_a_voter_that_is_forgotten_is_gone_all_the_same_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "_FORMER", 0)
    seen = Sight(PeerId("me"), 10.0, 0.0)
    seen.update(view("me", "voter"), 0.0)
    seen.update(view("me", "other"), 1.0)
    seen.mind((PeerId("voter"), PeerId("me")), 2.0)
    assert not seen.gone(PeerId("voter"), 11.0)
    assert seen.gone(PeerId("voter"), 12.0)


def test_of_clusters_that_are_in_no_view_any_more_it_is_not_kept_when_they_had_another_leader() -> None:
    """Each job of a scheduler may be a cluster of its own, for months: what stays of each is too much."""
    seen = Sight(PeerId("me"), 1.0, 0.0)
    for number in range(20):
        leader, heir = PeerId(f"leader{number}"), PeerId(f"heir{number}")
        both = ClusterView(leader, 1, True, False, True, (leader, heir), (leader, heir))
        name = ClusterId(f"job{number}")
        seen.update({name: both}, 3.0 * number)
        seen.suspect((leader,), 3.0 * number + 1)
        seen.update({name: replace(both, leader=heir, term=2)}, 3.0 * number + 2)
        assert seen.returned(name) == 3.0 * number + 2
        assert len(seen._returned) == 1
