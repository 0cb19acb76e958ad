"""The keys of one connection, and what shows that they were agreed with whoever is meant.

A card may come from anybody, so the key on it may be another's. Whoever seals with what was agreed from it has shown
that the key on the card is its own, and not that the card is: that takes the word of the peer whose it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ictp2p.types import PeerId


def _nothing(proof: bytes) -> None:
    pass


class Agreed(NamedTuple):
    """What two ends have agreed on."""

    sending: bytes
    """Our key, 16 bytes."""
    receiving: bytes
    """Theirs."""
    proof: bytes = b""
    """What we say first, sealed: that the key which this was agreed from is ours."""
    check: Callable[[bytes], None] = _nothing
    """Given what they say first; raises `HandshakeFailed` if it does not show the same of theirs."""


KeyAgreement: TypeAlias = Callable[[PeerId, bytes], Agreed]
"""Given a peer and a context that both ends share and never repeat: what both go on with. Raises `HandshakeFailed` for
a peer whose public key is not known."""
