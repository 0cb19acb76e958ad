"""Which connections may be given up in a mesh in which all leaders are connected to all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.core.cards import PeerCard
from ictp2p.core.contacts import Contacts
from ictp2p.core.directory import Directory
from ictp2p.types import ClusterId, PeerId

ME, MATE, LEADER, WORKER = (PeerId(f"{n:032x}") for n in range(4))
HERE, THERE = ClusterId("here"), ClusterId("there")


def spared(peer: PeerId, *, leader: PeerId | None = ME, led: bool = True, in_touch: bool = True) -> bool:
    """Whether our connection to a peer may be given up; `led`: whether the other cluster has a leader."""
    directory = Directory(PeerCard(ME, HERE, "", bytes(32)))
    for name, cluster in ((MATE, HERE), (LEADER, THERE), (WORKER, THERE)):
        directory.learn_peer(PeerCard(name, cluster, "", bytes(32)))
    if led:
        directory.learn_claim(THERE, 1, LEADER)
    rounds = SimpleNamespace(in_touch=lambda: in_touch)
    context: Any = SimpleNamespace(
        me=ME, cluster=HERE, leader=leader, directory=directory, m=SimpleNamespace(rounds=rounds)
    )
    return Contacts(context, SimpleNamespace(), 32).can_be_spared(peer)  # type: ignore[arg-type]


def test_what_is_not_between_two_leaders_can_be_spared_once_there_is_a_quorum() -> None:
    assert spared(WORKER)
    assert spared(LEADER, leader=MATE)
    assert not spared(LEADER), "leaders stay connected"
    assert not spared(MATE)
    assert not spared(WORKER, in_touch=False), "it may lead to one"
    assert not spared(PeerId("f" * 32)), "an observer is none's business"


@pytest.mark.parametrize("peer", [LEADER, WORKER])
def test_who_has_no_leader_yet_keeps_what_it_came_in_over_and_so_do_those_who_let_it_in(peer: PeerId) -> None:
    assert not spared(peer, leader=None)
    assert not spared(peer, led=False)
