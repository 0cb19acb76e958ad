"""The machines of one peer, built together: who gets which profile, key and memory.

`Profiles` are those of all rooms; `local`, `lan` and `wan` choose the same one in each. `CODECS` says which messages
each channel carries.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ictp2p.core.packets import (
    BulkInvitation,
    Channel,
    Goodbye,
    Greeting,
    Introduction,
    MeshCopy,
    Need,
    Parting,
    StatusRefusal,
    StatusReply,
    StatusRequest,
    decode_packet,
)
from ictp2p.core.records import MEMBERS_SCOPE, MESH_SCOPE, Notary
from ictp2p.disk import Disk
from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip import messages as gossip
from ictp2p.gossip.election import TERM_KEY, Claim, Election, ElectionProfile, Past
from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import Links
from ictp2p.gossip.swim import Swim, SwimProfile
from ictp2p.identity import Identity
from ictp2p.routing import messages as routing
from ictp2p.routing.babel import Babel
from ictp2p.routing.profile import RoutingProfile
from ictp2p.sync import messages
from ictp2p.sync.agreement import acceptor
from ictp2p.sync.agreement.chain import Agreement
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.profile import RosterProfile
from ictp2p.sync.rosters.roster import RosterFailed, RosterProposal, RosterReady
from ictp2p.sync.rounds.machine import Rounds
from ictp2p.sync.rounds.opening import Planner, Validate
from ictp2p.sync.rounds.restore import Stock
from ictp2p.types import ClusterId
from ictp2p.wire import Codec

CODECS: dict[Channel, Codec] = {
    Channel.HELLO: Codec(
        Greeting, Introduction, MeshCopy, Goodbye, StatusRequest, StatusReply, Need, Parting, StatusRefusal
    ),
    Channel.MEMBERS: Codec(*gossip.SwimMessage.__args__),
    Channel.MESH: Codec(*gossip.SwimMessage.__args__),
    Channel.LINKS: Codec(Hello),
    Channel.ROUTES: Codec(routing.Update, routing.SeqnoRequest, routing.RouteRequest),
    Channel.ELECTION: Codec(Claim),
    Channel.ROSTER: Codec(RosterReady, RosterProposal, RosterFailed),
    Channel.ROUNDS: Codec(*messages.SyncMessage.__args__),
    Channel.BULK: Codec(BulkInvitation),
}
"""What each channel carries."""


def described(frame: bytes) -> str:
    """What the body of a control frame is, in words, for people."""
    try:
        packet = decode_packet(frame)
        kind = f"{packet.channel.name} {type(CODECS[packet.channel].decode(packet.body)).__name__}"
    except RemoteProtocolError:
        kind = "message that nobody could read"
    return f"{kind} of {len(frame)} bytes"


@dataclass(frozen=True, slots=True)
class Profiles:
    """Every machine's numbers: one set for inside a cluster, one for between clusters."""

    members: SwimProfile
    """Membership inside the cluster."""
    mesh: SwimProfile
    """Membership between clusters."""
    links: LinkProfile
    election: ElectionProfile
    routing: RoutingProfile
    roster: RosterProfile
    rounds: RoundProfile

    @classmethod
    def named(cls, inside: str, between: str, restore_after: float) -> Profiles:
        """The rooms' presets by name ("local", "lan" or "wan"), inside the cluster and between clusters.

        `restore_after` is a number that users set: see `RoundProfile`.
        """
        return cls(
            members=getattr(SwimProfile, inside)(),
            mesh=getattr(SwimProfile, between)(),
            links=getattr(LinkProfile, between)(),
            election=getattr(ElectionProfile, inside)(),
            routing=getattr(RoutingProfile, between)(),
            roster=getattr(RosterProfile, inside)(),
            rounds=replace(getattr(RoundProfile, between)(), restore_after=restore_after),
        )


class Machines:
    """One peer's machines.

    Args:
        identity: signs this peer's records.
        cluster: the cluster it belongs to.
        profiles: their numbers.
        disk: what was promised in former lives is read from it; writing is the driver's.
        life: greater in each process of one peer.
        rng: seeds every machine's own generator, so that one machine's draws never shift another's.
        planner: makes plans when this peer coordinates a round.
        validate: checks plans.
        stock: says which global state others can have of this peer; None as long as its worker may yet bring one.
    """

    def __init__(
        self,
        identity: Identity,
        cluster: ClusterId,
        profiles: Profiles,
        disk: Disk,
        life: int,
        rng: random.Random,
        planner: Planner,
        validate: Validate,
        stock: Callable[[], Stock | None] = Stock,
    ) -> None:
        me = identity.peer_id
        self._rng = rng
        members, mesh = Notary(identity, MEMBERS_SCOPE), Notary(identity, MESH_SCOPE)
        self.members = Swim(me, profiles.members, self._random(), seal=members.seal, verify=members.verify)
        self.mesh = Swim(cluster, profiles.mesh, self._random(), seal=mesh.seal, verify=mesh.verify)
        self.links = Links(cluster, profiles.links)
        self.election = Election(me, Past.decode(disk.load(TERM_KEY)), profiles.election)
        self.routes = Babel(cluster, 0, profiles.routing, self._random())
        self.rosters = Rosters(me, life, profiles.roster)
        agreement = Agreement(me, disk.load(acceptor.KEY), self._random(), profiles.rounds)
        self.rounds = Rounds(me, agreement, profiles.rounds, self._random(), planner, validate, stock)
        self.by_channel: dict[Channel, Any] = {
            Channel.MEMBERS: self.members,
            Channel.MESH: self.mesh,
            Channel.LINKS: self.links,
            Channel.ROUTES: self.routes,
            Channel.ELECTION: self.election,
            Channel.ROSTER: self.rosters,
            Channel.ROUNDS: self.rounds,
        }
        """In the order in which those that are due at one time are called."""

    def _random(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))
