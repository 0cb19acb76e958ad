"""The edges between leaders that a plan may use, from what gossip knows of the links between their clusters.

A pair of clusters that has no connection of its own gets a virtual edge over the best relay; the bulk room finds the
way there by itself. In a mesh that is not complete (`overlay`) the lack of a connection means nothing: such a pair is
taken for one of which nothing is known yet, if either of the two can be dialed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import permutations

from ictp2p.collectives.planning.topology import UNMEASURED, LinkEstimate
from ictp2p.core.cards import ClusterCard, LinkCard
from ictp2p.core.directory import Directory
from ictp2p.core.overlay import COMPLETE
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId

UNKNOWN_DELAY = 0.1
"""Seconds one way between two clusters of which nothing is known."""
_FASTEST_LINE = 3e8
"""Bytes/s above which two peers at one address are not taken for two machines behind one router."""

Edges = dict[tuple[PeerId, PeerId], LinkEstimate]


def links_between(directory: Directory, participants: Iterable[Participant], complete: int = COMPLETE) -> Edges:
    """Give what gossip knows of the links between participants, by their leaders.

    Args:
        directory: the cards.
        participants: whose leaders.
        complete: clusters up to which every two leaders stay connected.
    """
    known = _Known(directory, complete)
    for (a, source), (b, target) in permutations(((p.cluster, p.leader) for p in participants), 2):
        known.add(a, source, b, target)
    return known.edges


class _Known:
    """The edges, one after the other, from what the cards of the living tell."""

    def __init__(self, directory: Directory, complete: int) -> None:
        self.edges: Edges = {}
        self._directory = directory
        living = directory.living()  # what the dead said of their links is no way for anything
        self._links = measured(living, directory.clusters.keys() - {card.cluster for card in living})
        self._beside: dict[ClusterId, list[ClusterId]] = {}
        """Of each cluster those that it has a link to."""
        for a, b in self._links:
            self._beside.setdefault(a, []).append(b)
        self._sparse = len(living) > complete

    def add(self, a: ClusterId, source: PeerId, b: ClusterId, target: PeerId) -> None:
        """Have the edge from the leader of `a` to that of `b`, if there is any way."""
        link = self._links.get((a, b))
        if link is None:
            link = self._without_a_link(a, source, b, target)
        elif self._one_machine(source, target):
            link = _by_cores(link)
        if link is not None:
            self.edges[source, target] = link

    def _without_a_link(self, a: ClusterId, source: PeerId, b: ClusterId, target: PeerId) -> LinkEstimate | None:
        relay = self._relay(a, b)
        if self._sparse and self._can_dial(source, target):
            return LinkEstimate(None, UNKNOWN_DELAY if relay is None else self._delay(a, relay, b))
        return None if relay is None else self._over(a, source, relay, b, target)

    def _relay(self, a: ClusterId, b: ClusterId) -> ClusterId | None:
        """The cluster over which the way from `a` to `b` is widest; unmeasured ones only if there is nothing else."""
        between = [relay for relay in self._beside.get(a, ()) if relay != b and (relay, b) in self._links]
        return max(between, key=lambda relay: self._width(a, relay, b), default=None)

    def _over(self, a: ClusterId, source: PeerId, relay: ClusterId, b: ClusterId, target: PeerId) -> LinkEstimate:
        """A virtual edge over a relay, whose own links it shares with all else that they carry: these are added too."""
        width, delay = self._width(a, relay, b) or None, self._delay(a, relay, b)
        card = self._directory.clusters.get(relay)
        if card is None:
            return LinkEstimate(width / 2 if width else None, delay)
        self.edges.setdefault((source, card.leader), self._links[a, relay])
        self.edges.setdefault((card.leader, target), self._links[relay, b])
        return LinkEstimate(width, delay, card.leader)

    def _width(self, a: ClusterId, relay: ClusterId, b: ClusterId) -> float:
        return min((x.bandwidth for x in (self._links[a, relay], self._links[relay, b]) if x.bandwidth), default=0.0)

    def _delay(self, a: ClusterId, relay: ClusterId, b: ClusterId) -> float:
        return self._links[a, relay].delay + self._links[relay, b].delay

    def _one_machine(self, source: PeerId, target: PeerId) -> bool:
        """Whether two peers are dialed at one address, but for the port."""
        ends = [card.endpoint() for card in map(self._directory.peers.get, (source, target)) if card is not None]
        hosts = {end.host for end in ends if end is not None}
        return len(ends) == 2 and len(hosts) == 1 and None not in ends

    def _can_dial(self, source: PeerId, target: PeerId) -> bool:
        """Whether one of two peers can dial the other, as far as their cards say."""
        cards = (self._directory.peers.get(source), self._directory.peers.get(target))
        return any(card is not None and card.address for card in cards)


def measured(
    cards: Iterable[ClusterCard], dead: Collection[ClusterId] = ()
) -> Mapping[tuple[ClusterId, ClusterId], LinkEstimate]:
    """What either end says of each link, but those to the dead, in both of its directions; sorted."""
    ends = {(card.cluster, link.neighbour): link for card in cards for link in card.links if link.neighbour not in dead}
    pairs = sorted({*ends, *((b, a) for a, b in ends)})
    return {(a, b): _both(ends.get((a, b)), ends.get((b, a))) for a, b in pairs}


def _both(outward: LinkCard | None, inward: LinkCard | None) -> LinkEstimate:
    """The link from the one that says `outward` to the one that says `inward`; not both are missing."""
    figures = [outward.bandwidth_out if outward else 0.0, inward.bandwidth_in if inward else 0.0]
    known = [x for x in figures if x > 0]
    rtts = [end.round_trip for end in (outward, inward) if end and end.round_trip > 0]
    bounds = (outward.at_least_out if outward else 0.0, inward.at_least_in if inward else 0.0)
    return LinkEstimate(min(known) if known else None, min(rtts, default=0.0) / 2, at_least=max(bounds))


def _by_cores(link: LinkEstimate) -> LinkEstimate:
    """Take a fast link inside one machine for what it is: no line, but the time of cores, which is reckoned apart.

    What was measured of it is what was left of the cores then. As a line it would favour schedules that use most
    links side by side, and these cost the cores more.
    """
    if link.bandwidth is None or not _FASTEST_LINE <= link.bandwidth < UNMEASURED:
        return link
    return replace(link, bandwidth=UNMEASURED)
