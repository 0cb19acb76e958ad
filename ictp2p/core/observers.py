"""Who looks on and takes no part: how many at once, for how long, and what each may ask.

An observer knows the mesh's token and greets with no cluster (`ictp2p status`). It is none of those whom this peer is
connected to: nobody counts on it, and nothing is told it but what it asks. Still it costs something that the training
needs: a descriptor, the turn of the event loop in which its answer is made, and the memory of the answer until it has
been read. So each asks one question in its life, only so many are there at a time, and none stays. Whoever is not
served is told why before the connection is closed: silence would look like a peer that is stuck.
"""

from __future__ import annotations

from math import inf

from ictp2p.core.commands import Hangup, StatusAsked
from ictp2p.core.context import Context
from ictp2p.core.packets import STATUS_LIMIT, STATUS_PART, Channel, StatusRefusal, StatusReply
from ictp2p.errors import RemoteProtocolError
from ictp2p.types import PeerId

_AT_ONCE = 16
"""Observers at a time. With an answer of 8 MiB for each, which nobody reads, they hold 128 MiB."""
_STAY = 60.0
"""Seconds for which an observer may stay, from its greeting: what it asked for has long arrived, or will not."""


class Observers:
    """The observers of one peer.

    Args:
        context: the stack's.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._until: dict[PeerId, float] = {}
        self._asked: set[PeerId] = set()

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._until

    def admit(self, peer: PeerId) -> None:
        """Let one look on, who has greeted as an observer."""
        if peer in self._until:
            return
        if len(self._until) >= _AT_ONCE:
            self._dismiss(peer, f"{_AT_ONCE} observers are looking on already; ask again in a moment")
        else:
            self._until[peer] = self._context.now + _STAY

    def ask(self, peer: PeerId) -> None:
        """One wants this peer's status.

        Raises:
            RemoteProtocolError: it is no observer, or has asked before.
        """
        if peer not in self._until or peer in self._asked:
            raise RemoteProtocolError(f"{peer} may not ask for the status: it is no observer, or has asked before")
        self._asked.add(peer)
        self._context.out.append(StatusAsked(peer))

    def answer(self, peer: PeerId, document: bytes) -> None:
        """Tell one this peer's status, which is JSON; or that it is too long to be told."""
        if len(document) > STATUS_LIMIT:
            self._dismiss(peer, f"the status has {len(document)} bytes, and at most {STATUS_LIMIT} are sent")
            return
        for start in range(0, len(document), STATUS_PART):
            part, end = document[start : start + STATUS_PART], start + STATUS_PART
            self._context.send(Channel.HELLO, peer, StatusReply(part, end < len(document)))

    def forget(self, peer: PeerId) -> None:
        """The connection ended, or began anew."""
        self._until.pop(peer, None)
        self._asked.discard(peer)

    def next_timeout(self) -> float | None:
        """When `handle_timeout` has something to do."""
        soonest = min(self._until.values(), default=inf)
        return None if soonest == inf else soonest

    def handle_timeout(self) -> None:
        """Send away who has stayed for too long."""
        for peer in [peer for peer, until in self._until.items() if until <= self._context.now]:
            self.forget(peer)
            self._dismiss(peer, f"an observer may stay for {_STAY:g} s")

    def _dismiss(self, peer: PeerId, reason: str) -> None:
        self._context.send(Channel.HELLO, peer, StatusRefusal(reason))
        self._context.out.append(Hangup(peer, gently=True))
