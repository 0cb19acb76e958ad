"""What is wrong with a process group, in words, for events and the status alike."""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.sync.rosters.roster import Trouble
from ictp2p.types import PeerId

Name = Callable[[PeerId], str]
"""Names a worker so that people find it."""


def without(worker: PeerId, name: Name) -> str:
    """Whom the group goes on without, and until when."""
    until = "others waited for it to the deadline; it is let in again as soon as it moves"
    return f"without {name(worker)}, whose training stands still ({until})"


def ailing(trouble: Trouble, name: Name) -> str:
    """How often groups broke in a row, whose failure it is, and why, in that one's words."""
    at = f" at {name(PeerId(trouble.culprit))}" if trouble.culprit else ""
    return f"broke {trouble.times} times in a row{at}: {trouble.words}"
