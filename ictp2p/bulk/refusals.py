"""Why a hello is turned away, in the few bytes that an answer of a hello's size has for it."""

from __future__ import annotations

import re

from ictp2p.bulk.frames import Hello

_PEER = re.compile(r"\b([0-9a-f]{6})[0-9a-f]{26}\b")


def refusal(answered: Hello, reason: str) -> Hello:
    """Make the answer that turns `answered` away.

    Whoever asked knows whom it asked for and who it is: of a peer's id, which would take all of the room, a beginning
    is enough.
    """
    return Hello.refusal(answered, _PEER.sub(r"\1", reason))
