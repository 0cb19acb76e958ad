"""How control connections begin and end, for all that rests on them.

Nothing that was said on a former connection holds on a new one: each begins with a greeting. The end of one is evidence
of a death, unless both sides agreed on it, or the other said goodbye.
"""

from __future__ import annotations

from ictp2p.core.context import Context
from ictp2p.core.dialing import Dialer
from ictp2p.core.evidence import Evidence
from ictp2p.core.meetings import Meetings
from ictp2p.core.observers import Observers
from ictp2p.core.post import Post
from ictp2p.core.thrift import Thrift
from ictp2p.types import PeerId


class Connections:
    """The control connections of one peer.

    Args:
        context: the stack's.
        dialer: when to dial again.
        post: over which connections packets go.
        meetings: who has greeted.
        observers: who looks on.
        thrift: which connections are needed.
        evidence: what the end of one proves.
    """

    def __init__(
        self,
        context: Context,
        dialer: Dialer,
        post: Post,
        meetings: Meetings,
        observers: Observers,
        thrift: Thrift,
        evidence: Evidence,
    ) -> None:
        self._context = context
        self._dialer = dialer
        self._post = post
        self._meetings = meetings
        self._observers = observers
        self._thrift = thrift
        self._evidence = evidence

    def opened(self, peer: PeerId) -> None:
        """One is open, to a peer that proved that it is that peer."""
        self._post.open.add(peer)
        self._meetings.departed.discard(peer)
        self._dialer.opened(peer, self._context.now)
        self._observers.forget(peer)
        self._thrift.forget(peer)
        self._thrift.changed()
        self._meetings.greet(peer)

    def lost(self, peer: PeerId) -> None:
        """One ended, for whatever reason."""
        self._post.open.discard(peer)
        self._dialer.lost(peer, self._context.now)
        agreed = peer in self._thrift.parted
        self._observers.forget(peer)
        self._thrift.forget(peer)
        if peer in self._meetings.greeted:
            self._meetings.greeted.discard(peer)
            self._context.dirty = True
            if not agreed:
                self._evidence.broken(peer, refused=False)

    def failed(self, peer: PeerId, *, refused: bool) -> None:
        """One could not be opened."""
        self._dialer.failed(peer, self._context.now)
        if refused and peer not in self._meetings.departed:
            self._evidence.broken(peer, refused=True)

    def open(self) -> list[PeerId]:
        """Peers with an open connection, greeted or not."""
        return sorted(self._post.open)

    def greeted(self) -> list[PeerId]:
        """Peers with an open connection whose greeting has arrived."""
        return sorted(self._meetings.greeted)

    def has_greeted(self, peer: PeerId) -> bool:
        """Whether the greeting of a peer has arrived on the connection that there is, be it an observer's."""
        return peer in self._meetings.greeted or peer in self._observers
