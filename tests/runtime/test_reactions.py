"""What a peer does at once about what its stack noticed; most of it shows only in worlds (`tests/sim`)."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from ictp2p.core.commands import Restarted
from ictp2p.runtime.reactions import Reactions
from ictp2p.types import PeerId


def test_no_data_connection_to_the_former_life_of_a_peer_is_used_again() -> None:
    """Regression: of two of a host that had lost its power and its address the dead one was preferred."""
    parts: Any = {name: Mock() for name in ("control", "bulk", "entrance", "participation", "health")}
    events: Any = {name: Mock() for name in ("led", "released", "resigned")}
    Reactions(**parts, **events, fail=Mock()).notice(Restarted(PeerId("b" * 32)))
    parts["bulk"].distrust.assert_called_once_with(PeerId("b" * 32), restarted=True)
