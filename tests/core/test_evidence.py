"""Whom bytes that arrive, and connections that end, are told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.core.cards import PeerCard
from ictp2p.core.directory import Directory
from ictp2p.core.evidence import Evidence
from ictp2p.core.packets import Channel
from ictp2p.types import ClusterId, PeerId

ME, MATE, LEADER, FOLLOWER, STRANGER = (PeerId(letter * 32) for letter in "abcde")
HOME, AWAY = ClusterId("home"), ClusterId("away")


class Listener:
    """A membership machine that waits for some, and gives what it was told as its effects."""

    def __init__(self, *awaited: str) -> None:
        self.awaited = awaited

    def awaits(self, member: str) -> bool:
        return member in self.awaited

    def heard(self, member: str, now: float) -> list[object]:
        return ["heard", member]

    def broken(self, member: str, refused: bool, now: float) -> list[object]:
        return ["broken", member, refused]


class Bench:
    """The evidence of one leader, whose neighbour is the leader of another cluster."""

    def __init__(self, *awaited: str) -> None:
        directory = Directory(PeerCard(ME, HOME, "", bytes(32)))
        for peer, cluster in ((MATE, HOME), (LEADER, AWAY), (FOLLOWER, AWAY)):
            directory.learn_peer(PeerCard(peer, cluster, "", bytes(32)))
        directory.learn_claim(AWAY, 1, LEADER)
        machines = SimpleNamespace(members=Listener(*awaited), mesh=Listener(*awaited))
        self.told: list[tuple[Channel, list[object]]] = []
        self.context: Any = SimpleNamespace(directory=directory, cluster=HOME, m=machines, now=0.0, dirty=False)
        self.context.run = lambda channel, effects: self.told.append((channel, effects))
        neighbourhood: Any = SimpleNamespace(leader={AWAY: LEADER}.get)
        self.evidence = Evidence(self.context, neighbourhood)


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        (MATE, [(Channel.MEMBERS, ["heard", MATE])]),
        (LEADER, [(Channel.MESH, ["heard", AWAY])]),
        (FOLLOWER, []),
        (STRANGER, []),
    ],
)
def test_a_mate_shows_that_it_lives_and_a_leader_that_its_cluster_does(peer: PeerId, told: list[Any]) -> None:
    bench = Bench(MATE, AWAY)
    bench.evidence.heard(peer)
    assert bench.told == told


@pytest.mark.parametrize("peer", [MATE, LEADER])
def test_who_waits_for_no_sign_of_life_is_told_of_none(peer: PeerId) -> None:
    bench = Bench()
    bench.evidence.heard(peer)
    assert not bench.told


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize(
    ("peer", "told"),
    [(MATE, (Channel.MEMBERS, MATE)), (LEADER, (Channel.MESH, AWAY)), (FOLLOWER, None), (STRANGER, None)],
)
def test_a_broken_connection_speaks_against_a_mate_or_the_cluster_of_a_leader(
    peer: PeerId, told: tuple[Channel, str] | None, refused: bool
) -> None:
    bench = Bench()
    bench.evidence.broken(peer, refused=refused)
    assert bench.told == ([(told[0], ["broken", told[1], refused])] if told else [])
    assert bench.context.dirty
