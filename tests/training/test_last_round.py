"""How long who was asked to leave waits for its last round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.errors import PeerClosed, RoundTimeout
from ictp2p.training.last_round import LastRound

STALL = 3.0


class Peer:
    """A peer that sees a quorum, or what is raised."""

    config = SimpleNamespace(global_timeouts=SimpleNamespace(stall=STALL))

    def __init__(self) -> None:
        self.now = 0.0
        self.sees: bool | Exception = True

    def clock(self) -> float:
        return self.now

    def waiting(self) -> tuple[bool, str]:
        if isinstance(self.sees, Exception):
            raise self.sees
        return self.sees, "voter x is suspected"


@pytest.fixture
def peer() -> Any:
    return Peer()


@pytest.fixture
def last(peer: Any) -> LastRound:
    return LastRound(peer)


def look(last: LastRound, peer: Peer, at: float, *, trains: bool = True) -> None:
    peer.now = at
    last.check(trains=trains)


def test_who_was_not_asked_waits_however_long_that_takes(last: LastRound, peer: Peer) -> None:
    peer.sees = False
    for now in (0.0, STALL, 1e6):
        look(last, peer, now)


def test_a_quorum_is_waited_for_as_long_as_anybody_who_makes_no_progress(last: LastRound, peer: Peer) -> None:
    peer.sees = False
    look(last, peer, 0.0)
    last.asked = True
    look(last, peer, 100.0)  # from now on: it may have been missed for long, and be about to come back
    look(last, peer, 100.0 + STALL - 0.1)
    with pytest.raises(PeerClosed, match="none came within 3 s: voter x is suspected"):
        look(last, peer, 100.0 + STALL)


def test_with_a_quorum_in_sight_the_round_is_waited_for(last: LastRound, peer: Peer) -> None:
    last.asked = True
    for now in (0.0, 100.0):
        look(last, peer, now)
    peer.sees = False
    look(last, peer, 101.0)
    peer.sees = True
    look(last, peer, 102.0)
    peer.sees = False
    look(last, peer, 101.0 + STALL)


def test_who_has_no_state_yet_trained_nothing_that_a_round_could_take(last: LastRound, peer: Peer) -> None:
    last.asked = True
    look(last, peer, 0.0, trains=False)
    with pytest.raises(PeerClosed):
        look(last, peer, STALL, trains=False)


def test_a_peer_that_stands_still_sees_no_quorum(last: LastRound, peer: Peer) -> None:
    last.asked, peer.sees = True, RoundTimeout("the peer stands still")
    look(last, peer, 0.0)
    with pytest.raises(PeerClosed, match="stands still"):
        look(last, peer, STALL)
