"""Neighbours in the mesh: clusters whose leader is at the other end of a connection, while we lead ours.

Links and routes are between clusters and spoken by leaders, so an adjacency is a pair of *leaders in office*. When
either office or the connection ends, so does the adjacency, and all routes over it are dropped, on both sides. That is
also what keeps routes free of loops across a change of leaders: whoever meets the new one, which knows of no feasible
distances yet, has dropped all routes through the old one first.

In a large mesh connections come and go that nobody needs (`thrift`). They are measured and carry probes like others,
but routes lead over a connection only once one of its ends is known to keep it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from ictp2p.core import views
from ictp2p.core.cards import LinkCard
from ictp2p.core.context import Context
from ictp2p.core.packets import Channel
from ictp2p.gossip.link import LinkMeasurement
from ictp2p.machine import Effects
from ictp2p.types import ClusterId, PeerId


class Neighbourhood:
    """The adjacencies of one leader; empty at a follower.

    Args:
        context: the stack's.
        serves: whether routes may lead over the connection to a peer.
    """

    def __init__(self, context: Context, serves: Callable[[PeerId], bool]) -> None:
        self._context = context
        self._serves = serves
        self._leaders: dict[ClusterId, PeerId] = {}
        self._silent: set[ClusterId] = set()
        """Those that no route leads over: nothing was measured yet, or nothing is heard any more."""
        self._lost: set[ClusterId] = set()
        """Those of them that were heard before."""
        self._held: set[ClusterId] = set()
        """Those that are measured, and over which no route may lead yet."""
        self._cards: dict[ClusterId, LinkCard] = {}
        self._shown: tuple[LinkCard, ...] | None = ()
        """`link_cards` as they are, if they were asked for since anything changed: they are, after most inputs."""
        self._settled_on: tuple[object, ...] = ()

    def leader(self, cluster: ClusterId) -> PeerId | None:
        """The leader of a neighbouring cluster."""
        return self._leaders.get(cluster)

    def lost(self) -> set[PeerId]:
        """The leaders next door whose links have fallen silent, though their connections stand."""
        return {self._leaders[cluster] for cluster in self._lost}

    def clusters(self) -> list[ClusterId]:
        """The neighbouring clusters, sorted."""
        return sorted(self._leaders)

    def leaders(self) -> list[PeerId]:
        """Their leaders, in the order of the clusters."""
        return [self._leaders[cluster] for cluster in self.clusters()]

    def link_cards(self) -> tuple[LinkCard, ...]:
        """What the links measure, as of their last notices; sorted."""
        if self._shown is None:
            self._shown = tuple(self._cards.get(c) or _unmeasured(c) for c in self.clusters())
        return self._shown

    def settle(self, greeted: Iterable[PeerId]) -> None:
        """Compare with who is connected and in office now, and tell links, routes and gossip of the difference."""
        basis = (frozenset(greeted), self._context.leading, self._context.directory.revision)
        if basis == self._settled_on:
            return
        self._settled_on = basis
        present = self._present(greeted)
        for cluster in self.clusters():
            if present.get(cluster) != self._leaders[cluster]:
                self._end(cluster)
        for cluster in sorted(present.keys() - self._leaders.keys()):
            self._begin(cluster, present[cluster])
        self._context.m.mesh.near(self._leaders)

    def forsake(self) -> None:
        """This peer's own office changed: it has no neighbours until `settle` finds them anew."""
        self._settled_on = ()
        for cluster in self.clusters():
            self._end(cluster)

    def link_changed(self, cluster: ClusterId) -> None:
        """A link was measured: probe timeouts and route costs follow it."""
        machines, now = self._context.m, self._context.now
        measured = machines.links.measurement(cluster, now)
        if measured.srtt is None or cluster not in self._leaders:
            return
        self._lost.discard(cluster)
        self._cards[cluster] = views.link_card(cluster, measured)
        self._shown = None
        machines.mesh.measured(cluster, measured.srtt, measured.rttvar or 0.0)
        if cluster in self._silent and not self._serves(self._leaders[cluster]):
            self._held.add(cluster)
            return
        changed = machines.routes.link_up if cluster in self._silent else machines.routes.link_changed
        self._silent.discard(cluster)
        self._run(Channel.ROUTES, changed(cluster, views.link_of(measured), now))

    def admit(self) -> None:
        """Let routes lead over the links that turn out to be needed."""
        for cluster in sorted(c for c in self._held if self._serves(self._leaders[c])):
            self._held.discard(cluster)
            self.link_changed(cluster)

    def link_lost(self, cluster: ClusterId) -> None:
        """A neighbour fell silent though its connection stands: route around it until it speaks again."""
        self._silent.add(cluster)
        self._held.discard(cluster)
        if cluster in self._leaders:
            self._lost.add(cluster)
        self._run(Channel.ROUTES, self._context.m.routes.link_down(cluster, self._context.now))

    def _present(self, greeted: Iterable[PeerId]) -> dict[ClusterId, PeerId]:
        directory = self._context.directory
        present: dict[ClusterId, PeerId] = {}
        for peer in sorted(greeted) if self._context.leading else ():
            cluster = directory.cluster_of(peer)
            if cluster and cluster != self._context.cluster and directory.leader_of(cluster) == peer:
                present[cluster] = peer
        return present

    def _begin(self, cluster: ClusterId, leader: PeerId) -> None:
        machines, now = self._context.m, self._context.now
        self._leaders[cluster] = leader
        self._shown = None
        self._silent.add(cluster)  # until its first round trip is known: a guess would be told to everybody too
        self._run(Channel.LINKS, machines.links.connected(cluster, now))
        self._run(Channel.MESH, machines.mesh.meet(cluster, now))

    def _end(self, cluster: ClusterId) -> None:
        machines, now = self._context.m, self._context.now
        del self._leaders[cluster]
        self._held.discard(cluster)
        self._lost.discard(cluster)
        self._cards.pop(cluster, None)
        self._shown = None
        self._run(Channel.LINKS, machines.links.disconnected(cluster, now))
        self._run(Channel.ROUTES, machines.routes.link_down(cluster, now))
        machines.mesh.unmeasured(cluster)
        self._silent.discard(cluster)  # at last: that the link is lost was news

    def _run(self, channel: Channel, effects: Effects) -> None:
        self._context.run(channel, effects)


@functools.lru_cache(2048)
def _unmeasured(cluster: ClusterId) -> LinkCard:
    return views.link_card(cluster, LinkMeasurement())
