"""What follows at a peer from what its stack noticed: who lets it in and leads it, whether it may go on, its rounds.

The stack tells, and does not know who listens. What takes time is an errand (`errands`); all of this is done at once,
before programs hear of the notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ictp2p.bulk import Bulk
from ictp2p.core import commands
from ictp2p.core.packets import Channel
from ictp2p.errors import ConfigError, IctError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.links import LinkLost
from ictp2p.machine import Notice
from ictp2p.runtime.control_plane import ControlPlane
from ictp2p.runtime.data_folder import identity_taken
from ictp2p.runtime.entrance import Entrance
from ictp2p.runtime.health import Health
from ictp2p.runtime.participation import Participation
from ictp2p.sync.agreement.chain import Decided, ForeignChain
from ictp2p.sync.rounds import notices
from ictp2p.types import ClusterId, PeerId


class Reactions:
    """The reactions of one peer.

    Args:
        control: the control plane, whose notices these are.
        bulk: the data connections, which measure links between rounds.
        entrance: waits to be let in, and keeps addresses.
        participation: this peer's part in rounds, if it leads.
        health: counts false suspicions.
        led: set once this cluster has a leader.
        released: set once this peer's vote is given up.
        resigned: set once somebody else leads its cluster, or nobody is left of it.
        fail: stops this peer for good, and is given why.
    """

    def __init__(
        self,
        control: ControlPlane,
        bulk: Bulk,
        entrance: Entrance,
        participation: Participation,
        health: Health,
        led: asyncio.Event,
        released: asyncio.Event,
        resigned: asyncio.Event,
        fail: Callable[[IctError], None],
    ) -> None:
        self._control = control
        self._bulk = bulk
        self._entrance = entrance
        self._participation = participation
        self._health = health
        self._led = led
        self._released = released
        self._resigned = resigned
        self._fail = fail

    def notice(self, notice: Notice) -> None:
        """React to one notice, if there is anything to do."""
        match notice:
            case commands.MeshLearned():
                self._entrance.open()
            case LeaderChanged(leader=leader):
                self._leader_changed(leader)
            case commands.MemberChanged():
                self._member_changed(notice)
            case commands.Restarted(peer=peer):
                self._bulk.distrust(peer, restarted=True)
            case commands.IdentityTaken(address=address):
                self._fail(identity_taken(self._control.core.card.peer, address))
            case notices.Released():
                self._released.set()
            case commands.Resigned():
                self._resigned.set()
            case _:
                self._notice_of_rounds(notice)

    def _notice_of_rounds(self, notice: Notice) -> None:
        """Plans learn from what is decided, and what a probe measured beside a round would be no figure."""
        match notice:
            case Decided(value=value):
                self._control.decided(value)
            case notices.RoundOpened():
                self._control.core.m.links.round_started()
                self._bulk.stop_probes()
                self._avoid_the_silent()
            case LinkLost():
                self._avoid_the_silent()
            case notices.ParticipantUnseated(leader=leader):
                self._bulk.hasten(leader)
            case ForeignChain(longer=True) if self._control.founded:
                self._founded_apart(notice.peer)
            case notices.RoundCommitted() | notices.RoundAborted():
                self._control.caught_up()
                self._control.call(Channel.LINKS, self._control.core.m.links.round_ended)
            case _:
                pass

    def _founded_apart(self, peer: PeerId) -> None:
        """Stop if our own cluster trains in another mesh: gossip makes one cluster of us, which has one leader."""
        directory, me = self._control.core.directory, self._control.core.card
        other = directory.peers.get(peer)
        if other is not None and other.cluster == me.cluster:
            why = "this peer was given no join and an empty data folder, or none, and so founded one of its own"
            words = f"cluster {me.cluster} is in another mesh already, with {directory.in_words(peer)}; {why}"
            self._fail(ConfigError(f"{words}: start it again with join"))

    def _avoid_the_silent(self) -> None:
        """Have what wants a data connection look for a way around neighbours of whom nothing is heard."""
        for leader in self._control.core.silent():
            self._bulk.distrust(leader)

    def _leader_changed(self, leader: PeerId) -> None:
        self._led.set()
        if leader != self._control.core.card.peer:
            self._participation.deposed()

    def _member_changed(self, notice: commands.MemberChanged) -> None:
        scope, member = notice.scope, notice.member
        leader_of = self._control.core.directory.leader_of
        self._entrance.remember()
        self._health.judged(scope, member, notice.status, leader_of(ClusterId(member)) if scope == "mesh" else member)
