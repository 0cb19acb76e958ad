"""What a peer does at once about what its stack noticed; most of it shows only in worlds (`tests/sim`)."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock, call

from ictp2p.core.commands import Restarted
from ictp2p.runtime.reactions import Reactions
from ictp2p.sync.rounds.notices import ParticipantUnseated
from ictp2p.types import PeerId


def reactions() -> tuple[Reactions, dict[str, Any]]:
    parts: dict[str, Any] = {name: Mock() for name in ("control", "bulk", "entrance", "participation", "health")}
    events: dict[str, Any] = {name: Mock() for name in ("led", "released", "resigned")}
    return Reactions(**parts, **events, fail=Mock()), parts


def test_no_data_connection_to_the_former_life_of_a_peer_is_used_again() -> None:
    """Regression: of two of a host that had lost its power and its address the dead one was preferred."""
    reacting, parts = reactions()
    reacting.notice(Restarted(PeerId("b" * 32)))
    parts["bulk"].distrust.assert_called_once_with(PeerId("b" * 32), restarted=True)


def test_of_whom_another_has_replaced_nothing_is_closed_that_it_may_be_using() -> None:
    """It may live: what is idle here it may be using for the attempt that both are in."""
    reacting, parts = reactions()
    reacting.notice(ParticipantUnseated(PeerId("b" * 32)))
    assert parts["bulk"].mock_calls == [call.hasten(PeerId("b" * 32))]
