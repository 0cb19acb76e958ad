"""Giving up connections that neither side has a use for.

A leader in a large mesh wants few connections (`overlay`), but gets more: newcomers dial whomever they have an address
of, and picks change as the mesh grows. So both ends of a connection say whether they need it (`Need`), and when
neither does, the one with the lower id says so (`Parting`) and the other closes it. Its end is then evidence of
nothing, and either side may dial again. A connection is needed by a side that

- is connected to a mate by it, or picked its other end;
- has not reached enough of its own picks yet: they are its way into the mesh, and this may be the only other one.

Nobody is in a hurry to give up: what is not needed is looked at every few seconds, so that a growing mesh does not shed
and dial in turns. What is needed is said at once, for until then the other side leads no routes over a connection that
it could spare itself (`serves`). A route that is taken back starves whoever had taken it: distances that were told
bind, and only a fresh sequence number frees from them (RFC 8966, section 3.8.2.1). In a large mesh that comes up two
connections of three are given up again, and the requests for those numbers would be most of what it says. For the same
reason no new route leads anywhere while the picks still change: nobody knows yet which connections will stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ictp2p.core.commands import Hangup
from ictp2p.core.context import Context
from ictp2p.core.packets import Channel, Need, Parting
from ictp2p.types import PeerId

_PAUSE = 5.0
"""Seconds between two looks."""
_CALM = 0.5
"""Seconds after which picks that did not change are trusted: more than a round of gossip over a wide area."""
_FOOTHOLD = 3
"""Picks that must be connected before other connections can be spared."""


class Thrift:
    """The needs of both ends of one peer's connections.

    Args:
        context: the stack's.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._surplus: set[PeerId] = set()
        """Peers whose connection this side has no use for."""
        self._needed: set[PeerId] = set()
        """Peers whose connection it has a use for, and could give up if it had not."""
        self._said: dict[PeerId, bool] = {}
        """Whether we need the connection, as the other end heard it last."""
        self._heard: dict[PeerId, bool] = {}
        """Whether the other end needs it, as it said last."""
        self.parted: set[PeerId] = set()
        """Peers whose connection ends by agreement."""
        self._review_at: float | None = None
        self._picks: Collection[PeerId] = ()
        self._calm_at: float | None = None
        """When the picks will have stood for long enough; None if they have."""

    def changed(self) -> None:
        """Picks or connections are others than before: look at them in a while."""
        if self._review_at is None:
            self._review_at = self._context.now + _PAUSE

    def next_timeout(self) -> float | None:
        """When `handle_timeout` has something to do."""
        review_at, calm_at = self._review_at, self._calm_at
        if review_at is None or (calm_at is not None and calm_at < review_at):
            return calm_at
        return review_at

    def forget(self, peer: PeerId) -> None:
        """The connection ended, or began anew: nothing was said on it."""
        for words in (self._said, self._heard):
            words.pop(peer, None)
        for peers in (self._surplus, self._needed, self.parted):
            peers.discard(peer)

    def idle(self, peer: PeerId) -> bool:
        """Whether neither end needs the connection."""
        return self._said.get(peer) is False and self._heard.get(peer) is False

    def serves(self, peer: PeerId) -> bool:
        """Whether routes may lead over the connection: this side needs it, or the other one is known to."""
        return self._calm_at is None and (peer not in self._surplus or self._heard.get(peer, False))

    def picked(self, picks: Collection[PeerId], *, crowded: bool) -> None:
        """Whom this peer wants to be connected to; `crowded`: in a mesh that is, or may soon be, too large for all."""
        if crowded and picks != self._picks:
            self._calm_at = self._context.now + _CALM
        self._picks = picks
        self.changed()

    def settle(self, greeted: Collection[PeerId], can_be_spared: Callable[[PeerId], bool]) -> None:
        """Find what is needed now, and say so where it may be in doubt.

        Args:
            greeted: the peers at the other ends.
            can_be_spared: whether a connection to a peer is one that may be given up at all.
        """
        picks = self._picks
        doubtful = {peer for peer in greeted if can_be_spared(peer)}
        settled = len([pick for pick in picks if pick in greeted]) >= min(_FOOTHOLD, len(picks))
        self._surplus = doubtful.difference(picks) if settled else set()
        self._needed = doubtful - self._surplus
        for peer in sorted(self._needed.intersection(picks)):
            if not self._said.get(peer):
                self._say(peer, needed=True)

    def handle_timeout(self) -> bool:
        """Do what is due; give whether something was."""
        now = self._context.now
        calm = self._calm_at is not None and self._calm_at <= now
        if calm:
            self._calm_at = None
        if self._review_at is None or self._review_at > now:
            return calm
        self._review_at = None
        self._review()
        return True

    def _review(self) -> None:
        """Say what is needed only until picks are reached, and what is not needed.

        Who has not said anything from one look to the next lives in a mesh that it takes for complete: it needs all.
        """
        for peer in sorted(self._needed):
            if not self._said.get(peer):
                self._say(peer, needed=True)
        for peer in sorted(self._surplus):
            if self._said.get(peer, True):
                self._say(peer, needed=False)
            elif peer not in self._heard:
                self._heard[peer] = True
        if not self._surplus <= self._heard.keys():
            self.changed()

    def receive(self, sender: PeerId, message: Need | Parting) -> None:
        """Take what the other end of a connection says of it."""
        if isinstance(message, Parting):
            self.parted.add(sender)
            self._context.out.append(Hangup(sender))
        else:
            self._heard[sender] = message.wanted
            self._part(sender)

    def _say(self, peer: PeerId, *, needed: bool) -> None:
        self._said[peer] = needed
        self._context.send(Channel.HELLO, peer, Need(needed))
        self._part(peer)

    def _part(self, peer: PeerId) -> None:
        if self.idle(peer) and self._context.me < peer:
            self.parted.add(peer)
            self._context.send(Channel.HELLO, peer, Parting())
