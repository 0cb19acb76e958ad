"""Giving up connections that neither side has a use for.

A leader in a large mesh wants few connections (`overlay`), but gets more: newcomers dial whomever they have an address
of, and picks change as the mesh grows. So both ends of a connection say whether they need it (`Need`), and when
neither does, the one with the lower id says so (`Parting`) and the other closes it. Its end is then evidence of
nothing, and either side may dial again. A connection is needed by a side that

- is connected to a mate by it, or picked its other end;
- has not reached enough of its own picks yet: they are its way into the mesh, and this may be the only other one.

Nobody is in a hurry: what is not needed is looked at every few seconds, so that a growing mesh does not shed and dial
in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ictp2p.core.commands import Hangup
from ictp2p.core.context import Context
from ictp2p.core.packets import Channel, Need, Parting
from ictp2p.types import PeerId

_PAUSE = 5.0
"""Seconds between two looks."""
_FOOTHOLD = 3
"""Picks that must be connected before other connections can be spared."""


class Thrift:
    """The needs of both ends of one peer's connections.

    Args:
        context: the stack's.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._spared: set[PeerId] = set()
        """Peers that we told that we do not need their connection."""
        self._spare: set[PeerId] = set()
        """Peers that told us so."""
        self.parted: set[PeerId] = set()
        """Peers whose connection ends by agreement."""
        self._review_at: float | None = None

    def changed(self) -> None:
        """Picks or connections are others than before: look at them in a while."""
        if self._review_at is None:
            self._review_at = self._context.now + _PAUSE

    def next_timeout(self) -> float | None:
        """When `review` has something to do."""
        return self._review_at

    def forget(self, peer: PeerId) -> None:
        """The connection ended, or began anew: nothing was said on it."""
        for peers in (self._spared, self._spare, self.parted):
            peers.discard(peer)

    def idle(self, peer: PeerId) -> bool:
        """Whether neither end needs the connection."""
        return peer in self._spared and peer in self._spare

    def review(self, greeted: Collection[PeerId], picks: Collection[PeerId], applies: Callable[[PeerId], bool]) -> None:
        """Say what is needed, where it is not what was said last.

        Args:
            greeted: the peers at the other ends.
            picks: whom this peer wants to be connected to.
            applies: whether a connection to a peer is one that may be spared at all.
        """
        if self._review_at is None or self._review_at > self._context.now:
            return
        self._review_at = None
        wanted = set(picks)
        settled = len(wanted & set(greeted)) >= min(_FOOTHOLD, len(wanted))
        for peer in sorted(greeted):
            spared = settled and peer not in wanted and applies(peer)
            if spared != (peer in self._spared):
                (self._spared.add if spared else self._spared.discard)(peer)
                self._context.send(Channel.HELLO, peer, Need(not spared))
                self._part(peer)

    def receive(self, sender: PeerId, message: Need | Parting) -> None:
        """Take what the other end of a connection says of it."""
        if isinstance(message, Parting):
            self.parted.add(sender)
            self._context.out.append(Hangup(sender, "neither side needs the connection"))
        else:
            (self._spare.discard if message.wanted else self._spare.add)(sender)
            self._part(sender)

    def _part(self, peer: PeerId) -> None:
        if self.idle(peer) and self._context.me < peer:
            self.parted.add(peer)
            self._context.send(Channel.HELLO, peer, Parting())
