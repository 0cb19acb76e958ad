"""Workers of this cluster who are there, as others say, and whom this peer does not meet.

Neither can dial the other, then: where one says that it is dialed nobody answers, or it says nothing. Each leads the
cluster by itself. Other clusters hear the one with the later claim, and the one whom they do not hear sees a mesh that
has fallen silent, without a quorum, which says nothing of the cause. So people are told of that.

Said to be there is who greeted a third peer that this one came to as well, and who leads this cluster by a view of the
mesh in which it is alive. Whoever was a member here once has been met: it is another matter if it went.
"""

from __future__ import annotations

from ictp2p.core.commands import MateUnmet
from ictp2p.core.context import Context
from ictp2p.types import PeerId

_PATIENCE = 30.0
"""Seconds in which two workers meet if either can dial the other: each tries several times in as many."""


class Unmet:
    """Those of one peer.

    Args:
        context: the stack's.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._due: dict[PeerId, float] = {}
        """When people are told of each."""

    def heard_of(self, mate: PeerId) -> None:
        """Others say that a worker is there; if it is of this cluster, it should be met."""
        context = self._context
        if context.directory.cluster_of(mate) == context.cluster and not self._is_member(mate):
            self._due.setdefault(mate, context.now + _PATIENCE)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` has something to do."""
        return min(self._due.values(), default=None)

    def handle_timeout(self) -> None:
        """Tell of those who should have been met by now."""
        now = self._context.now
        for mate in sorted(mate for mate, due in self._due.items() if due <= now):
            del self._due[mate]
            if not self._is_member(mate):  # another worker of this cluster may have met it, and passed on its record
                self._context.out.append(MateUnmet(mate, _PATIENCE))

    def _is_member(self, mate: PeerId) -> bool:
        return mate in self._context.m.members.members
