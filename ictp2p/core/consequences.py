"""What follows from what a machine asks for: messages leave, promises go to disk, and its notices are others' inputs.

The effects of all machines pass through here, in the order in which they were asked for. Of a notice the other machines
hear first, the driver and the training side after them: whoever acts on it finds a stack that knows of it.
"""

from __future__ import annotations

from ictp2p.core.context import Context
from ictp2p.core.doubts import doubtful
from ictp2p.core.meetings import Meetings
from ictp2p.core.membership import Membership
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import Channel
from ictp2p.core.publication import Publication
from ictp2p.core.timetable import Timetable
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.links import LinkChanged, LinkLost
from ictp2p.gossip.messages import MemberUpdated
from ictp2p.machine import Effects, Notice, Persist, Send
from ictp2p.sync.rosters.roster import HeirFound

QUIET = frozenset({Channel.LINKS, Channel.ROUTES})
"""Channels whose notices change nothing that the others are told, but for the measurements in this cluster's card."""


class Consequences:
    """What one peer's machines bring about.

    Args:
        context: the stack's.
        timetable: is told of every machine that gets an input.
        membership: what follows from news of members.
        meetings: who is told of a new leader.
        neighbourhood: what depends on links, and on who leads.
        publication: what the mesh is told of both.
    """

    def __init__(
        self,
        context: Context,
        timetable: Timetable,
        membership: Membership,
        meetings: Meetings,
        neighbourhood: Neighbourhood,
        publication: Publication,
    ) -> None:
        self._context = context
        self._timetable = timetable
        self._membership = membership
        self._meetings = meetings
        self._neighbourhood = neighbourhood
        self._publication = publication

    def run(self, channel: Channel, effects: Effects) -> None:
        """Carry out what an input of the machine on `channel` asked for, which it has got by now."""
        self._timetable.touch(channel)
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self._context.send(channel, to, message)
                case Persist():
                    self._context.out.append(effect)
                case MemberUpdated(record=record):
                    self._membership.updated(channel, record)
                case Notice():
                    self._context.dirty |= channel not in QUIET
                    told = self._follow(channel, effect)
                    self._context.out.append(told)

    def _follow(self, channel: Channel, notice: Notice) -> Notice:
        """Let the other machines hear of it; give what the driver is told."""
        match notice:
            case LeaderChanged():
                self._leader_changed(notice)
            case HeirFound(heir=heir):
                self.run(Channel.ELECTION, self._context.m.election.hand_over(heir))
            case LinkChanged(neighbour=neighbour):
                self._neighbourhood.link_changed(neighbour)
                self._publication.put_off()
                self._doubt()
            case LinkLost(neighbour=neighbour):
                self._neighbourhood.link_lost(neighbour)
                self._publication.put_off()
            case _ if channel in (Channel.MEMBERS, Channel.MESH):
                return self._membership.changed(channel, notice)
        return notice

    def _doubt(self) -> None:
        """Have links probed again that show less than the lines at their ends."""
        context = self._context
        doubted = doubtful(context.cluster, self._neighbourhood.link_cards(), context.directory.living())
        self.run(Channel.LINKS, context.m.links.doubt(doubted, context.now))

    def _leader_changed(self, notice: LeaderChanged) -> None:
        context = self._context
        context.directory.learn_claim(context.cluster, notice.term, notice.leader)
        self._neighbourhood.forsake()
        if context.leading:
            self._take_office(notice.term)
        else:
            context.m.mesh.stop()
            self._timetable.touch(Channel.MESH)
        self._meetings.greet_all()  # a follower too: those it let in may know nobody else of this cluster
        self.run(Channel.ROSTER, context.m.rosters.leader(notice.leader, notice.term, context.now, told=notice.told))

    def _take_office(self, term: int) -> None:
        """Speak for this cluster among the leaders.

        The same router goes on: what it knows of feasible distances is what keeps routes free of loops. Only its
        sequence number must exceed all that this cluster used before, whoever led it.
        """
        routes = self._context.m.routes
        routes.seqno = max(routes.seqno, term << 32)
        self._publication.begin(term)
