"""The stack: the notices of one machine are the inputs of the next.

    connections, frames, time
        │
    members ── who of my cluster is alive ──► election ── who leads it ──► mesh, links, babel (leaders only)
        │                                        │                            │
        └──► roster (process group inside)       └──────────► rounds ◄────────┘ who of the mesh is alive

A follower runs the same machines; its mesh is a passive copy kept by its leader, and links and routes rest until
it leads itself. Gossip and routing decide only whom to ask and which way to send (they may be wrong for a
while); what is applied is decided by `rounds` alone.

Every input is a method that takes `now` and returns the commands that the driver must execute in order. Whatever
an input changed is carried through to all machines before it returns (`_settle`), so that no machine ever acts
on a half-told story.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import msgspec

from ictp2p.core import views
from ictp2p.core.cards import ClusterCard, PeerCard, decode_cluster_card, decode_peer_card, encode_card
from ictp2p.core.commands import (
    BulkInvited,
    Command,
    ConfigDiffers,
    Dial,
    Hangup,
    MemberChanged,
    MeshLearned,
    StatusAsked,
    Transmit,
    Violated,
)
from ictp2p.core.dialing import Dialer
from ictp2p.core.directory import Directory
from ictp2p.core.machines import CODECS, Machines
from ictp2p.core.packets import (
    BETWEEN_CLUSTERS,
    MAX_HOPS,
    ONE_HOP,
    BulkInvitation,
    Channel,
    Goodbye,
    Greeting,
    Introduction,
    MeshCopy,
    Packet,
    StatusReply,
    StatusRequest,
    decode_packet,
    encode_packet,
)
from ictp2p.errors import ProtocolError, RemoteProtocolError
from ictp2p.gossip.election import LeaderChanged
from ictp2p.gossip.links import LinkChanged, LinkLost
from ictp2p.gossip.swim import (
    Displaced,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Record,
    Status,
    SwimState,
)
from ictp2p.machine import Effects, Message, Notice, Persist, Send, earliest
from ictp2p.types import Address, ClusterId, PeerId

_PASSES = 32
"""Most passes of `_finish`: each carries a change one machine further, and the stack is not that tall."""

_STATUS: dict[type[Notice], str] = {
    MemberJoined: "alive",
    MemberCleared: "alive",
    MemberSuspected: "suspect",
    MemberFailed: "dead",
    MemberLeft: "left",
}


class Core:
    """The control plane of one peer.

    Args:
        machines: the machines, already restored from disk.
        card: what this peer says about itself.
        rng: jitter.
        up: bytes/s that this peer may send in all; 0 if that is not limited.
    """

    def __init__(self, machines: Machines, card: PeerCard, rng: random.Random, up: float = 0.0) -> None:
        self.card = card
        self._up = up
        self.directory = Directory(card)
        self.m = machines
        self.dialer = Dialer(rng)
        self.training = False
        self.draining = False
        self.config = b""
        self._greeted: set[PeerId] = set()
        self._open: set[PeerId] = set()
        self._departed: set[PeerId] = set()
        self._silent: set[str] = set()
        self._joined = False
        self._adjacent: dict[ClusterId, PeerId] = {}
        self._inbox: deque[Packet] = deque()
        self._out: list[Command] = []
        self._now = 0.0
        self._dirty = False
        self._told: dict[str, object] = {}

    # ------------------------------------------------------------ inputs from the driver

    def start(self, incarnation: int, now: float) -> list[Command]:
        """Come alive, alone; `incarnation` is greater than in any former life."""
        self._now = now
        self._run(Channel.MEMBERS, self.m.members.start(encode_card(self.card), incarnation, now))
        self._run(Channel.ROUNDS, self.m.rounds.start(now))
        return self._finish()

    def joined(self, now: float) -> list[Command]:
        """The founder's word that there is nobody to wait for; others are in when a mesh view reaches them."""
        self._now = now
        self._join()
        return self._finish()

    def opened(self, peer: PeerId, now: float) -> list[Command]:
        """A control connection to `peer` is open; it proved that it is that peer."""
        self._now = now
        self._open.add(peer)
        self._departed.discard(peer)
        self.dialer.opened(peer)
        self._greet(peer)
        return self._finish()

    def lost(self, peer: PeerId, now: float) -> list[Command]:
        """The connection to `peer` ended, for whatever reason."""
        self._now = now
        self._open.discard(peer)
        was_greeted = peer in self._greeted
        self._greeted.discard(peer)
        self.dialer.lost(peer, now)
        if was_greeted:
            self._broken(peer, refused=False)
        return self._finish()

    def dial_failed(self, peer: PeerId, refused: bool, now: float) -> list[Command]:
        """A `Dial` did not succeed; `refused` if the host itself said that nobody listens there."""
        self._now = now
        self.dialer.failed(peer, now)
        if refused and peer not in self._departed:
            self._broken(peer, refused=True)
        return self._finish()

    def receive(self, peer: PeerId, frame: bytes, now: float) -> list[Command]:
        """A frame arrived on the connection to `peer`.

        Raises:
            RemoteProtocolError: the frame cannot be what a peer sends; hang up.
        """
        self._now = now
        packet = decode_packet(frame)
        self._heard(peer)
        if packet.target != self.card.peer:
            self._forward(packet)
        elif packet.channel in ONE_HOP and packet.source != peer:
            raise RemoteProtocolError(f"{peer} relayed a {Channel(packet.channel).name} packet of {packet.source}")
        else:
            self._inbox.append(packet)
        return self._finish()

    def heard(self, peer: PeerId, now: float) -> list[Command]:
        """Bytes of `peer` arrived on a connection of the data plane: it lives."""
        self._now = now
        self._heard(peer)
        return self._finish()

    def handle_timeout(self, now: float) -> list[Command]:
        """Do what has become due."""
        self._now = now
        for channel, machine in self._timed():
            due = machine.next_timeout()
            if due is not None and due <= now:
                self._run(channel, machine.handle_timeout(now))
        return self._finish()

    def next_timeout(self) -> float | None:
        """When something becomes due."""
        return earliest([*(m.next_timeout() for _, m in self._timed()), self.dialer.next_timeout()])

    # ------------------------------------------------------------ inputs from the training side

    def set_training(self, training: bool, draining: bool, config: bytes, now: float) -> list[Command]:
        """Say whether rounds should wait for this peer's cluster, and by which model and policy it trains."""
        self._now = now
        self.training, self.draining, self.config = training, draining, config
        self._dirty = True
        return self._finish()

    def call(self, channel: Channel, effects: Effects, now: float) -> list[Command]:
        """Carry out what an input of one machine asked for, as in `core.call(ROUNDS, machines.rounds.ready(...))`."""
        self._now = now
        self._run(channel, effects)
        self._dirty = True
        return self._finish()

    def readdress(self, address: str, now: float) -> list[Command]:
        """This peer learnt where it can be dialed: tell everybody."""
        self._now = now
        self.card = msgspec.structs.replace(self.card, address=address)
        self.directory.me = self.directory.peers[self.card.peer] = self.card
        if self.m.members.active:
            self._run(Channel.MEMBERS, self.m.members.publish(encode_card(self.card), now))
        for peer in sorted(self._greeted):
            self._greet(peer)
        self._dirty = True
        return self._finish()

    def invite(self, peer: PeerId, ticket: bytes, now: float) -> list[Command]:
        """Ask a peer anywhere in the mesh to dial a bulk connection to this one, showing `ticket`."""
        self._now = now
        self._send(Channel.BULK, peer, BulkInvitation(ticket))
        return self._finish()

    def tell_status(self, observer: PeerId, document: bytes, now: float) -> list[Command]:
        """Answer `StatusAsked`; the document is JSON."""
        self._now = now
        self._send(Channel.HELLO, observer, StatusReply(document))
        return self._finish()

    def leave(self, now: float) -> list[Command]:
        """Say goodbye to everybody: what follows is an end, not a failure."""
        self._now = now
        if self.leading and not self._mates():
            self._run(Channel.MESH, self.m.mesh.leave(now))  # with mates left, the cluster stays and is led by another
        self._run(Channel.MEMBERS, self.m.members.leave(now))
        for peer in sorted(self._greeted):
            self._send(Channel.HELLO, peer, Goodbye())
        return self._finish()

    # ------------------------------------------------------------ what others ask

    @property
    def leading(self) -> bool:
        """Whether this peer leads its cluster."""
        return self.m.election.in_office

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self.m.election.leader

    def connected(self) -> list[PeerId]:
        """Peers with an open connection whose greeting has arrived."""
        return sorted(self._greeted)

    def neighbours(self) -> list[PeerId]:
        """The leaders of neighbouring clusters, or a follower's own leader."""
        if self.leading:
            return [self._adjacent[cluster] for cluster in sorted(self._adjacent)]
        return [self.leader] if self.leader in self._greeted and self.leader is not None else []

    def next_hop(self, target: PeerId) -> PeerId | None:
        """The connected peer to which a packet for `target` goes, or None if there is no way."""
        if target in self._open:
            return target
        cluster = self.directory.cluster_of(target)
        if cluster is None:
            return None
        if not self.leading or cluster == self.card.cluster:
            leader = self.leader
            return leader if leader in self._open and leader != self.card.peer else None
        via = self.m.routes.next_hop(cluster)
        hop = self._adjacent.get(ClusterId(via)) if via else self._adjacent.get(cluster)
        return hop if hop in self._open else None

    # ------------------------------------------------------------ packets

    def _send(self, channel: Channel, to: str, message: Message) -> None:
        target = self._target(channel, to)
        if target is None:
            return
        body = CODECS[channel].encode(message)
        packet = Packet(self.card.peer, self.card.cluster, target, MAX_HOPS, channel, body)
        if target == self.card.peer:
            self._inbox.append(packet)
        else:
            self._pass_on(packet)

    def _target(self, channel: Channel, to: str) -> PeerId | None:
        if channel not in BETWEEN_CLUSTERS:
            return PeerId(to)
        cluster = ClusterId(to)
        return self._adjacent.get(cluster) if channel in ONE_HOP else self.directory.leader_of(cluster)

    def _forward(self, packet: Packet) -> None:
        if packet.hops > 1 and packet.channel not in ONE_HOP:
            self._pass_on(msgspec.structs.replace(packet, hops=packet.hops - 1))

    def _pass_on(self, packet: Packet) -> None:
        hop = self.next_hop(packet.target)
        if hop is not None:
            self._out.append(Transmit(hop, encode_packet(packet)))

    def _deliver_guarded(self, packet: Packet) -> None:
        """What one sender got wrong must not keep this peer from serving the others."""
        try:
            self._deliver(packet)
        except ProtocolError as error:
            self._out.append(Violated(packet.source, f"{Channel(packet.channel).name}: {error}"))
            if packet.source in self._open:
                self._out.append(Hangup(packet.source, str(error)))

    def _deliver(self, packet: Packet) -> None:
        channel = Channel(packet.channel)
        message = CODECS[channel].decode(packet.body)
        if channel is Channel.HELLO:
            self._hello(packet.source, message)
        elif isinstance(message, BulkInvitation):
            self._out.append(BulkInvited(packet.source, message.ticket))
        elif channel in BETWEEN_CLUSTERS:
            self._deliver_between_clusters(channel, packet, message)
        elif (machine := self._machine(channel)) is not None:
            self._run(channel, machine.receive(packet.source, message, self._now))

    def _deliver_between_clusters(self, channel: Channel, packet: Packet, message: Message) -> None:
        """Only a leader speaks for its cluster, and only to a leader."""
        machine = self._machine(channel)
        from_neighbour = self._adjacent.get(packet.cluster) == packet.source
        if machine is not None and self.leading and (from_neighbour or channel not in ONE_HOP):
            self._run(channel, machine.receive(packet.cluster, message, self._now))

    def _hello(self, sender: PeerId, message: Message) -> None:
        match message:
            case Greeting():
                self._greeting(sender, message)
            case Introduction(cards=cards):
                for card in cards:
                    self.directory.learn_peer(card)
                self._dirty = True
            case MeshCopy():
                self._mesh_copy(sender, message)
            case Goodbye():
                self._greeted.discard(sender)
                self._departed.add(sender)
                self._dirty = True
            case StatusRequest():
                self._out.append(StatusAsked(sender))
            case StatusReply():
                pass  # only observers ask, and an observer has no core

    # ------------------------------------------------------------ meeting others

    def _greet(self, peer: PeerId) -> None:
        leader = self.leader or PeerId("")
        self._send(Channel.HELLO, peer, Greeting(self.card, leader, self.m.election.term))

    def _greeting(self, peer: PeerId, greeting: Greeting) -> None:
        card = greeting.card
        if card.peer != peer:
            raise RemoteProtocolError(f"{peer} greeted as {card.peer}")
        first = peer not in self._greeted
        self._greeted.add(peer)
        self.directory.learn_peer(card)
        self._dirty = True
        if not card.cluster:
            return
        self.directory.learn_claim(card.cluster, greeting.term, greeting.leader)
        if card.cluster == self.card.cluster:
            self._greeted_by_mate(peer, greeting)
        if first:
            self._introduce(card)
            self._offer_mesh(peer)
            self._run(Channel.ROUNDS, self.m.rounds.greet(peer, self._now))

    def _greeted_by_mate(self, peer: PeerId, greeting: Greeting) -> None:
        if greeting.leader:
            self._run(Channel.ELECTION, self.m.election.seen(greeting.term, greeting.leader, self._now))
        self._run(Channel.MEMBERS, self.m.members.meet(peer, self._now))

    def _introduce(self, newcomer: PeerCard) -> None:
        """Workers of one cluster find each other at whatever peer they both asked first."""
        mates = [self.directory.peers[p] for p in sorted(self._greeted) if p in self.directory.peers]
        mates = [m for m in mates if m.cluster == newcomer.cluster and m.peer != newcomer.peer]
        if newcomer.cluster == self.card.cluster or not mates:
            return
        self._send(Channel.HELLO, newcomer.peer, Introduction(tuple(mates)))
        for mate in mates:
            self._send(Channel.HELLO, mate.peer, Introduction((newcomer,)))

    def _offer_mesh(self, peer: PeerId) -> None:
        if self._joined:
            self._send(Channel.HELLO, peer, self._copy_of_mesh())

    def _copy_of_mesh(self) -> MeshCopy:
        own = self.own_view()  # a follower's too: whoever asks it for the way in must learn who leads here
        return MeshCopy(CODECS[Channel.MESH].encode(self.m.mesh.state()), b"" if own is None else encode_card(own))

    def _mesh_copy(self, sender: PeerId, copy: MeshCopy) -> None:
        """A leader believes its own gossip; everybody else what its leader, or whoever let it in, tells it."""
        if not self.leading and (sender == self.leader or not self._joined):
            state = CODECS[Channel.MESH].decode(copy.state)
            if not isinstance(state, SwimState):
                raise RemoteProtocolError(f"{sender} sent a {type(state).__name__} as its mesh view")
            self._run(Channel.MESH, self.m.mesh.absorb(state, self._now))
        if copy.cluster:
            self._introduced(sender, decode_cluster_card(copy.cluster))
        if not self._joined:
            self._join()

    def _introduced(self, sender: PeerId, card: ClusterCard) -> None:
        """A peer says who leads its own cluster. A follower passes on what its leader says to those it let in."""
        known = self.directory.clusters.get(card.cluster)
        if self.directory.cluster_of(sender) != card.cluster or (known is not None and known.term > card.term):
            return
        if card.cluster != self.card.cluster:
            self.directory.learn_cluster(card)
            self._dirty = True
        elif not self.leading and sender == self.leader:
            self.directory.learn_cluster(card)
            self._dirty = True
            if known is None or known.term < card.term:
                for peer in sorted(self._greeted):
                    if self.directory.cluster_of(peer) != self.card.cluster:
                        self._offer_mesh(peer)

    def _join(self) -> None:
        if not self._joined:
            self._joined = True
            self._dirty = True
            self._out.append(MeshLearned())
            for peer in sorted(self._greeted):
                self._offer_mesh(peer)

    # ------------------------------------------------------------ evidence of life

    def _heard(self, peer: PeerId) -> None:
        cluster = self.directory.cluster_of(peer)
        if cluster == self.card.cluster:
            self._run(Channel.MEMBERS, self.m.members.heard(peer, self._now))
        elif cluster is not None and self._adjacent.get(cluster) == peer:
            self._run(Channel.MESH, self.m.mesh.heard(cluster, self._now))

    def _broken(self, peer: PeerId, *, refused: bool) -> None:
        """The end of a connection is evidence at once; what it proves is for the membership machines to weigh."""
        cluster = self.directory.cluster_of(peer)
        self._dirty = True
        if cluster == self.card.cluster:
            self._run(Channel.MEMBERS, self.m.members.broken(peer, refused, self._now))
        elif cluster is not None and self.directory.leader_of(cluster) == peer:
            self._run(Channel.MESH, self.m.mesh.broken(cluster, refused, self._now))

    # ------------------------------------------------------------ effects and notices

    def _run(self, channel: Channel, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self._send(channel, to, message)
                case Persist():
                    self._out.append(effect)
                case Notice():
                    self._dirty = True
                    self._notice(channel, effect)

    def _notice(self, channel: Channel, notice: Notice) -> None:
        match notice:
            case MemberJoined(record=record) | MemberUpdated(record=record):
                self._member_seen(channel, record)
            case MemberFailed(member=member) if channel is Channel.MESH:
                self.directory.lapse(ClusterId(member))
            case MemberLeft(member=member) if channel is Channel.MESH:
                self.directory.forget_cluster(ClusterId(member))
            case Displaced(record=record) if channel is Channel.MESH:
                self._displaced(record)
            case LeaderChanged():
                self._leader_changed(notice)
            case LinkChanged(neighbour=neighbour):
                self._link_changed(neighbour)
            case LinkLost(neighbour=neighbour):
                self._silent.add(neighbour)
                self._run(Channel.ROUTES, self.m.routes.link_down(neighbour, self._now))
            case _:
                pass
        status = _STATUS.get(type(notice))
        if status is not None:
            self._out.append(MemberChanged(channel.name.lower(), notice.member, status))  # type: ignore[attr-defined]
        else:
            self._out.append(notice)

    def _member_seen(self, channel: Channel, record: Record) -> None:
        if channel is Channel.MEMBERS:
            self.directory.learn_peer(decode_peer_card(record.payload))
            return
        card = decode_cluster_card(record.payload)
        self.directory.learn_cluster(card)
        if card.config and self.config and card.config != self.config:
            self._out.append(ConfigDiffers(card))
        if card.cluster == self.card.cluster:
            self._run(Channel.ELECTION, self.m.election.seen(card.term, card.leader, self._now))

    def _displaced(self, record: Record) -> None:
        """Another peer speaks for this cluster with a newer record: the election has to hear of it."""
        card = decode_cluster_card(record.payload)
        self.directory.learn_peer(next(w for w in card.workers if w.peer == card.leader))
        self._run(Channel.ELECTION, self.m.election.seen(card.term, card.leader, self._now))

    def _leader_changed(self, notice: LeaderChanged) -> None:
        self.directory.learn_claim(self.card.cluster, notice.term, notice.leader)
        if self.leading:
            self._forsake_neighbours()
            self.m.routes = self.m.new_routes(notice.term)
            card = encode_card(self._own_card())
            self._run(Channel.MESH, self.m.mesh.start(card, notice.term << 32, self._now))
            for peer in sorted(self._greeted):
                self._greet(peer)
        else:
            self._forsake_neighbours()
            self.m.mesh.stop()
        self._run(Channel.ROSTER, self.m.rosters.leader(notice.leader, notice.term, self._now))

    def _forsake_neighbours(self) -> None:
        """Another term is another router: whatever was learnt under the old one is void."""
        for cluster in sorted(self._adjacent):
            self._run(Channel.LINKS, self.m.links.disconnected(cluster, self._now))
        self._adjacent.clear()

    def _link_changed(self, neighbour: str) -> None:
        measured = self.m.links.measurement(ClusterId(neighbour), self._now)
        if measured.srtt is not None and neighbour in self._adjacent:
            self.m.mesh.measured(neighbour, measured.srtt, measured.rttvar or 0.0)
            spoke_again = neighbour in self._silent
            self._silent.discard(neighbour)
            changed = self.m.routes.link_up if spoke_again else self.m.routes.link_changed
            self._run(Channel.ROUTES, changed(neighbour, views.link_of(measured), self._now))

    # ------------------------------------------------------------ carrying changes through

    def _finish(self) -> list[Command]:
        """Deliver what this peer sent to itself, tell every machine what changed, and hand out the commands."""
        for _ in range(_PASSES):
            while self._inbox:
                self._deliver_guarded(self._inbox.popleft())
            if not self._dirty:
                break
            self._dirty = False
            self._settle()
        for peer, address in self.dialer.dial(self._now):
            self._out.append(Dial(peer, address))
        commands, self._out = self._out, []
        return commands

    def _settle(self) -> None:
        self._settle_cluster()
        self._settle_adjacency()
        self._settle_mesh()
        self.dialer.want(self._wanted(), self._now)

    def _settle_cluster(self) -> None:
        if not self._joined:
            return
        alive = tuple(PeerId(p) for p in self.m.members.alive())
        suspects = frozenset(PeerId(p) for p in self.m.members.suspects())
        ranks = {p: self.directory.peers[p].rank for p in alive if p in self.directory.peers}
        if self._news("members", (alive, suspects, tuple(sorted(ranks.items())))):
            self._run(Channel.ELECTION, self.m.election.view(alive, suspects, self._now, ranks))
            self._run(Channel.ROSTER, self.m.rosters.view(alive, self._now, suspects))

    def _settle_adjacency(self) -> None:
        """Neighbours are clusters whose leader is at the other end of a connection, while we lead ours."""
        present: dict[ClusterId, PeerId] = {}
        for peer in sorted(self._greeted) if self.leading else ():
            cluster = self.directory.cluster_of(peer)
            if cluster and cluster != self.card.cluster and self.directory.leader_of(cluster) == peer:
                present[cluster] = peer
        for cluster in sorted(self._adjacent):
            if present.get(cluster) != self._adjacent[cluster]:
                del self._adjacent[cluster]
                self._run(Channel.LINKS, self.m.links.disconnected(cluster, self._now))
                self._run(Channel.ROUTES, self.m.routes.link_down(cluster, self._now))
        for cluster in sorted(present.keys() - self._adjacent.keys()):
            self._adjacent[cluster] = present[cluster]
            self._silent.discard(cluster)
            self._run(Channel.LINKS, self.m.links.connected(cluster, self._now))
            self._run(Channel.ROUTES, self.m.routes.link_up(cluster, views.UNMEASURED, self._now))
            self._run(Channel.MESH, self.m.mesh.meet(cluster, self._now))

    def _settle_mesh(self) -> None:
        if self.m.mesh.active and self._news("card", own := self._own_card()):  # not after a goodbye
            self.directory.learn_cluster(own)
            self._run(Channel.MESH, self.m.mesh.publish(encode_card(own), self._now))
        view = views.cluster_views(self.directory, self.m.mesh, self.own_view())
        suspects = views.suspected_peers(self.directory, self.m.mesh, self.m.members)
        if self._news("view", (view, suspects)):
            self._run(Channel.ROUNDS, self.m.rounds.view(view, self._now))
            self._run(Channel.ROUNDS, self.m.rounds.suspects(suspects, self._now))
            self._copy_to_followers()

    def _copy_to_followers(self) -> None:
        if self.leading:
            copy = self._copy_of_mesh()
            for mate in self._mates():
                if mate in self._greeted:
                    self._send(Channel.HELLO, mate, copy)

    def _mates(self) -> list[PeerId]:
        return [PeerId(p) for p in self.m.members.alive() if p != self.card.peer]

    def _news(self, what: str, value: object) -> bool:
        """Whether a value differs from the one that was last told under this name."""
        if self._told.get(what) == value:
            return False
        self._told[what] = value
        return True

    def _own_card(self) -> ClusterCard:
        """This cluster as its leader describes it."""
        workers = [self.directory.peers[PeerId(p)] for p in self.m.members.alive() if p in self.directory.peers]
        mates = tuple(w for w in workers if w.peer != self.card.peer)
        return ClusterCard(
            self.card.cluster,
            self.card.peer,
            self.m.election.term,
            (self.card, *mates),
            self.training,
            self.draining,
            self._version(),
            self.config,
            tuple(views.link_card(c, self.m.links.measurement(c, self._now)) for c in sorted(self._adjacent)),
            self._up,
        )

    def own_view(self) -> ClusterCard | None:
        """The card of this peer's cluster: its own word if it leads, else what its leader last said."""
        return self._own_card() if self.leading else self.directory.clusters.get(self.card.cluster)

    def _version(self) -> int:
        tip = self.m.rounds.tip
        return tip[1].state.version if tip else 0

    def _wanted(self) -> dict[PeerId, Address]:
        """Whom to be connected to: mates, and, for a leader, the other leaders. The dead too: partitions heal."""
        gone = {name for name, member in self.m.members.members.items() if member.status is Status.LEFT}
        wanted = [mate.peer for mate in self.directory.mates() if mate.peer not in gone]
        if self.leading:
            left = {name for name, member in self.m.mesh.members.items() if member.status is Status.LEFT}
            leaders = (self.directory.leader_of(c) for c in sorted(self.directory.clusters) if c not in left)
            wanted += [leader for leader in leaders if leader is not None and leader != self.card.peer]
        return views.dialable(self.directory, [peer for peer in wanted if peer not in self._departed])

    def _machine(self, channel: Channel) -> Any:
        return self._by_channel().get(channel)

    def _by_channel(self) -> dict[Channel, Any]:
        return {
            Channel.MEMBERS: self.m.members,
            Channel.MESH: self.m.mesh,
            Channel.LINKS: self.m.links,
            Channel.ROUTES: self.m.routes,
            Channel.ELECTION: self.m.election,
            Channel.ROSTER: self.m.rosters,
            Channel.ROUNDS: self.m.rounds,
        }

    def _timed(self) -> list[tuple[Channel, Any]]:
        return list(self._by_channel().items())
