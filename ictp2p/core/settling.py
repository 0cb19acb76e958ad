"""What one machine knows and another has to be told: compared after every change, and told where it is news.

The memberships, the directory and who is connected are what all else rests on. Each step below computes from them what
it is that some machine should know, and only what differs from what that one was told last reaches it. Most inputs
change none of it; then the computation itself is spared (`_is_new_basis`), which in a large mesh costs far more.
"""

from __future__ import annotations

import msgspec

from ictp2p.core import views
from ictp2p.core.contacts import Contacts
from ictp2p.core.context import Context
from ictp2p.core.dialing import Dialer
from ictp2p.core.meetings import Meetings
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import Channel
from ictp2p.core.publication import Publication
from ictp2p.core.thrift import Thrift
from ictp2p.types import PeerId


class Settling:
    """What one peer's machines and parts were told of each other's knowledge.

    Args:
        context: the stack's.
        meetings: who has greeted.
        neighbourhood: the leaders next door, of those.
        publication: what the mesh knows of this cluster.
        contacts: whom this peer wants to be connected to.
        dialer: is told whom.
        thrift: is told too, and finds which connections nobody needs.
    """

    def __init__(
        self,
        context: Context,
        meetings: Meetings,
        neighbourhood: Neighbourhood,
        publication: Publication,
        contacts: Contacts,
        dialer: Dialer,
        thrift: Thrift,
    ) -> None:
        self._context = context
        self._meetings = meetings
        self._neighbourhood = neighbourhood
        self._publication = publication
        self._contacts = contacts
        self._dialer = dialer
        self._thrift = thrift
        self._told: dict[str, object] = {}
        """What was told last, by name."""
        self._based: dict[str, object] = {}
        """What was last computed with, by name."""

    def settle(self) -> None:
        """Tell everybody what has changed for them. It may change more: until nothing does, there is more to tell."""
        self._settle_cluster()
        self._neighbourhood.settle(self._meetings.greeted)
        self._settle_mesh()
        self._settle_wishes()
        self._neighbourhood.admit()

    def review_needs(self) -> None:
        """A connection began anew: what this side said of its need, it said on the one before."""
        self._based.pop("needed", None)

    def _settle_cluster(self) -> None:
        context = self._context
        if not self._meetings.joined or not self._is_new_basis("members", ()):
            return
        alive = tuple(PeerId(p) for p in context.m.members.alive())
        suspects = frozenset(PeerId(p) for p in context.m.members.suspects())
        ranks = {p: context.directory.peers[p].rank for p in alive if p in context.directory.peers}
        if self._is_news("members", (alive, suspects, tuple(sorted(ranks.items())))):
            context.run(Channel.ELECTION, context.m.election.view(alive, suspects, context.now, ranks))
            context.run(Channel.ROSTER, context.m.rosters.view(alive, context.now, suspects))

    def _settle_mesh(self) -> None:
        context, m = self._context, self._context.m
        self._publication.renew()
        self._meetings.show_mesh_to_planner()
        if self._is_news("met", frozenset(self._meetings.greeted)):
            context.run(Channel.ROUNDS, m.rounds.met(self._meetings.greeted, context.now))
        own = self._publication.view()
        lineage = m.rounds.tip[1].lineage if m.rounds.tip is not None else b""
        if not self._is_new_basis("view", own and msgspec.structs.replace(own, version=0, links=()), lineage):
            return
        view = views.cluster_views(context.directory, m.mesh, own, lineage)
        suspects = views.suspected_peers(context.directory, m.mesh, m.members)
        if self._is_news("view", (view, suspects)):
            context.run(Channel.ROUNDS, m.rounds.view(view, context.now))
            context.run(Channel.ROUNDS, m.rounds.suspects(suspects, context.now))
            self._meetings.show_mesh_to_mates()
        elif self._is_news("cards", [card.workers for card in context.directory.clusters.values()]):
            self._meetings.show_mesh_to_mates()  # where a worker is, and its key, is in no view of the rounds

    def _settle_wishes(self) -> None:
        wishes = (self._context.leading, frozenset(self._meetings.departed))
        if self._is_new_basis("wanted", wishes):
            wanted = self._contacts.wanted()
            self._dialer.want(wanted, self._context.now)
            self._thrift.picked(frozenset(wanted), crowded=self._contacts.crowded)
        if self._is_new_basis("needed", (wishes, frozenset(self._meetings.greeted), self._context.m.rounds.in_touch())):
            self._thrift.settle(self._meetings.greeted, self._contacts.can_be_spared)

    def _is_new_basis(self, what: str, *parts: object) -> bool:
        """Whether anything differs of what a computation rests on, who is there and what they say included."""
        context = self._context
        basis = (context.directory.revision, context.m.members.revision, context.m.mesh.revision, *parts)
        if self._based.get(what) == basis:
            return False
        self._based[what] = basis
        return True

    def _is_news(self, what: str, value: object) -> bool:
        """Whether a value differs from the one that was last told under this name."""
        if self._told.get(what) == value:
            return False
        self._told[what] = value
        return True
